"""Around the call site: what happens on a miss, and how a person asks what would happen."""

from __future__ import annotations

import inspect
import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from tilegate.library import Rows
from tilegate.records.contract import Contract
from tilegate.records.miss import GUARD_CODES, Miss, MissReason
from tilegate.records.shape import ShapeClass
from tilegate.runtime.callsite import REFUSALS, Refusal, fixed
from tilegate.runtime.compiled import Answer, compile_site
from tilegate.runtime.counting import reading
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.load import Loaded, layers
from tilegate.runtime.strict import guard_miss


class Site:
    """One operator, attached to what a table loaded for it."""

    def __init__(
        self, contract: Contract, reference: Callable[..., Any], loaded: tuple[Loaded, ...], *, strict: bool
    ) -> None:
        self._contract = contract
        self._reference = reference
        self._signature = inspect.signature(reference)
        self._loaded = loaded
        self._strict = strict
        self._lock = threading.Lock()
        self._counts: dict[Refusal, itertools.count[int]] = {}
        self._first: dict[Refusal, Miss] = {}
        self._answer = Answer(self._miss)
        answer: Answer | Callable[..., Any] = self._answer
        for layer in reversed(layers(loaded)):
            answer = compile_site(contract, reference, layer, answer)
        self.call = cast("Callable[..., Any]", answer)

    def hits(self) -> dict[str, int]:
        """Calls that each artifact served, by manifest digest."""
        return {one.candidate.manifest.digest: sum(one.rows.hits()) for one in self._loaded}

    def misses(self) -> dict[Miss, int]:
        """Calls that the reference answered, by reason; a detail is that of the first such call."""
        with self._lock:
            told = [(self._first[key], reading(count)) for key, count in self._counts.items()]
        return {miss: sum(n for other, n in told if other == miss) for miss, _ in told}

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Run the real guard on these arguments. Nothing is launched, counted or written.

        What the generated host code would refuse behind the guard is not seen: only a call can tell.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        misses: dict[Miss, None] = {}
        for one in self._loaded:
            miss = self._probe(one, bound.arguments)
            found = self._admitting(one, bound.arguments) if miss.reason is MissReason.ELEMENTS else None
            if found is not None:
                return self._served(one, found, tuple(misses))
            misses[miss] = None
        return Explanation(operator=self._contract.name, kernel=None, misses=tuple(misses))

    def _probe(self, one: Loaded, values: Mapping[str, Any]) -> Miss:
        """Ask the guard of one artifact with rows that allow no element: whatever it admits is ELEMENTS."""
        told = [Miss(reason=MissReason.TRACING)]

        def note(refusal: Refusal, arguments: tuple[Any, ...]) -> None:
            told.append(self._tell(refusal, self._named(arguments)))

        closed = [msgspec.structs.replace(c, max_elements=-1) for c in one.candidate.classes]
        trial = Loaded(one.candidate, one.manifest, one.library, Rows(closed, one.manifest.symbols))
        compile_site(self._contract, self._reference, (trial,), Answer(note))(**values)
        return told[-1]

    def _admitting(self, one: Loaded, values: Mapping[str, Any]) -> ShapeClass | None:
        """The class of a call that lies in one, unless a tensor has more elements than it allows."""
        choices = _choices(self._contract, values)
        given = {t.name: values[t.name] for t in self._contract.inputs_given(choices)}
        axes = _extents(self._contract, {name: tensor.shape for name, tensor in given.items()})
        dims = [
            [d if isinstance(d, int) else axes[d] for d in t.dims]
            for t in self._contract.arguments_given(choices)
        ]
        elements = max(*(math.prod(extents) for extents in dims), *map(_span, given.values()))
        return next((c for c in one.candidate.classes if c.admits(axes) and elements <= c.max_elements), None)

    def _served(self, one: Loaded, found: ShapeClass, misses: tuple[Miss, ...]) -> Explanation:
        return Explanation(
            operator=self._contract.name,
            kernel=one.candidate.kernel,
            target=str(one.candidate.target),
            manifest=one.candidate.manifest.digest,
            shape_class=str(found),
            misses=misses,
        )

    def _miss(self, refusal: Refusal, arguments: tuple[Any, ...]) -> Any:
        """The first call of a kind is put into words. The call site counts those that follow by itself, unless
        the operator is strict, where each is told.
        """
        with self._lock:
            if refusal not in self._counts:
                self._enter(refusal, self._tell(refusal, self._named(arguments)))
            next(self._counts[refusal])
        if self._strict:
            raise guard_miss(self._contract.name, self._tell(refusal, self._named(arguments)))
        call = inspect.BoundArguments(self._signature, OrderedDict(self._named(arguments)))
        return self._reference(*call.args, **call.kwargs)

    def _enter(self, refusal: Refusal, miss: Miss) -> None:
        self._first[refusal] = miss
        self._counts[refusal] = count = itertools.count()
        if not self._strict:
            self._answer.counted[refusal] = count.__next__
        if miss.reason is MissReason.EXTENT:
            self._answer.wary.add(refusal)

    def _named(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self._signature.parameters, arguments, strict=True))

    def _tell(self, refusal: Refusal, arguments: Mapping[str, Any]) -> Miss:
        """A refusal as a record: names of tensors and axes, and extents; never data."""
        if isinstance(refusal, type):
            if issubclass(refusal, IndexError):
                return Miss(reason=MissReason.RANK)
            return Miss(reason=MissReason.UNREADABLE, detail=refusal.__name__)
        if refusal < 0:
            reason = REFUSALS[~refusal]
            return Miss(reason=reason, detail=self._fixed() if reason is MissReason.SPECIALIZATION else "")
        reason = GUARD_CODES[refusal & 0xFF]
        return Miss(reason=reason, detail=_detail(reason, refusal, self._contract, arguments))

    def _fixed(self) -> str:
        """Which attribute or dtype had no artifact; extents are told, attribute values are not."""
        names = [*self._contract.dtypes, *(a.name for a in self._contract.choices), *self._contract.axes]
        several = [n for n in names if any(fixed(one, n) is not None for one in self._loaded)]
        return f"fixed at build: {', '.join(several)}" if several else ""


_OF_NO_TENSOR = frozenset(
    {
        MissReason.ALIGNMENT,
        MissReason.ELEMENTS,
        MissReason.HOST,
        MissReason.ARGUMENTS,
        MissReason.DIMENSIONS,
    }
)
"""Refusals whose second byte is no tensor's number, or whose tensor tells nothing."""


def _detail(reason: MissReason, code: int, contract: Contract, arguments: Mapping[str, Any]) -> str:
    if reason in (MissReason.DRIVER, MissReason.STICKY):
        return f"driver error {code >> 32}"
    if reason in _OF_NO_TENSOR:
        return ""
    tensor = contract.arguments_given(_choices(contract, arguments))[(code >> 8) & 0xFF]
    dim = (code >> 16) & 0xFF
    shapes = {
        t.name: tuple(arguments[t.name].shape) for t in contract.inputs if hasattr(arguments[t.name], "shape")
    }
    if reason is MissReason.SHAPE_CLASS:
        extents = _extents(contract, shapes)
        return ", ".join(f"{axis}={extents[axis]}" for axis in contract.axes if axis in extents)
    if reason is MissReason.SYMBOL:
        axis = tensor.dims[dim]
        seen = [
            f"{shapes[t.name][i]} in {t.name}"
            for t in contract.inputs if t.name in shapes
            for i, other in enumerate(t.dims) if other == axis
        ]  # fmt: skip
        return f"{axis}: {', '.join(seen)}"
    if reason in (MissReason.EXTENT, MissReason.NARROW) and tensor.name in shapes:
        return f"{tensor.name}: {tensor.dims[dim]}={shapes[tensor.name][dim]}"
    return tensor.name


def _choices(contract: Contract, arguments: Mapping[str, Any]) -> dict[str, bool]:
    """Which optional inputs a call gives."""
    return {t.name: arguments[t.name] is not None for t in contract.inputs if t.optional}


def _span(tensor: Any) -> int:
    """Elements from a tensor's first to its last, gaps included."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((n - 1) * stride for n, stride in steps) if tensor.numel() else 0


def _extents(contract: Contract, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    return {
        axis: shapes[t.name][i]
        for t in contract.inputs if t.name in shapes
        for i, axis in enumerate(t.dims) if isinstance(axis, str)
    }  # fmt: skip
