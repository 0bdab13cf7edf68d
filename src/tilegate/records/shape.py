"""Shapes: the sets of points that evidence supports. One meaning of `admits`, for coverage and guard."""

from __future__ import annotations

from collections.abc import Mapping

from tilegate.records.canonical import Name, Record

INT32_MAX = 2**31 - 1
"""TileLang's host code narrows every extent to int32; beyond it a guard refuses."""


class Range(Record, frozen=True):
    """Extents `start <= n <= stop` with `n % step == 0`."""

    start: int
    stop: int
    step: int = 1

    def __contains__(self, extent: int) -> bool:
        return self.start <= extent <= self.stop and extent % self.step == 0

    def explain(self, axis: str) -> str:
        """`K % 32 == 0 and 32 <= K <= 512`, as a guard would be read aloud."""
        if self.start == self.stop:
            return f"{axis} == {self.start}"
        bounds = f"{self.start} <= {axis} <= {self.stop}"
        return f"{axis} % {self.step} == 0 and {bounds}" if self.step > 1 else bounds


class ShapeClass(Record, frozen=True):
    """A box of workloads that one artifact may serve.

    The coverage rule asks `admits` at promotion; the guard reads `row`, the same numbers in the order of
    the artifact's symbols, in C. That both agree on every point is a property in tests/test_guard.py.
    """

    axes: dict[Name, Range]
    """Range of every variable axis, in elements."""
    alignment_bytes: int
    """Every data pointer is a multiple of this."""
    max_elements: int = INT32_MAX
    """No tensor has more elements."""
    dense: bool = True
    """False: evidence holds for every stride that the contract allows."""
    exact: bool = False
    """True: a single workload that itself passed. False: inferred, at the density policy asks for."""

    def admits(self, extents: Mapping[str, int]) -> bool:
        return all(extents[axis] in span for axis, span in self.axes.items())

    def row(self, symbols: tuple[str, ...]) -> tuple[int, ...]:
        """The numbers the guard reads: alignment, element limit, dense, then start, stop, step of each symbol."""
        spans = [self.axes[symbol] for symbol in symbols]
        numbers = [n for span in spans for n in (span.start, span.stop, span.step)]
        return (self.alignment_bytes, self.max_elements, int(self.dense), *numbers)

    def __str__(self) -> str:
        return ", ".join(self.axes[axis].explain(axis) for axis in sorted(self.axes)) or "every call"
