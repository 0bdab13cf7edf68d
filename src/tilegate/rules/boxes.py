"""Boxes: the widest claims that passing points support and no failing point contradicts.

How a box is found, in the order in which a person would:

1. Steps. Of all combinations of steps (divisors of the tiles), the one whose boxes keep the most passing
   points wins; on ties fewer boxes, then smaller steps.
2. Cuts. While a failure is inside, a bound is moved past a failing extent: there where the fewest passing
   points are lost for each failure that leaves.
3. Density. Where a residue lacks evidence (`points.holes`), the range is narrowed to the run of extents
   between such holes that keeps the most passing points.
4. The largest box is taken, and what lies around it is searched again, with whatever steps are best there.
   Regions never overlap, so boxes are disjoint.

Laws: a box holds no failing point, at least `min_passes` passing ones, and no hole on any axis.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, product
from math import prod
from operator import or_
from typing import NamedTuple

from tilegate.records.shape import INT32_MAX, Range
from tilegate.rules.points import Axis, Point, holes

MAX_BOXES = 16
"""A guard walks its boxes one by one; more of them are a kernel to mend, not a guard to grow."""

MAX_CUTS = 1024
"""Failures that need more have no pattern. About a second of work; a count, so that all machines agree."""

Bounds = tuple[int, int]
Region = tuple[Bounds, ...]
Box = tuple[Range, ...]
"""One range per axis."""


def find_boxes(
    passing: Iterable[Point], failing: Iterable[Point], axes: Sequence[Axis], min_passes: int
) -> tuple[Box, ...]:
    """Disjoint boxes over the passing points; see the laws above.

    Args:
        passing: points that passed and never failed.
        failing: points that failed at least once.
        axes: one for each place of a point; at least one.
        min_passes: passing points below which a box is not claimed.

    Returns:
        At most MAX_BOXES, or none where nothing can be claimed.
    """
    search = _Search(sorted(set(passing)), sorted(set(failing)), axes, max(1, min_passes))
    everything: Region = ((0, INT32_MAX),) * len(axes)
    claims = _largest_first(everything, search.best_claim)
    return tuple(search.box(claim) for claim in claims)


class _Claim(NamedTuple):
    """A region that may be claimed with these steps, and how many passing points it keeps."""

    kept: int
    region: Region
    steps: tuple[int, ...]


def _largest_first(region: Region, find: Callable[[Region], _Claim | None]) -> list[_Claim]:
    """(4) The largest claim in a region, then the largest around it, and so on; MAX_BOXES at most."""
    claims: list[_Claim] = []
    pending: list[tuple[_Claim, Region]] = []
    parts = [region]
    while len(claims) < MAX_BOXES:
        pending += [(claim, part) for part in parts if (claim := find(part)) is not None]
        if not pending:
            break
        pending.sort()
        claim, around = pending.pop()
        claims.append(claim)
        parts = list(_around(around, claim.region))
    return claims


class _Index:
    """Numbered points. A set of them is an int whose bit i is point i: thousands of them cost microseconds."""

    def __init__(self, points: Sequence[Point], axes: Sequence[Axis]) -> None:
        self.at: list[dict[int, int]] = [{} for _ in axes]
        for number, point in enumerate(points):
            for at, extent in zip(self.at, point, strict=True):
                at[extent] = at.get(extent, 0) | 1 << number
        self.extents = [sorted(at) for at in self.at]
        self._below = [
            list(accumulate((at[extent] for extent in extents), or_, initial=0))
            for at, extents in zip(self.at, self.extents, strict=True)
        ]
        self._multiples = [
            {step: _multiples(at, step) for step in axis.steps}
            for at, axis in zip(self.at, axes, strict=True)
        ]

    def between(self, dim: int, bounds: Bounds) -> int:
        """The points whose extent on one axis lies within the bounds."""
        extents, below = self.extents[dim], self._below[dim]
        return below[bisect_right(extents, bounds[1])] & ~below[bisect_left(extents, bounds[0])]

    def inside(self, region: Region, steps: tuple[int, ...]) -> int:
        chosen = -1
        for dim, (bounds, step) in enumerate(zip(region, steps, strict=True)):
            chosen &= self.between(dim, bounds) & self._multiples[dim][step]
        return chosen

    def split(self, dim: int, extent: int, chosen: int) -> tuple[int, int]:
        """How many of the chosen points lie below an extent, and how many at it."""
        below = self._below[dim][bisect_left(self.extents[dim], extent)]
        return (chosen & below).bit_count(), (chosen & self.at[dim].get(extent, 0)).bit_count()

    def present(self, dim: int, bounds: Bounds, chosen: int) -> list[int]:
        """The extents within the bounds that some chosen point has on one axis, ascending."""
        at, extents = self.at[dim], self.extents[dim]
        within = extents[bisect_left(extents, bounds[0]) : bisect_right(extents, bounds[1])]
        return [extent for extent in within if at[extent] & chosen]

    def ends(self, dim: int, chosen: int) -> Bounds:
        """The smallest and the largest extent of the chosen points, of which there is one at least."""
        extents, below = self.extents[dim], self._below[dim]
        first = bisect_left(below, 1, key=lambda points: bool(points & chosen)) - 1
        last = bisect_left(below, 1, key=lambda points: chosen & ~points == 0) - 1
        return extents[first], extents[last]


def _multiples(at: dict[int, int], step: int) -> int:
    chosen = 0
    for extent, points in at.items():
        if extent % step == 0:
            chosen |= points
    return chosen


class _Search:
    def __init__(
        self, passing: Sequence[Point], failing: Sequence[Point], axes: Sequence[Axis], min_passes: int
    ) -> None:
        self.axes = axes
        self.min_passes = min_passes
        self.cuts = 0
        self.passing = _Index(passing, axes)
        self.failing = _Index(failing, axes)

    def box(self, claim: _Claim) -> Box:
        spans = zip(claim.region, claim.steps, strict=True)
        return tuple(
            Range(start=start, stop=stop, step=step if start < stop else 1) for (start, stop), step in spans
        )

    def best_claim(self, region: Region) -> _Claim | None:
        """(1) The largest claim with the steps whose claims together keep the most of a region."""
        best: list[_Claim] = []
        best_rank = (0, 0, 0)
        for at_most, steps in self._candidates(region):
            if at_most < best_rank[0]:
                break
            claims = _largest_first(region, partial(self._widest, steps=steps))
            rank = (sum(claim.kept for claim in claims), -len(claims), -prod(steps))
            if claims and rank > best_rank:
                best, best_rank = claims, rank
        return best[0] if best else None

    def _candidates(self, region: Region) -> list[tuple[int, tuple[int, ...]]]:
        """Steps worth a try, the most promising first, each with the passing points that obey it.

        Of steps that keep the same points, those with more failures left inside cannot do better.
        """
        fewest: dict[int, int] = {}
        tried: list[tuple[int, int, tuple[int, ...]]] = []
        for steps in product(*(axis.steps for axis in self.axes)):
            good = self.passing.inside(region, steps)
            if good.bit_count() >= self.min_passes:
                bad = self.failing.inside(region, steps).bit_count()
                fewest[good] = min(bad, fewest.get(good, bad))
                tried.append((good, bad, steps))
        kept = [(good.bit_count(), bad, steps) for good, bad, steps in tried if bad == fewest[good]]
        kept.sort(key=lambda item: (-item[0], item[1], prod(item[2]), item[2]))
        return [(count, steps) for count, _, steps in kept]

    def _widest(self, region: Region, steps: tuple[int, ...]) -> _Claim | None:
        """One box in a region, or None where too few points are left of it."""
        while (good := self.passing.inside(region, steps)).bit_count() >= self.min_passes:
            region = self._hull(good)
            bad = self.failing.inside(region, steps)
            if bad and self.cuts == MAX_CUTS:
                return None
            smaller = self._cut(region, good, bad) if bad else self._narrowed(region, steps, good)
            if smaller is None:
                return _Claim(good.bit_count(), region, steps)
            region = smaller
        return None

    def _hull(self, good: int) -> Region:
        return tuple(self.passing.ends(dim, good) for dim in range(len(self.axes)))

    def _cut(self, region: Region, good: int, bad: int) -> Region:
        """(2) The region without the side of one failing extent, that extent included."""
        self.cuts += 1
        passes, failures = good.bit_count(), bad.bit_count()
        best: tuple[float, int, Region] | None = None
        for dim, (start, stop) in enumerate(region):
            for extent in self.failing.present(dim, (start, stop), bad):
                lower, here = self.passing.split(dim, extent, good)
                lower_bad, here_bad = self.failing.split(dim, extent, bad)
                below = (passes - lower, failures - lower_bad, (start, extent - 1))
                above = (lower + here, lower_bad + here_bad, (extent + 1, stop))
                for lost, gone, kept in (below, above):
                    if best is None or (lost / gone, -gone) < best[:2]:
                        best = (lost / gone, -gone, _replaced(region, dim, kept))
        assert best is not None  # `bad` holds a point
        return best[2]

    def _narrowed(self, region: Region, steps: tuple[int, ...], good: int) -> Region | None:
        """(3) The region without the holes of one axis, or None where no axis has any."""
        for dim, (start, stop) in enumerate(region):
            span = Range(start=start, stop=stop, step=steps[dim])
            gaps = holes(span, self.axes[dim].tile, self.passing.present(dim, (start, stop), good))
            if gaps:
                edges = [start - 1, *chain.from_iterable(gaps), stop + 1]
                runs = [(low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True)]
                kept = [(good & self.passing.between(dim, run)).bit_count() for run in runs]
                return _replaced(region, dim, runs[kept.index(max(kept))])
        return None


def _replaced(region: Region, dim: int, bounds: Bounds) -> Region:
    return (*region[:dim], bounds, *region[dim + 1 :])


def _around(region: Region, hull: Region) -> Iterator[Region]:
    """Disjoint regions that make up the region without the hull."""
    for dim, ((low, high), (start, stop)) in enumerate(zip(region, hull, strict=True)):
        if low < start:
            yield _replaced(region, dim, (low, start - 1))
        if stop < high:
            yield _replaced(region, dim, (stop + 1, high))
        region = _replaced(region, dim, (start, stop))
