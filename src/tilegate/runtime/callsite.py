"""The call site: one generated function per operator, a closure over exactly what a call needs.

The text is generated because a loop over arguments costs more than the kernel's launch: checks are unrolled
for the contract's tensors, and what the table decided at load is a constant. `source()` shows it, and a
traceback through it shows its lines. Names of its own begin with `_tg_`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tilegate.records.contract import AttributeValue, Contract, TensorSpec
from tilegate.records.miss import MissReason
from tilegate.runtime.load import Loaded

Fixed = AttributeValue | None
"""What an artifact fixes: an extent, a dtype's name, an attribute's value."""

ODD = "_tg_type({0}) is not _tg_Tensor and _tg_type({0}) is not _tg_Parameter"
"""A test that an input is another thing than a tensor as torch makes them."""

TRANSFORMS = (
    "_tg_modes()",
    "_tg_transform() is not None",
    "_tg_forward._current_level >= 0",
    "_tg_jit()",
    "_tg_autocast()",
)
"""Whatever makes a call mean more than its result: dispatch modes, vmap and grad, dual tensors, jit, autocast."""

REFUSALS = (
    MissReason.TENSOR_TYPE,
    MissReason.GRAD,
    MissReason.NEGATIVE_BIT,
    MissReason.TRACING,
    MissReason.SPECIALIZATION,
    MissReason.NO_DEVICE_CLASS,
)
"""What Python refuses, by number: -1 is the first, so that none is a code of the guard in C. Numbers because
they are looked up at each miss, and an enum's hash is a call."""

Refusal = int | type[Exception]
"""Why a call site does not answer: one of `REFUSALS` by number, a code of the guard in C, or what was raised."""

FAULTS = 1 << 24
"""From here on a refusal says that the driver failed, or that some kernels of the call had been launched."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a call site stands among those of its operator."""

    last: bool = True
    """No other call site answers what it refuses."""
    all_gpus: bool = False
    """It is the one for every GPU there is: being on a GPU is being at home."""
    places: frozenset[int] = frozenset()
    """Where the call's first tensor has to lie; without any nobody asks, and C tells one backend from another."""
    elsewhere: bool = False
    """Another call site answers where it lies elsewhere."""


ALONE = Turn()
"""The only call site of its operator."""


def source(contract: Contract, signature: inspect.Signature, loaded: Sequence[Loaded], turn: Turn) -> str:
    """Text of the call site. What it does not answer goes to another one, or is counted."""
    varying = varying_words(contract, loaded)
    out = [f"def {contract.name}({parameters_of(signature)}):"]
    out += [
        "    if _tg_is_dynamo_compiling() or _tg_compiler._is_compiling_flag:",
        f"        return _tg_traced({arguments_of(signature)})",
        "    try:",
    ]
    for i, (condition, reason) in enumerate(_checks(contract, varying, turn)):
        out += [f"        {'el' if i else ''}if {condition}:", f"            _tg_refused = _tg_{reason.name}"]
    out += ["        else:"]
    if varying:
        expressions = [expression for _, expression in varying]
        key = _tuple(expressions) if len(varying) > 1 else expressions[0]
        out += [f"            _tg_found = _tg_find({key})", "            if _tg_found is None:"]
        out += [f"                _tg_refused = _tg_{MissReason.SPECIALIZATION.name}"]
        out += ["            else:", "                _tg_entry, _tg_rows = _tg_found"]
    out += _launch(
        contract, loaded, _misfit(contract, loaded) if turn.last else "", " " * (16 if varying else 12)
    )
    out += ["    except Exception as _tg_error:", "        _tg_refused = _tg_type(_tg_error)"]
    out += ["    " + line for line in _otherwise(contract, signature, loaded, turn)]
    return "\n".join(out) + "\n"


def fixed(one: Loaded, name: str) -> Fixed:
    """The value that an artifact fixes for an axis, dtype variable or attribute; None where it is open."""
    spec = one.manifest.elaboration.specialization
    return spec.dtypes.get(name) or spec.attributes.get(name, spec.axes.get(name))


def varying_words(contract: Contract, loaded: Sequence[Loaded]) -> list[tuple[str, str]]:
    """(name, expression) of all that tells the artifacts of one operator apart. What they share is left to
    the guard in C, but attributes, which C never sees, are compared one by one.
    """
    expressions = {v: f"{owner(v, contract)}.dtype" for v in contract.dtypes}
    expressions |= {axis: extent(axis, contract) for axis in contract.axes}
    expressions |= {name: text for name, (text, _) in _choices(contract).items()}
    return [(name, text) for name, text in expressions.items() if len({fixed(o, name) for o in loaded}) > 1]


def some(test: str, contract: Contract) -> str:
    """The test of any input, where it is given."""
    parts = (f"({t.name} is not None and {test})" if t.optional else test for t in contract.inputs)
    return " or ".join(part.format(t.name) for part, t in zip(parts, contract.inputs, strict=True))


def _checks(contract: Contract, varying: list[tuple[str, str]], turn: Turn) -> list[tuple[str, MissReason]]:
    """What only Python can see of a call, in the order it is asked."""
    frozen = (f"{n}.is_inference() and not _tg_inference()" for n in contract.in_place)
    first = first_input(contract)
    away = f"not {first}.is_cuda" if turn.all_gpus else f"{first}.get_device() not in _tg_places"
    checks = [
        (" or ".join([some(ODD, contract), *frozen]), MissReason.TENSOR_TYPE),
        *([(away, MissReason.NO_DEVICE_CLASS)] if turn.places else []),
        (f"_tg_grad_enabled() and ({some('{0}.requires_grad', contract)})", MissReason.GRAD),
        (some("{0}.is_neg()", contract), MissReason.NEGATIVE_BIT),
        (" or ".join(TRANSFORMS), MissReason.TRACING),
    ]
    alone = [test for name, (_, test) in _choices(contract).items() if name not in dict(varying)]
    if alone:
        checks.append((" or ".join(alone), MissReason.SPECIALIZATION))
    return checks


def _choices(contract: Contract) -> dict[str, tuple[str, str]]:
    """For each word that an artifact fixes and C never sees: its expression, and the test that it differs."""
    # A tensor may be equal to a number, and carry a gradient besides.
    tensor = "_tg_type({0}) not in _tg_SCALARS and _tg_isinstance({0}, _tg_torch.Tensor)"
    found = {
        a.name: (
            a.name,
            f"{{0}} is not _tg_fixed_{a.name} and ({{0}} != _tg_fixed_{a.name} or {tensor})".format(a.name),
        )
        for a in contract.attributes
    }
    for t in contract.inputs:
        if t.optional:
            found[t.name] = (f"({t.name} is not None)", f"({t.name} is not None) != _tg_fixed_{t.name}")
    return found


def _launch(contract: Contract, loaded: Sequence[Loaded], misfit: str, indent: str) -> list[str]:
    outputs = [o.name for o in contract.outputs]
    fresh = [o for o in contract.outputs if o.name not in contract.in_place]
    made = [f"{o.name} = {_allocation(o, contract)}" for o in fresh]
    if misfit and fresh:
        nothing = " = ".join([*(o.name for o in fresh), "None"])
        made = [f"if _tg_wary and {misfit}:", f"    {nothing}", "else:", *("    " + line for line in made)]
    return [
        *(indent + line for line in made),
        *(indent + line for line in _entries(contract, loaded)),
        f"{indent}if not _tg_refused:",
        *(f"{indent}    _tg_touched({name})" for name in contract.in_place),
        f"{indent}    return {outputs[0] if len(outputs) == 1 else _tuple(outputs)}",
    ]


def _misfit(contract: Contract, loaded: Sequence[Loaded]) -> str:
    """A test after which C is sure to refuse: a tensor whose axes are all fixed, alike in every artifact, has
    another number of elements. '' where no tensor is like that.
    """
    varying = dict(varying_words(contract, loaded))
    known = {axis: fixed(loaded[0], axis) for axis in contract.axes if axis not in varying}
    for tensor in contract.inputs:
        extents = [d if isinstance(d, int) else known.get(d) for d in tensor.dims]
        if known.keys() & tensor.dims and not tensor.optional and all(isinstance(n, int) for n in extents):
            return f"{tensor.name}.numel() != {math.prod(cast('list[int]', extents))}"
    return ""


def _otherwise(
    contract: Contract, signature: inspect.Signature, loaded: Sequence[Loaded], turn: Turn
) -> list[str]:
    """The miss. Outputs are let go first: the reference may then have their memory."""
    arguments = arguments_of(signature)
    missed = f"    return _tg_miss(_tg_refused, {_tuple(list(signature.parameters))})"
    fresh = [o.name for o in contract.outputs if o.name not in contract.in_place]
    lines = [f"{' = '.join(fresh)} = None"] if fresh else []
    if turn.elsewhere:
        lines += [
            f"if _tg_refused == _tg_{MissReason.NO_DEVICE_CLASS.name}:",
            f"    return _tg_elsewhere({arguments})",
        ]
    if not turn.last:
        if any(one.candidate.target.backend != "cpu" for one in loaded):  # nothing more runs behind a fault
            lines += [f"if _tg_type(_tg_refused) is _tg_int and _tg_refused >= {FAULTS}:", missed]
        return [*lines, f"return _tg_next({arguments})"]
    return [
        *lines,
        "_tg_count = _tg_counted(_tg_refused)",
        "if _tg_count is None:",
        missed,
        "_tg_count()",
        f"return _tg_reference({arguments})",
    ]


def _entries(contract: Contract, loaded: Sequence[Loaded]) -> list[str]:
    """The call into C: an optional input that is not given is no argument at all."""
    optional = [t.name for t in contract.inputs if t.optional]
    given = dict.fromkeys(tuple(bool(fixed(one, name)) for name in optional) for one in loaded)
    lines: list[str] = []
    for place, present in enumerate(given):
        tensors = contract.arguments_given(dict(zip(optional, present, strict=True)))
        arguments = ", ".join([*(t.name for t in tensors), "_tg_rows"])
        call = f"_tg_refused = _tg_entry({arguments})"
        if len(given) == 1:
            return [call]
        test = " and ".join(f"({n} is not None) is {p}" for n, p in zip(optional, present, strict=True))
        lines.append(f"{'if' if place == 0 else 'elif'} {test}: {call}")
    return lines


def _allocation(output: TensorSpec, contract: Contract) -> str:
    """Outputs come from torch's allocator; a twin of an input is made like it."""
    for tensor in contract.inputs:
        alike = tensor.dims == output.dims and tensor.dtype == output.dtype
        if alike and not (tensor.strided or tensor.optional):
            return f"_tg_empty_like({tensor.name})"
    return dense(output, contract)


def dense(output: TensorSpec, contract: Contract) -> str:
    """An output without contents, contiguous, beside the first input."""
    extents = _tuple([str(d) if isinstance(d, int) else extent(d, contract) for d in output.dims])
    if output.dtype in contract.dtypes:
        dtype = f"{owner(output.dtype, contract)}.dtype"
    else:
        dtype = f"_tg_torch.{output.dtype}"
    return f"_tg_empty({extents}, dtype={dtype}, device={first_input(contract)}.device)"


def first_input(contract: Contract) -> str:
    """The tensor that says where a call runs: the first that is never None."""
    return next(t.name for t in contract.inputs if not t.optional)


def owner(variable: str, contract: Contract) -> str:
    return next(t.name for t in contract.inputs if t.dtype == variable and not t.optional)


def extent(axis: str, contract: Contract) -> str:
    tensor = next(t for t in contract.inputs if axis in t.dims and not t.optional)
    return f"{tensor.name}.shape[{tensor.dims.index(axis)}]"


def parameters_of(signature: inspect.Signature) -> str:
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        has_default = parameter.default is not parameter.empty
        parts.append(f"{parameter.name}=None" if has_default else parameter.name)
    return ", ".join(parts)


def arguments_of(signature: inspect.Signature) -> str:
    return ", ".join(
        f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in signature.parameters.values()
    )


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
