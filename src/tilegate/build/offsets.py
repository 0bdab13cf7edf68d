"""The gate against offsets that 32 bits do not hold, read from lowered IR: literal ones, and computed ones.

TileLang folds constants in int32 and widens indices after that, so A[2, 2**30 - 1] of (3, 2**30) becomes
A[-1073741825]. What depends on an open extent is not decided here: the guard refuses extents beyond int32,
and a shape class holds no more elements than were evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilegate.build.failing import Diagnosed

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)

Span = tuple[int, int]
"""Least and greatest value, both reached or beyond what is reached: never too narrow."""


def offset_fault(functions: Iterable[Any]) -> Diagnosed | None:
    """The first offset that cannot be right in lowered functions, or None.

    1. A literal offset into a tensor is negative: it wrapped while it was folded.
    2. Sum, difference or product of 32 bits, of loop and block indices alone, leaves them.
    """
    for function in functions:
        found = _fault(function.body)
        if found is not None:
            return found
    return None


def _fault(body: Any) -> Diagnosed | None:
    from tvm.tirx import stmt_functor  # noqa: PLC0415 - only inside a job

    spans = spans_of(body)
    faults: list[Diagnosed] = []

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind in ("BufferLoad", "BufferStore") and str(node.buffer.scope()) == "global":
            literals = [int(i) for i in node.indices if type(i).__name__ == "IntImm"]
            if any(literal < 0 for literal in literals):  # (1)
                faults.append(Diagnosed("offset-wrapped"))
        elif kind in ("Add", "Sub", "Mul") and str(node.dtype) == "int32":  # (2)
            span = span_of(node, spans)
            if span is not None and (span[0] < INT32_MIN or span[1] > INT32_MAX):
                faults.append(Diagnosed("offset-int32"))

    stmt_functor.post_order_visit(body, visit)
    return faults[0] if faults else None


def spans_of(body: Any) -> dict[Any, Span]:
    """Values of loop, block and thread indices with constant extents."""
    from tvm.tirx import IntImm, stmt_functor  # noqa: PLC0415

    spans: dict[Any, Span] = {}

    def note(variable: Any, least: Any, extent: Any) -> None:
        if isinstance(least, IntImm) and isinstance(extent, IntImm) and int(extent) > 0:
            spans[variable] = (int(least), int(least) + int(extent) - 1)

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind == "For":
            note(node.loop_var, node.min, node.extent)
        elif kind == "AttrStmt" and node.attr_key == "thread_extent":
            note(node.node.var, IntImm("int32", 0), node.value)

    stmt_functor.post_order_visit(body, visit)
    return spans


def span_of(node: Any, spans: Mapping[Any, Span]) -> Span | None:
    """Interval of an integer expression in unlimited integers; None where it depends on anything else."""
    kind = type(node).__name__
    if kind == "IntImm":
        return int(node), int(node)
    if kind == "Var":
        return spans.get(node)
    if kind == "Cast":
        return span_of(node.value, spans)
    if kind not in _BINARY:
        return None
    left, right = span_of(node.a, spans), span_of(node.b, spans)
    return None if left is None or right is None else _BINARY[kind](left, right)


def _add(a: Span, b: Span) -> Span | None:
    return a[0] + b[0], a[1] + b[1]


def _sub(a: Span, b: Span) -> Span | None:
    return a[0] - b[1], a[1] - b[0]


def _mul(a: Span, b: Span) -> Span | None:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _floordiv(a: Span, b: Span) -> Span | None:
    if b[0] <= 0:
        return None
    quotients = [x // y for x in a for y in b]
    return min(quotients), max(quotients)


def _floormod(a: Span, b: Span) -> Span | None:
    if b[0] <= 0:
        return None
    return (a[0], a[1]) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def _min(a: Span, b: Span) -> Span | None:
    return min(a[0], b[0]), min(a[1], b[1])


def _max(a: Span, b: Span) -> Span | None:
    return max(a[0], b[0]), max(a[1], b[1])


_BINARY: Mapping[str, Callable[[Span, Span], Span | None]] = {
    "Add": _add, "Sub": _sub, "Mul": _mul, "FloorDiv": _floordiv, "FloorMod": _floormod,
    "Min": _min, "Max": _max,
}  # fmt: skip
