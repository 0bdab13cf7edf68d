"""What would answer a call, decided from records alone: no tensor, no library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilegate.records.artifact import Manifest
from tilegate.records.miss import Miss, MissReason
from tilegate.records.plan import Workload
from tilegate.records.release import Candidate


@dataclass(frozen=True, slots=True)
class Answer:
    """Who answers a workload: a candidate with the class it lies in, or the reference with the nearest miss."""

    candidate: Candidate | None
    shape_class: str = ""
    miss: Miss | None = None


def answer(candidates: Sequence[tuple[Candidate, Manifest]], workload: Workload) -> Answer:
    """The first candidate whose specialization and shape classes hold the workload.

    1. No candidate: the operator is not in the release.
    2. What an artifact fixed (dtypes, attributes, extents) must be equal.
    3. One of its classes must admit the extents.
    The reason told is that of the candidate that came furthest.
    """
    if not candidates:  # (1)
        return Answer(None, miss=Miss(reason=MissReason.NOT_IN_RELEASE))
    furthest = Miss(reason=MissReason.SPECIALIZATION)
    for candidate, manifest in candidates:
        spec = manifest.elaboration.specialization
        different = [
            name
            for fixed, given in (
                (spec.dtypes, workload.dtypes),
                (spec.attributes, workload.attributes),
                (spec.axes, workload.axes),
            )
            for name, value in fixed.items()
            if given.get(name) != value
        ]
        if different:  # (2)
            if furthest.reason is MissReason.SPECIALIZATION:
                furthest = Miss(reason=MissReason.SPECIALIZATION, detail=", ".join(different))
            continue
        for shape_class in candidate.classes:  # (3)
            if shape_class.admits(workload.axes):
                return Answer(candidate, shape_class=str(shape_class))
        extents = ", ".join(f"{axis}={workload.axes[axis]}" for axis in manifest.symbols)
        furthest = Miss(reason=MissReason.SHAPE_CLASS, detail=extents)
    return Answer(None, miss=furthest)
