"""From evaluations to shape classes: what a guard may promise.

Laws (proved in tests/test_coverage.py):

1. No recorded failure is ever admitted: a point fails if any entry there, in any evaluation ever recorded
   for the artifact, did not pass. What never ran has not passed; UNSUPPORTED counts neither way.
2. Evidence only accumulates. Further passes at the same entries never un-fail a point, and failures never
   widen: no class can be claimed with them that could not be claimed without, alignment never falls, and a
   kernel that was rejected for its values, or because nothing passed, stays rejected. (A box may still be
   chosen with failures that was passed over without: K % 32 == 0 reaches further than the box before it.)
3. Classes are disjoint.
4. A class is one workload that itself passed, or a box without failures that holds policy's density.

What this finds are honest faults. It does not stop a malicious author; review does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tilegate.records.artifact import Manifest
from tilegate.records.canonical import Record
from tilegate.records.contract import DTYPES, Contract
from tilegate.records.evaluation import Evaluation
from tilegate.records.plan import STRIDED, Condition, Layout, Plan, Values
from tilegate.records.policy import Density, Policy
from tilegate.records.shape import INT32_MAX, Range, ShapeClass
from tilegate.records.verdict import Reason
from tilegate.rules.boxes import Box, find_boxes
from tilegate.rules.evidence import Evidence, stands_for_shape
from tilegate.rules.points import Point, axes_of

ALIGNED_BYTES = 64
"""Alignment of Layout.ALIGNED, and of what torch allocates."""

FEW = "other shapes were too few to infer from"

VALUE_WORDS: dict[Values, str] = {
    Values.NEGATIVE: "negative values",
    Values.TINY: "tiny values",
    Values.HUGE: "huge values",
    Values.MIXED: "mixed magnitudes",
    Values.NAN: "NaN",
    Values.INF: "infinity",
}

CONDITION_WORDS: dict[Condition, str] = {
    Condition.SIDE_STREAM: "on a stream of its own",
    Condition.BUSY: "beside another kernel",
    Condition.GRAPH: "captured in a graph",
}


class Coverage(Record, frozen=True):
    """What one artifact may serve, or why nothing."""

    classes: tuple[ShapeClass, ...] = ()
    """Disjoint. Empty exactly where `rejected` is not."""
    rejected: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    """One line each, for people: what the classes leave out, and why."""


def cover(
    contract: Contract, manifest: Manifest, evidence: Sequence[tuple[Plan, Evaluation]], policy: Policy
) -> Coverage:
    """The shape classes that evidence supports.

    1. Only evaluations that belong to the artifact and the contract are read.
    2. Values cannot be guarded: where a shape passed with normal values and failed with others, the whole
       kernel is rejected. Where normal values never passed, it is the shape that fails. Nor can what goes on
       around a call: a shape that passed plainly and failed on another stream or in a graph rejects likewise.
    3. Layouts can: once offset data failed, only aligned data is served; once a view did, only dense data.
    4. Every other failure fails its shape, whatever the verdict.
    5. Boxes, where policy infers; what was served and passed outside of them becomes an exact class.

    Args:
        contract: the operator's, as it is now.
        manifest: the artifact's.
        evidence: every evaluation ever recorded for the artifact, each with its plan, on whatever device.
        policy: density and the least number of passes of a box.

    Returns:
        Classes, or at least one reason: VALUE_DEPENDENT, CONDITION_DEPENDENT, NOTHING_PASSED or NO_CLASS.
    """
    known = Evidence.gather(contract, manifest, evidence)  # (1)
    symbols = manifest.symbols
    if not known.passed:
        return Coverage(rejected=(_nothing_passed(known),))
    if known.value_faults or known.condition_faults:  # (2)
        reasons = (*_value_dependent(known, symbols), *_condition_dependent(known, symbols))
        return Coverage(rejected=reasons)
    layout = _Layouts(_alignment(manifest, known), _dense(manifest, known))  # (3)
    passing = {point for point in known.passed - known.failed if max(point, default=0) <= INT32_MAX}  # (4)
    boxes = _boxes(manifest, known, passing, policy)  # (5)
    every = policy.density is Density.EXACT or not symbols
    alone = _outside(passing if every else passing & known.served, boxes)
    classes = (
        *(_class(symbols, box, layout) for box in boxes),
        *(_exact(symbols, point, layout) for point in alone),
    )
    notes = (*_notes_on_limits(known, symbols, boxes), *_notes_on_rest(known, passing, boxes, alone))
    if not classes:
        return Coverage(rejected=(_no_class(known, passing, policy),), notes=notes)
    return Coverage(classes=classes, notes=notes)


def _alignment(manifest: Manifest, known: Evidence) -> int:
    """(3) One element of the widest dtype where offset data passed throughout, in bytes."""
    if not known.held(Layout.OFFSET):
        return ALIGNED_BYTES
    sizes = (DTYPES.get(tensor.dtype, ALIGNED_BYTES) for tensor in manifest.elaboration.tensors)
    return max(sizes, default=ALIGNED_BYTES)


def _boxes(manifest: Manifest, known: Evidence, passing: set[Point], policy: Policy) -> tuple[Box, ...]:
    axes = axes_of(manifest.elaboration)
    if not axes or policy.density is Density.EXACT:
        return ()
    return find_boxes(passing, known.failed, axes, policy.min_passes)


def _dense(manifest: Manifest, known: Evidence) -> bool:
    """(3) False where some input may be a view and every kind of view passed throughout."""
    return not (any(t.strided for t in manifest.elaboration.tensors) and known.held(*STRIDED))


class _Layouts(NamedTuple):
    alignment_bytes: int
    dense: bool


def _class(symbols: tuple[str, ...], box: Box, layout: _Layouts) -> ShapeClass:
    axes = dict(zip(symbols, box, strict=True))
    return ShapeClass(axes=axes, alignment_bytes=layout.alignment_bytes, dense=layout.dense)


def _exact(symbols: tuple[str, ...], point: Point, layout: _Layouts) -> ShapeClass:
    axes = {symbol: Range(start=extent, stop=extent) for symbol, extent in zip(symbols, point, strict=True)}
    return ShapeClass(axes=axes, alignment_bytes=layout.alignment_bytes, dense=layout.dense, exact=True)


def _inside(point: Point, box: Box) -> bool:
    return all(extent in span for extent, span in zip(point, box, strict=True))


def _outside(points: Iterable[Point], boxes: Sequence[Box]) -> list[Point]:
    return sorted(point for point in points if not any(_inside(point, box) for box in boxes))


def _value_dependent(known: Evidence, symbols: tuple[str, ...]) -> Iterator[Reason]:
    """(2) One reason for each value class that fails where normal values passed, at its smallest shape."""
    told: set[Values] = set()
    for point, entry, verdict in sorted(known.value_faults, key=lambda fault: (fault[0], fault[2].name)):
        if entry.values not in told:
            told.add(entry.values)
            extents = ", ".join(f"{symbol}={n}" for symbol, n in zip(symbols, point, strict=True))
            where = extents or str(entry.workload) or "the only shape"
            words = VALUE_WORDS.get(entry.values, entry.values.value)
            yield Reason(
                code="VALUE_DEPENDENT",
                message=f"{where} with {words} is {verdict.name} while normal values passed; no guard sees values",
                next_step="mend the kernel, or declare what callers promise (values=, non_finite=); "
                "then tilegate build && tilegate evaluate",
            )


def _condition_dependent(known: Evidence, symbols: tuple[str, ...]) -> Iterator[Reason]:
    """(2) One reason for each condition, at its smallest shape."""
    told: set[Condition] = set()
    for point, entry, verdict in sorted(known.condition_faults, key=lambda fault: (fault[0], fault[2].name)):
        if entry.condition not in told:
            told.add(entry.condition)
            extents = ", ".join(f"{symbol}={n}" for symbol, n in zip(symbols, point, strict=True))
            where = extents or str(entry.workload) or "the only shape"
            yield Reason(
                code="CONDITION_DEPENDENT",
                message=f"{where} {CONDITION_WORDS[entry.condition]} is {verdict.name} while a plain call passed; "
                "no guard sees what goes on around a call",
                next_step="mend the kernel; then tilegate build && tilegate evaluate",
            )


def _nothing_passed(known: Evidence) -> Reason:
    counts = Counter(verdict.name for _, entry, verdict in known.faults if stands_for_shape(entry))
    if not counts:
        return Reason(
            code="NOTHING_PASSED",
            message=f"no shape was evaluated: {known.missing} of {known.entries} plan entries are missing",
            next_step="tilegate evaluate",
        )
    verdict, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return Reason(
        code="NOTHING_PASSED",
        message=f"no shape passed: {count} of {counts.total()} are {verdict}",
        next_step="compare the kernel with its reference at one small shape, then build and evaluate again",
    )


def _no_class(known: Evidence, passing: set[Point], policy: Policy) -> Reason:
    asked = f"{policy.min_passes} passes, and every residue of the tile in every bucket of trip counts"
    return Reason(
        code="NO_CLASS",
        message=f"{len(passing)} of {len(known.passed | known.failed)} shapes passed, but none of them is "
        f"served, and they are too few to infer a range: policy asks for {asked}",
        next_step="declare the shapes that matter (served=), or mend those that failed; "
        "then tilegate build && tilegate evaluate",
    )


def _notes_on_limits(known: Evidence, symbols: tuple[str, ...], boxes: Sequence[Box]) -> Iterator[str]:
    """What each step and each bound keeps out."""
    told: set[str] = set()
    for box in boxes:
        for place, (symbol, span) in enumerate(zip(symbols, box, strict=True)):
            for note in (_note_on_step(known, place, symbol, span), _note_on_stop(known, place, symbol, box)):
                if note and note not in told:
                    told.add(note)
                    yield note


def _note_on_step(known: Evidence, place: int, symbol: str, span: Range) -> str:
    others = {point for point in known.passed | known.failed if point[place] % span.step}
    if not others:
        return ""
    failed = len(others & known.failed)
    why = f"{failed} of {len(others)} shapes failed otherwise" if failed else FEW
    return f"{symbol} % {span.step} == 0: {why}"


def _note_on_stop(known: Evidence, place: int, symbol: str, box: Box) -> str:
    span = box[place]
    beyond = [
        point[place]
        for point in known.failed
        if point[place] > span.stop
        and point[place] % span.step == 0
        and _inside((*point[:place], span.stop, *point[place + 1 :]), box)
    ]
    if not beyond:
        return ""
    return f"{symbol} <= {span.stop}: {len(beyond)} shapes beyond it failed, the first at {min(beyond)}"


def _notes_on_rest(
    known: Evidence, passing: set[Point], boxes: Sequence[Box], alone: Sequence[Point]
) -> Iterator[str]:
    left = len(_outside(passing, boxes)) - len(alone)
    if boxes and alone:
        yield f"{len(alone)} served shapes passed outside every box: each is a class of its own"
    if left:
        yield f"{left} shapes passed but are in no class: too few to infer from, and not served"
    offset, views = known.faults_of(Layout.OFFSET), known.faults_of(*STRIDED)
    if offset:
        yield f"data aligned to {ALIGNED_BYTES} bytes: {offset} results with offset data failed"
    if views:
        yield f"dense data: {views} results with strided views failed"
    if known.missing:
        yield f"{known.missing} of {known.entries} plan entries are missing"
