"""Evaluation where the device is: a bundle in (`pipeline.export`), an evidence file out.

That machine needs no project, no workspace, no compiler and no key. What it says is a claim until home has
recomputed some of it (`pipeline.merge`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from tilegate.errors import TrustError, UsageError
from tilegate.evaluate.inputs import output_sizes
from tilegate.evaluate.judge import judge_facts
from tilegate.evaluate.run import Subject, evaluate
from tilegate.evaluate.sanitizer import Finding, sanitize, with_findings
from tilegate.evaluate.timing import time_served
from tilegate.pipeline.evaluate import Progress, line_of, title
from tilegate.pipeline.parcel import Limits, only_named, read_parcel, write_parcel
from tilegate.pipeline.places import Place, Places
from tilegate.records.artifact import Manifest
from tilegate.records.bundle import Bundle, Export
from tilegate.records.canonical import Record, blob_of, decode
from tilegate.records.closure import Closure
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import Evaluation, Vouch
from tilegate.records.evidence import Evidence, Facts, Ran, Returned
from tilegate.records.isolation import JobPolicy
from tilegate.records.plan import Plan
from tilegate.records.report import EvaluateReport
from tilegate.sandbox.policy import EVALUATE

MIB = 2**20
BUNDLE_LIMITS = Limits(blob_bytes=256 * MIB, total_bytes=2048 * MIB)
RETURN_BYTES = 256 * MIB
"""Outputs that come back with evidence, unless more or less is asked for. Of the rest come digests."""

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Packed:
    """One export of a bundle, with everything that it names."""

    export: Export
    plan: Plan
    subject: Subject


def open_bundle(file: Path) -> list[Packed]:
    """Read a bundle, and hold every digest in it against what it names.

    Raises:
        ToolError: the file cannot be read.
        TrustError: it is not whole.
    """
    bundle, blobs = read_parcel(file, Bundle, BUNDLE_LIMITS)
    packed = [_unpacked(file, one, blobs) for one in bundle.exports]
    named = {digest for one in packed for digest in _names(one)}
    only_named(file, blobs, named)
    return packed


def _names(packed: Packed) -> list[str]:
    one, subject = packed.export, packed.subject
    records = [one.manifest, one.plan, one.declaration, one.closure]
    return [*records, subject.manifest.library.digest, *(f.digest for f in subject.files)]


def _unpacked(file: Path, one: Export, blobs: Mapping[str, bytes]) -> Packed:
    def get(digest: str) -> bytes:
        if digest not in blobs:
            raise _torn(file, f"{digest[:19]} is not in it")
        return blobs[digest]

    def record(kind: type[R], digest: str) -> R:
        return decode(kind, get(digest), where=f"{file}: {digest[:19]}")

    manifest, plan = record(Manifest, one.manifest), record(Plan, one.plan)
    declared, closure = record(Declaration, one.declaration), record(Closure, one.closure)
    built = manifest.elaboration
    contract = declared.contract.digest
    if (plan.manifest, plan.contract, built.contract, built.closure) != (
        one.manifest, contract, contract, one.closure,
    ):  # fmt: skip
        raise _torn(file, "a plan, a contract and an artifact in it do not belong together")
    subject = Subject(
        contract=declared.contract,
        manifest=manifest,
        library=get(manifest.library.digest),
        operator=declared.operator,
        files=closure.files,
        sources={f.digest: get(f.digest) for f in closure.files},
    )
    return Packed(one, plan, subject)


def _torn(file: Path, why: str) -> TrustError:
    return TrustError(
        "the bundle is not one that tilegate wrote",
        where=str(file),
        why=why,
        next_step="tilegate evaluate --export, at home, and copy the file again",
    )


def evaluate_bundle(
    file: Path,
    out: Path,
    *,
    policy: JobPolicy = EVALUATE,
    return_bytes: int = RETURN_BYTES,
    timed: bool = True,
    sanitized: bool = False,
    progress: Progress = lambda *_: None,
) -> EvaluateReport:
    """Run everything in a bundle that this machine can run, and write the evidence.

    Args:
        file: the bundle.
        out: the evidence file.
        policy: of workers for processors; those for a GPU run at level `gpu`.
        return_bytes: of outputs that go with the evidence, in all. The smallest entries come first.
        timed: whether served workloads are timed too, on a GPU.
        sanitized: whether some entries run under compute-sanitizer too, on a GPU and without isolation.
        progress: (what, entries done, entries in all).

    Raises:
        TrustError: the bundle is not whole.
        UsageError: nothing in it can run here.
        ToolError: a job could not do its work, or a file cannot be read or written.
    """
    packed = open_bundle(file)
    places = Places([one.subject.manifest.target for one in packed], policy)
    where = {one.export.digest: places.for_target(one.subject.manifest.target) for one in packed}
    going = [(one, place) for one in packed if (place := where[one.export.digest]) is not None]
    if not going:
        raise UsageError(
            "nothing in the bundle can run here",
            where=str(file),
            why=f"it holds artifacts for {', '.join(sorted({str(p.subject.manifest.target) for p in packed}))}",
            next_step="evaluate it on a machine with such a device",
        )
    chosen = _chosen([one for one, _ in going], return_bytes)
    done = [
        _evaluate_one(one, place, chosen, progress, timed=timed, sanitized=sanitized) for one, place in going
    ]
    evidence = Evidence(returned=tuple(returned for returned, _ in done))
    write_parcel(out, evidence, (blob for _, blobs in done for blob in blobs))
    lines = [
        line_of(p.export.manifest, p.subject.manifest, None, None)
        for p in packed
        if where[p.export.digest] is None
    ]
    lines += [
        line_of(p.export.manifest, p.subject.manifest, r.evaluation.digest, p.plan, r.evaluation)
        for (p, _), (r, _) in zip(going, done, strict=True)
    ]
    isolation = dict.fromkeys(returned.evaluation.isolation for returned, _ in done)
    device = done[0][0].evaluation.device
    return EvaluateReport(device=device, lines=tuple(lines), isolation=tuple(isolation))


def _chosen(packed: Sequence[Packed], room: int) -> set[tuple[str, int]]:
    """Entries whose outputs go with the evidence, by export and number: the smallest, as many as there is room."""
    sizes = sorted(
        (sum(output_sizes(one.subject.contract, entry)), one.export.digest, index)
        for one in packed
        for index, entry in enumerate(one.plan.entries)
    )
    chosen: set[tuple[str, int]] = set()
    for size, digest, index in sizes:
        room -= size
        if room < 0:
            break
        chosen.add((digest, index))
    return chosen


@dataclass(slots=True)
class _Kept:
    """What goes with the evidence of one export."""

    export: str
    chosen: set[tuple[str, int]]
    ran: list[Ran] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)

    def observe(self, facts: Facts, outputs: Sequence[bytes]) -> None:
        self.ran.append(Ran(facts=facts, outputs=tuple(blob_of(data) for data in outputs)))
        if (self.export, facts.index) in self.chosen:
            self.blobs += outputs

    def find(self, evaluation: Evaluation, findings: Sequence[Finding]) -> Evaluation:
        """The evaluation with what the sanitizer found, in facts and verdicts alike."""
        self.ran = [structs.replace(one, facts=with_findings(one.facts, findings)) for one in self.ran]
        seen = {one.facts.index: judge_facts(one.facts) for one in self.ran}
        results = tuple(seen.get(result.index) or result for result in evaluation.results)
        return structs.replace(evaluation, results=results)


def _evaluate_one(
    one: Packed,
    place: Place,
    chosen: set[tuple[str, int]],
    progress: Progress,
    *,
    timed: bool,
    sanitized: bool,
) -> tuple[Returned, list[bytes]]:
    name, total = title(one.subject.manifest), len(one.plan.entries)
    kept = _Kept(one.export.digest, chosen)
    progress(name, 0, total)
    evaluation: Evaluation = evaluate(
        one.subject,
        one.plan,
        place.device,
        place.versions,
        policy=place.policy,
        progress=lambda done: progress(name, done, total),
        observe=kept.observe,
    )
    told, findings = sanitize(one.subject, one.plan, place.policy) if sanitized and place.on_gpu else ([], [])
    if findings:
        evaluation = kept.find(evaluation, findings)
    timings = time_served(one.subject, one.plan, evaluation, place.policy) if timed and place.on_gpu else ()
    returned = Returned(
        export=one.export.digest,
        evaluation=structs.replace(evaluation, vouch=Vouch.SELF_REPORTED),
        ran=tuple(kept.ran),
        timings=timings,
        sanitized=tuple(told),
    )
    return returned, kept.blobs
