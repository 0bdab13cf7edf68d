"""The plan: every workload that an artifact must face, and why. Pure, given the nonce.

In this order, each entry once:

1. served shapes, as they are called;
2. residues: one axis at a time, every residue modulo its tile in every bucket of trip counts
   (`rules.points`), so that coverage may infer up to the largest extent that is served. The other axes hold
   two whole tiles: a kernel that loses the tail of one axis must still be able to pass on the others;
3. boundaries: 0, 1, one around the tile, primes, one below the largest that is served, and the corners;
4. value classes, data that is aligned to one element only, and views where they are allowed; on a GPU, other
   conditions than a plain call;
5. regressions: what ever failed is faced again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from tilegate.records.artifact import Elaboration, Manifest
from tilegate.records.contract import EPSILON, Contract, NonFinite, TensorSpec, ValueRange
from tilegate.records.plan import STRIDED, Condition, Entry, Layout, Origin, Plan, Values, Workload
from tilegate.records.policy import Density, Policy
from tilegate.records.shape import Range
from tilegate.rules.points import Axis, Point, axes_of, buckets, point_of, witnesses

MAX_ENTRIES = 4000
"""Of one plan, regressions apart, which are never left out. Residues are thinned to fit."""

MAX_SERVED = 2000
"""Served shapes that a plan names one by one, the first ones given; residues speak for the rest."""

MAX_SERVED_VIEWS = 16
"""Served shapes at which views are tried, the first ones given."""

MAX_CORNERS = 128

UNSERVED_TRIPS = 4
UNSERVED_EXTENT = 64
"""How far residues go on an axis of which no served extent is known: trips, and at least this extent."""

BASE_TRIPS = 2
"""Whole tiles of every axis that is not looked at: the least at which a loop runs and comes back."""

PRIMES = (7, 127)

FLOAT_VALUES = (Values.ZEROS, Values.NEGATIVE, Values.TINY, Values.HUGE, Values.MIXED)
INT_VALUES = (Values.ZEROS, Values.NEGATIVE, Values.EXTREMES)
NON_FINITE_VALUES = (Values.NAN, Values.INF)


def make_plan(
    contract: Contract,
    manifest: Manifest,
    manifest_digest: str,
    served: Sequence[Workload],
    regressions: Sequence[Entry],
    policy: Policy,
    nonce: str,
) -> Plan:
    """The plan of one artifact.

    Args:
        contract: of the operator.
        manifest: of the artifact. Its specialization is fixed in every workload; only its symbols vary.
        manifest_digest: named in the plan, and part of every seed.
        served: workloads that are known to be called, the most frequent first. Those of another
            specialization are left out.
        regressions: entries that failed before, of this artifact or of another for the same operator.
        policy: EXACT needs no residues, since nothing is inferred.
        nonce: random, drawn after the artifact was fixed.
    """
    elaboration = manifest.elaboration
    axes = axes_of(elaboration)
    known = _points(contract, elaboration, served)
    reach = [_reach(place, axis, known, policy) for place, axis in enumerate(axes)]
    base = tuple(BASE_TRIPS * axis.tile for axis in axes)
    shapes = _two_shapes(axes, base, known)
    others = [
        *_normal(known[:MAX_SERVED], Origin.SERVED),
        *_normal(_boundaries(axes, base, reach, known, policy), Origin.BOUNDARY),
        *_normal(shapes, Origin.BOUNDARY),
        *(
            _Row(point, Origin.VALUES, values=v)
            for point in shapes
            for v in value_classes(contract, elaboration)
        ),
        *(_Row(point, Origin.LAYOUT, Layout.OFFSET) for point in shapes),
        *_views(elaboration, (*known[:MAX_SERVED_VIEWS], *shapes)),
        *_conditions(manifest, shapes),
    ]
    split = min(len(known), MAX_SERVED)
    room = MAX_ENTRIES - len({row.faced for row in others})
    residues = () if policy.density is Density.EXACT else _residues(axes, base, reach, room)
    rows = [*others[:split], *_normal(residues, Origin.RESIDUE), *others[split:]]
    rows += _again(contract, manifest, regressions)
    return Plan(
        contract=contract.digest,
        manifest=manifest_digest,
        nonce=nonce,
        entries=tuple(_entries(contract, elaboration, rows)),
    )


class _Row(NamedTuple):
    point: Point
    origin: Origin
    layout: Layout = Layout.ALIGNED
    values: Values = Values.NORMAL
    condition: Condition = Condition.PLAIN

    @property
    def faced(self) -> tuple[Point, Layout, Values, Condition]:
        """What is tried; the origin only says why."""
        return (self.point, self.layout, self.values, self.condition)


def _normal(points: Iterable[Point], origin: Origin) -> Iterator[_Row]:
    return (_Row(point, origin) for point in points)


def _views(elaboration: Elaboration, points: Sequence[Point]) -> Iterator[_Row]:
    """(4) Strided inputs are views where they are served: every layout that only they can have."""
    if any(tensor.strided for tensor in elaboration.tensors):
        for layout in STRIDED:
            yield from (_Row(point, Origin.LAYOUT, layout) for point in points)


def conditions(manifest: Manifest) -> tuple[Condition, ...]:
    """(4) Calls of the host return when they are done: there is nothing that another call could run beside."""
    return (Condition.PLAIN,) if manifest.target.backend == "cpu" else tuple(Condition)


def _conditions(manifest: Manifest, points: Sequence[Point]) -> Iterator[_Row]:
    for condition in conditions(manifest):
        if condition is not Condition.PLAIN:
            yield from (_Row(point, Origin.CONDITION, condition=condition) for point in points)


def _entries(contract: Contract, elaboration: Elaboration, rows: Iterable[_Row]) -> Iterator[Entry]:
    """Each thing to be faced once, under its first origin."""
    fixed = elaboration.specialization
    seen: set[tuple[Point, Layout, Values, Condition]] = set()
    for row in rows:
        if row.faced not in seen:
            seen.add(row.faced)
            extents = {**fixed.axes, **dict(zip(elaboration.symbols, row.point, strict=True))}
            workload = Workload(
                axes={axis: extents[axis] for axis in contract.axes},
                dtypes=dict(fixed.dtypes),
                attributes=dict(fixed.attributes),
            )
            yield Entry(
                workload=workload,
                layout=row.layout,
                values=row.values,
                origin=row.origin,
                condition=row.condition,
            )


def _points(contract: Contract, elaboration: Elaboration, workloads: Iterable[Workload]) -> list[Point]:
    found = (point_of(contract, elaboration, workload) for workload in workloads)
    return list(dict.fromkeys(point for point in found if point is not None))


def _again(contract: Contract, manifest: Manifest, regressions: Iterable[Entry]) -> Iterator[_Row]:
    """(5) But for values that callers promise by now never to give: mending the contract is an answer too."""
    elaboration = manifest.elaboration
    promised = {Values.NORMAL, *value_classes(contract, elaboration)}
    for entry in regressions:
        point = point_of(contract, elaboration, entry.workload)
        if point is not None and entry.values in promised and entry.condition in conditions(manifest):
            yield _Row(point, Origin.REGRESSION, entry.layout, entry.values, entry.condition)


def _reach(place: int, axis: Axis, known: Sequence[Point], policy: Policy) -> int:
    """The largest extent that coverage may infer up to. The base point and enough passes lie below it."""
    if known:
        wanted = max(point[place] for point in known)
    else:
        wanted = max(UNSERVED_TRIPS * axis.tile, UNSERVED_EXTENT)
    return max(wanted, BASE_TRIPS * axis.tile, policy.min_passes)


def _residues(axes: Sequence[Axis], base: Point, reach: Sequence[int], room: int) -> list[Point]:
    """(2) Thinned where there is no room: the largest bucket is asked for multiples of a coarser step only.

    Coverage then infers multiples of that step. Of buckets of one size the uppermost is thinned first.
    """
    groups = [
        _Group(place, axis.tile, bucket, Range(start=low, stop=high))
        for place, axis in enumerate(axes)
        for bucket, low, high in buckets(Range(start=1, stop=reach[place]), axis.tile)
    ]
    while groups and sum(len(group.extents) for group in groups) > room:
        at = max(range(len(groups)), key=lambda i: (len(groups[i].extents), groups[i].bucket))
        thinner = groups[at].thinned()
        groups[at : at + 1] = [thinner] if thinner else []
    return [
        (*base[: group.place], extent, *base[group.place + 1 :])
        for group in groups
        for extent in group.extents
    ]


class _Group:
    """The extents of one axis in one bucket that a plan asks for."""

    def __init__(self, place: int, tile: int, bucket: int, span: Range) -> None:
        self.place, self.tile, self.bucket, self.span = place, tile, bucket, span
        last = span.stop - span.stop % span.step
        ends = [last] if last >= span.start else []
        self.extents = sorted({*witnesses(span, tile).values(), *ends})
        """The smallest of every residue, and the largest of all: without a tile, that is both parities."""

    def thinned(self) -> _Group | None:
        """Only multiples of the next coarser divisor of the tile, or None where the step is the tile."""
        step = self.span.step
        coarser = next((c for c in range(2 * step, self.tile + 1, step) if self.tile % c == 0), None)
        if coarser is None:
            return None
        span = Range(start=self.span.start, stop=self.span.stop, step=coarser)
        return _Group(self.place, self.tile, self.bucket, span)


def _boundaries(
    axes: Sequence[Axis], base: Point, reach: Sequence[int], known: Sequence[Point], policy: Policy
) -> Iterator[Point]:
    """(3) One axis at a time, then corners of all; never beyond what residues reach."""
    for place, axis in enumerate(axes):
        tile = axis.tile
        extents = {0, 1, tile - 1, tile, tile + 1, *PRIMES, *range(1, policy.min_passes + 1)}
        if known:
            extents.add(max(point[place] for point in known) - 1)
        for extent in sorted(extents):
            if 0 <= extent <= reach[place]:
                yield (*base[:place], extent, *base[place + 1 :])
    corners = list(product(*(sorted({1, axis.tile, axis.tile + 1}) for axis in axes)))
    stride = -(-len(corners) // MAX_CORNERS)
    yield from corners[::stride]


def _two_shapes(axes: Sequence[Axis], base: Point, known: Sequence[Point]) -> list[Point]:
    """The base point, and the served shape with the most tails (or one that has all of them)."""
    if not axes:
        return [base]
    ragged = tuple(axis.tile + 1 for axis in axes)

    def tails(point: Point) -> int:
        return sum(extent % axis.tile != 0 for extent, axis in zip(point, axes, strict=True))

    others = [point for point in known if point != base and all(point)]
    return [base, max(others, key=tails, default=ragged)]


def value_classes(contract: Contract, elaboration: Elaboration) -> tuple[Values, ...]:
    """(4) The value classes, NORMAL apart, that some input can hold, by dtype and by declared range."""
    possible: set[Values] = set()
    for tensor in contract.inputs:
        dtype = contract.dtype_of(tensor, elaboration.specialization.dtypes)
        possible |= _possible(contract, tensor, dtype)
    return tuple(values for values in Values if values in possible)


def _possible(contract: Contract, tensor: TensorSpec, dtype: str) -> set[Values]:
    declared: ValueRange | None = contract.values.get(tensor.name)
    if dtype == "bool":
        return set()
    possible = set(FLOAT_VALUES if dtype in EPSILON else INT_VALUES)
    if dtype.startswith("uint"):
        possible.discard(Values.NEGATIVE)
    if declared is not None:
        if not declared.low <= 0 <= declared.high:
            possible.discard(Values.ZEROS)
        if declared.low >= 0:
            possible.discard(Values.NEGATIVE)
    elif dtype in EPSILON and contract.non_finite is NonFinite.PROPAGATED:
        possible.update(NON_FINITE_VALUES)
    return possible
