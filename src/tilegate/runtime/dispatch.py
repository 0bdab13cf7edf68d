"""Around the call site: what happens on a miss, and how a person asks what would happen."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tilegate.errors import DeviceError
from tilegate.library import Rows
from tilegate.records.contract import Contract
from tilegate.records.faults import FaultClass
from tilegate.records.miss import GUARD_CODES, Miss, MissReason
from tilegate.records.shape import ShapeClass
from tilegate.runtime.callsite import REFUSALS, Refusal, Turn, first_input, fixed
from tilegate.runtime.compiled import Answer, Others, compile_site
from tilegate.runtime.counting import reading
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.faults import Fault, device_lost, driver_error, fault_of, half_written
from tilegate.runtime.load import Loaded, Place, gathered, layers
from tilegate.runtime.opaque import Opaque
from tilegate.runtime.strict import guard_miss

OnLost = Callable[[int], tuple[str, ...]]
"""Told the number of a place whose device is lost; names what was launched there since it was known to be good."""


class Site:
    """One operator, attached to what a table loaded for it."""

    def __init__(
        self,
        contract: Contract,
        reference: Callable[..., Any],
        loaded: tuple[Loaded, ...],
        places: Sequence[Place],
        *,
        strict: bool = False,
        opaque: bool = True,
        skipped: tuple[str, ...] = (),
        on_lost: OnLost = lambda _place: (),
    ) -> None:
        """Args:
        contract: the same digest as the artifacts'.
        reference: the operator's function.
        loaded: at least one artifact.
        places: all that this process has, served or not.
        strict: raise where the reference would answer.
        opaque: stand as one operator in compiled graphs; otherwise they hold the reference.
        skipped: artifacts that this machine does not serve, in words.
        on_lost: told of a lost device, before the call that met it raises.
        """
        self._contract = contract
        self._reference = reference
        self._signature = inspect.signature(reference)
        self._loaded = loaded
        self._places = places
        self._strict = strict
        self._skipped = skipped
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._counts: dict[Refusal, itertools.count[int]] = {}
        self._first: dict[Refusal, Miss] = {}
        self._answer = Answer(self._miss)
        traced = Opaque(contract, reference, loaded).traced if opaque else None
        self.call = self._chain(traced)

    def _chain(self, traced: Callable[..., Any] | None) -> Callable[..., Any]:
        """Call sites from the last to the first: those of a group of places one behind the other, and in front
        of each group but a lone one the question whether the call lies there.
        """
        groups = gathered(self._loaded)
        gpus = {place.number for place in self._places if place.number >= 0}
        served = frozenset().union(*(numbers for numbers, _ in groups))
        unserved = gpus - served if max(served) >= 0 else frozenset()
        self._asks = len(groups) > 1 or bool(unserved)
        """Whether call sites look at the device. Otherwise C does: there is one kind of it."""
        site: Callable[..., Any] | None = None
        for numbers, loaded in reversed(groups):
            asks = site is not None or bool(unserved)
            following, elsewhere = None, site
            for layer in reversed(layers(loaded)):
                first = asks and layer[0] is loaded[0]
                turn = Turn(
                    last=following is None,
                    all_gpus=numbers == gpus,
                    places=numbers if first else frozenset(),
                    elsewhere=bool(first) and elsewhere is not None,
                )
                others = Others(turn, following, elsewhere, traced)
                following = compile_site(self._contract, self._reference, layer, self._answer, others)
            site = following
        assert site is not None, "a site has something loaded"
        return site

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
            if self._asks and self._place(bound.arguments) not in one.places:
                misses[self._not_here(bound.arguments)] = None
                continue
            miss = self._probe(one, bound.arguments)
            found = self._admitting(one, bound.arguments) if miss.reason is MissReason.ELEMENTS else None
            if found is not None:
                return self._served(one, found, tuple(misses))
            misses[miss] = None
        return Explanation(
            operator=self._contract.name, kernel=None, misses=tuple(misses), skipped=self._skipped
        )

    def _place(self, values: Mapping[str, Any]) -> int:
        """Number of the place where a call would run; that of the processor where nothing else is said."""
        first = values[first_input(self._contract)]
        return int(first.get_device()) if hasattr(first, "get_device") else -1

    def _not_here(self, values: Mapping[str, Any]) -> Miss:
        return Miss(reason=MissReason.NO_DEVICE_CLASS, detail=_device(values[first_input(self._contract)]))

    def _probe(self, one: Loaded, values: Mapping[str, Any]) -> Miss:
        """Ask the guard of one artifact with rows that allow no element: whatever it admits is ELEMENTS."""
        told = [Miss(reason=MissReason.TRACING)]

        def note(refusal: Refusal, arguments: tuple[Any, ...]) -> None:
            told.append(self._tell(refusal, self._named(arguments)))

        closed = [msgspec.structs.replace(c, max_elements=-1) for c in one.candidate.classes]
        trial = dataclasses.replace(one, rows=Rows(closed, one.manifest.symbols))
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
            skipped=self._skipped,
        )

    def _miss(self, refusal: Refusal, arguments: tuple[Any, ...]) -> Any:
        """The first call of a kind is put into words. The call site counts those that follow by itself, unless
        the operator is strict, where each is told, or what happened is told each time.
        """
        fault = fault_of(refusal)
        ends = fault is not None and not fault.reference_may_answer(in_place=bool(self._contract.in_place))
        with self._lock:
            if refusal not in self._counts:
                self._enter(refusal, self._tell(refusal, self._named(arguments)), told=ends or self._strict)
            next(self._counts[refusal])
        if fault is not None and ends:
            raise self._failed(fault, self._named(arguments))
        if self._strict:
            raise guard_miss(self._contract.name, self._tell(refusal, self._named(arguments)))
        call = inspect.BoundArguments(self._signature, OrderedDict(self._named(arguments)))
        return self._reference(*call.args, **call.kwargs)

    def _failed(self, fault: Fault, values: Mapping[str, Any]) -> DeviceError:
        name, device = self._contract.name, _device(values[first_input(self._contract)])
        if fault.kind is FaultClass.STICKY:
            return device_lost(name, device, str(fault), self._on_lost(self._place(values)))
        return half_written(name, device, self._contract.in_place, str(fault))

    def _enter(self, refusal: Refusal, miss: Miss, *, told: bool) -> None:
        self._first[refusal] = miss
        self._counts[refusal] = count = itertools.count()
        if not told:
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
            if reason is MissReason.NO_DEVICE_CLASS:
                return self._not_here(arguments)
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
        return driver_error(code >> 32)
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


def _device(tensor: Any) -> str:
    return str(getattr(tensor, "device", "no tensor"))


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
