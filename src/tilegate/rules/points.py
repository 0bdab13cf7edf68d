"""Points of one artifact, and what evidence must hold before a range of extents may be inferred.

A tail hides where an extent is no multiple of a tile, and a pipeline's fault where the number of trips
around a loop is small or just past a power of two. So density asks, per axis, for every residue modulo the
tile in every power-of-two bucket of trip counts: 0, 1, 2-3, 4-7, 8-15, ...
Plans test those points and coverage asks for them: both call `witnesses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from tilegate.records.artifact import Elaboration
from tilegate.records.canonical import Name, Record
from tilegate.records.contract import Contract
from tilegate.records.plan import Workload
from tilegate.records.shape import Range

Point = tuple[int, ...]
"""The extents of the artifact's symbols, in their order."""


class Axis(Record, frozen=True):
    """One variable axis of an artifact."""

    name: Name
    tile: int
    """The largest divisor that the IR applies to it; 1 where there is none."""
    steps: tuple[int, ...]
    """What a guard may ask it to be a multiple of: every divisor of every tile, ascending."""


def axes_of(elaboration: Elaboration) -> tuple[Axis, ...]:
    """The variable axes, in the order of the artifact's symbols."""
    return tuple(_axis(symbol, elaboration.tiles.get(symbol, ())) for symbol in elaboration.symbols)


def _axis(name: str, tiles: tuple[int, ...]) -> Axis:
    real = [tile for tile in tiles if tile > 1]
    steps = {1} | {step for tile in real for step in range(2, tile + 1) if tile % step == 0}
    return Axis(name=name, tile=max(real, default=1), steps=tuple(sorted(steps)))


def point_of(contract: Contract, elaboration: Elaboration, workload: Workload) -> Point | None:
    """Where a workload lies in an artifact's space, or None where the artifact is not for it.

    A dtype or a fixed extent that the workload leaves open fits; an attribute that it leaves open has its
    default. An extent of a variable axis must be given.
    """
    fixed = elaboration.specialization
    if any(workload.axes.get(axis, extent) != extent for axis, extent in fixed.axes.items()):
        return None
    if any(workload.dtypes.get(name, dtype) != dtype for name, dtype in fixed.dtypes.items()):
        return None
    for attribute in contract.choices:
        built = fixed.attributes.get(attribute.name, attribute.default)
        asked = workload.attributes.get(attribute.name, attribute.default)
        if asked is not None and asked != built:
            return None
    extents = tuple(workload.axes.get(symbol, -1) for symbol in elaboration.symbols)
    return extents if all(extent >= 0 for extent in extents) else None


def bucket_of(extent: int, tile: int) -> int:
    """Number of the trip-count bucket: 0 for no trip, 1 for one, 2 for 2-3, 3 for 4-7, ..."""
    return (-(-extent // tile)).bit_length()


def buckets(span: Range, tile: int) -> Iterator[tuple[int, int, int]]:
    """Every bucket that the span touches: its number, and the span's bounds within it."""
    for bucket in range(bucket_of(span.start, tile), bucket_of(span.stop, tile) + 1):
        first = ((1 << bucket >> 1) - 1) * tile + 1 if bucket else 0
        last = ((1 << bucket) - 1) * tile
        yield bucket, max(first, span.start), min(last, span.stop)


def witnesses(span: Range, tile: int) -> dict[tuple[int, int], int]:
    """What density demands of a span: its smallest extent for each (bucket, residue) that occurs in it."""
    found: dict[tuple[int, int], int] = {}
    per_bucket = tile // gcd(tile, span.step)
    for bucket, first, last in buckets(span, tile):
        extents = range(first + -first % span.step, last + 1, span.step)
        found.update(((bucket, extent % tile), extent) for extent in extents[:per_bucket])
    return found


def holes(span: Range, tile: int, passed: Iterable[int]) -> list[tuple[int, int]]:
    """Where density fails: in each bucket, from the first extent whose residue never passed there to its end."""
    evidence = {(bucket_of(extent, tile), extent % tile) for extent in passed}
    first: dict[int, int] = {}
    for (bucket, residue), extent in witnesses(span, tile).items():
        if (bucket, residue) not in evidence:
            first[bucket] = min(extent, first.get(bucket, extent))
    return [(first[bucket], last) for bucket, _, last in buckets(span, tile) if bucket in first]
