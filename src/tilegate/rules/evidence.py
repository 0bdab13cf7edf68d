"""Evidence: what all evaluations of one artifact say together, before anything is concluded from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilegate.records.artifact import Manifest
from tilegate.records.canonical import digest_of, encode
from tilegate.records.contract import Contract
from tilegate.records.evaluation import EntryVerdict, Evaluation
from tilegate.records.plan import Condition, Entry, Layout, Origin, Plan, Values
from tilegate.rules.points import Point, point_of

Result = tuple[Point, Entry, EntryVerdict]


def belongs(contract: Contract, manifest: Manifest, plan: Plan, evaluation: Evaluation) -> bool:
    """Whether an evaluation speaks of this artifact under this contract, by every digest that it names."""
    ours = (contract.digest, digest_of(encode(manifest)))
    return (
        manifest.elaboration.contract == contract.digest
        and (plan.contract, plan.manifest) == ours
        and (evaluation.contract, evaluation.manifest) == ours
        and evaluation.library == manifest.library.digest
        and evaluation.plan == plan.digest
    )


def results_of(
    contract: Contract, manifest: Manifest, plan: Plan, evaluation: Evaluation
) -> Iterator[Result]:
    """The results that count, each at its point: UNSUPPORTED and other specializations count neither way."""
    for result in evaluation.results:
        if 0 <= result.index < len(plan.entries) and result.verdict is not EntryVerdict.UNSUPPORTED:
            entry = plan.entries[result.index]
            point = point_of(contract, manifest.elaboration, entry.workload)
            if point is not None:
                yield point, entry, result.verdict


def stands_for_shape(entry: Entry) -> bool:
    """Whether a pass of this entry says that its shape works; the others look for particular faults."""
    return (
        entry.values is Values.NORMAL
        and entry.layout is Layout.ALIGNED
        and entry.condition is Condition.PLAIN
    )


@dataclass
class Evidence:
    """All results of one artifact, sorted by what they say."""

    passed: set[Point] = field(default_factory=set)
    """Shapes that passed at least once, with normal values and aligned."""
    served: set[Point] = field(default_factory=set)
    faults: list[Result] = field(default_factory=list)
    passes: Counter[Layout] = field(default_factory=Counter)
    """Of normal values, by layout."""
    entries: int = 0
    missing: int = 0

    @classmethod
    def gather(
        cls, contract: Contract, manifest: Manifest, recorded: Iterable[tuple[Plan, Evaluation]]
    ) -> Evidence:
        """Reads what belongs to the artifact and leaves the rest aside."""
        evidence = cls()
        missing: dict[str, set[int]] = {}
        for plan, evaluation in recorded:
            if belongs(contract, manifest, plan, evaluation):
                if plan.digest not in missing:  # several evaluations may share a plan, each with a part of it
                    missing[plan.digest] = set(range(len(plan.entries)))
                    evidence.entries += len(plan.entries)
                missing[plan.digest] -= {result.index for result in evaluation.results}
                for result in results_of(contract, manifest, plan, evaluation):
                    evidence.add(*result)
        evidence.missing = sum(map(len, missing.values()))
        return evidence

    def add(self, point: Point, entry: Entry, verdict: EntryVerdict) -> None:
        if entry.origin is Origin.SERVED:
            self.served.add(point)
        if verdict is not EntryVerdict.PASSED:
            self.faults.append((point, entry, verdict))
        elif stands_for_shape(entry):
            self.passed.add(point)
        else:
            self.passes[entry.layout] += 1

    def faults_of(self, *layouts: Layout) -> int:
        return sum(entry.layout in layouts for _, entry, _ in self.faults)

    def held(self, *layouts: Layout) -> bool:
        """Each of the layouts passed somewhere, and none failed anywhere."""
        return all(self.passes[layout] for layout in layouts) and not self.faults_of(*layouts)

    @property
    def failed(self) -> set[Point]:
        """Points where something failed, other than another layout of a shape that passed aligned."""
        return {
            point
            for point, entry, _ in self.faults
            if entry.layout is Layout.ALIGNED or point not in self.passed
        }

    @property
    def value_faults(self) -> list[Result]:
        """Failures with other values than normal ones, at shapes where normal ones passed."""
        return [
            (point, entry, verdict)
            for point, entry, verdict in self.faults
            if entry.values is not Values.NORMAL and point in self.passed
        ]

    @property
    def condition_faults(self) -> list[Result]:
        """Failures under another condition than a plain call, at shapes where that passed."""
        return [
            (point, entry, verdict)
            for point, entry, verdict in self.faults
            if entry.condition is not Condition.PLAIN and point in self.passed
        ]
