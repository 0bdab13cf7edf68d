"""The call site: one generated function per operator, a closure over exactly what a call needs.

The text is generated because a loop over arguments costs more than the kernel's launch: checks are unrolled
for the contract's tensors, and what the table decided at load is a constant. `source()` shows it, and a
traceback through it shows its lines. Names of its own begin with `_tg_`.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Sequence
from typing import Any

from tilegate.records.contract import AttributeValue, Contract, TensorSpec
from tilegate.records.miss import MissReason
from tilegate.runtime.load import Loaded

Fixed = AttributeValue | None
"""What an artifact fixes: an extent, a dtype's name, an attribute's value."""


TRANSFORMS = (
    "_tg_modes()",
    "_tg_transform() is not None",
    "_tg_forward._current_level >= 0",
    "_tg_jit()",
    "_tg_autocast()",
)
"""Whatever makes a call mean more than its result: dispatch modes, vmap and grad, dual tensors, jit, autocast."""


def source(contract: Contract, signature: inspect.Signature, loaded: Sequence[Loaded]) -> str:
    """Text of the call site."""
    varying = _varying(contract, loaded)
    out = [f"def {contract.name}({_parameters(signature)}):"]
    out += [
        "    if _tg_is_compiling():",
        f"        return _tg_reference({_arguments(signature)})",
        "    try:",
    ]
    for i, (condition, reason) in enumerate(_checks(contract, varying)):
        out += [f"        {'el' if i else ''}if {condition}:", f"            _tg_refused = _tg_{reason.name}"]
    out += ["        else:"]
    if varying:
        key = _tuple([expression for _, expression in varying])
        out += [f"            _tg_found = _tg_find({key})", "            if _tg_found is None:"]
        out += [f"                _tg_refused = _tg_{MissReason.SPECIALIZATION.name}"]
        out += ["            else:", "                _tg_entry, _tg_rows = _tg_found"]
    out += _launch(contract, loaded, " " * (16 if varying else 12))
    out += ["    except Exception as _tg_error:", "        _tg_refused = _tg_error"]
    out += [f"    return _tg_miss(_tg_refused, ({', '.join(signature.parameters)},))"]
    return "\n".join(out) + "\n"


def compile_site(
    contract: Contract,
    reference: Callable[..., Any],
    loaded: Sequence[Loaded],
    miss: Callable[[object, tuple[Any, ...]], Any],
) -> Callable[..., Any]:
    """The call site as a function with the reference's name, signature and defaults.

    Args:
        contract: of the operator; the same digest as the artifacts'.
        reference: answers under torch.compile, where the call is traced.
        loaded: at least one artifact; where several fit a call the first stands.
        miss: answers every other call: `miss(refusal, arguments)`.
    """
    signature = inspect.signature(reference)
    text = source(contract, signature, loaded)
    filename = f"<tilegate call site: {contract.name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope = {**_torch_names(), "_tg_reference": reference, "_tg_miss": miss}
    scope |= {f"_tg_{reason.name}": reason for reason in MissReason}
    scope |= {f"_tg_fixed_{a.name}": fixed(loaded[0], a.name) for a in contract.choices}
    varying = [name for name, _ in _varying(contract, loaded)]
    if varying:
        chosen: dict[tuple[object, ...], tuple[Callable[..., int], int]] = {}
        for one in loaded:
            key = tuple(_key_part(name, fixed(one, name), contract) for name in varying)
            chosen.setdefault(key, (one.library.entry, one.rows.address))
        scope["_tg_find"] = chosen.get
    else:
        scope |= {"_tg_entry": loaded[0].library.entry, "_tg_rows": loaded[0].rows.address}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - text made above from validated names
    made: Any = scope[contract.name]
    made.__defaults__ = getattr(reference, "__defaults__", None)
    made.__kwdefaults__ = getattr(reference, "__kwdefaults__", None)
    made.keeps_open = tuple(loaded)  # rows are reached by address: their owners live as long as the site
    site: Callable[..., Any] = made
    return site


def fixed(one: Loaded, name: str) -> Fixed:
    """The value that an artifact fixes for an axis, dtype variable or attribute; None where it is open."""
    spec = one.manifest.elaboration.specialization
    return spec.dtypes.get(name) or spec.attributes.get(name, spec.axes.get(name))


def _varying(contract: Contract, loaded: Sequence[Loaded]) -> list[tuple[str, str]]:
    """(name, expression) of all that tells the artifacts of one operator apart. What they share is left to
    the guard in C, but attributes, which C never sees, are compared one by one.
    """
    expressions = {v: f"{_owner(v, contract)}.dtype" for v in contract.dtypes}
    expressions |= {axis: _extent(axis, contract) for axis in contract.axes}
    expressions |= {name: text for name, (text, _) in _choices(contract).items()}
    return [(name, text) for name, text in expressions.items() if len({fixed(o, name) for o in loaded}) > 1]


def _key_part(name: str, value: Fixed, contract: Contract) -> object:
    import torch  # noqa: PLC0415 - only a serving process has it

    return getattr(torch, str(value)) if name in contract.dtypes else value


def _checks(contract: Contract, varying: list[tuple[str, str]]) -> list[tuple[str, MissReason]]:
    """What only Python can see of a call, in the order it is asked."""

    def some(test: str) -> str:
        """The test of any input, where it is given."""
        parts = (f"({t.name} is not None and {test})" if t.optional else test for t in contract.inputs)
        return " or ".join(part.format(t.name) for part, t in zip(parts, contract.inputs, strict=True))

    frozen = (f"{n}.is_inference() and not _tg_inference()" for n in contract.in_place)
    checks = [
        (" or ".join([some("_tg_type({0}) not in _tg_PLAIN"), *frozen]), MissReason.TENSOR_TYPE),
        (f"_tg_grad_enabled() and ({some('{0}.requires_grad')})", MissReason.GRAD),
        (some("{0}.is_neg()"), MissReason.NEGATIVE_BIT),
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
        a.name: (a.name, f"{a.name} != _tg_fixed_{a.name} or {tensor.format(a.name)}")
        for a in contract.attributes
    }
    for t in contract.inputs:
        if t.optional:
            found[t.name] = (f"({t.name} is not None)", f"({t.name} is not None) != _tg_fixed_{t.name}")
    return found


def _launch(contract: Contract, loaded: Sequence[Loaded], indent: str) -> list[str]:
    fresh = [o for o in contract.outputs if o.name not in contract.in_place]
    outputs = [o.name for o in contract.outputs]
    return [
        *(f"{indent}{o.name} = {_allocation(o, contract)}" for o in fresh),
        *(indent + line for line in _entries(contract, loaded)),
        f"{indent}if not _tg_refused:",
        *(f"{indent}    _tg_touched({name})" for name in contract.in_place),
        f"{indent}    return {outputs[0] if len(outputs) == 1 else _tuple(outputs)}",
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
    extents = _tuple([str(d) if isinstance(d, int) else _extent(d, contract) for d in output.dims])
    if output.dtype in contract.dtypes:
        dtype = f"{_owner(output.dtype, contract)}.dtype"
    else:
        dtype = f"_tg_torch.{output.dtype}"
    first = next(t for t in contract.inputs if not t.optional)
    return f"_tg_empty({extents}, dtype={dtype}, device={first.name}.device)"


def _owner(variable: str, contract: Contract) -> str:
    return next(t.name for t in contract.inputs if t.dtype == variable and not t.optional)


def _extent(axis: str, contract: Contract) -> str:
    tensor = next(t for t in contract.inputs if axis in t.dims and not t.optional)
    return f"{tensor.name}.shape[{tensor.dims.index(axis)}]"


def _parameters(signature: inspect.Signature) -> str:
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        has_default = parameter.default is not parameter.empty
        parts.append(f"{parameter.name}=None" if has_default else parameter.name)
    return ", ".join(parts)


def _arguments(signature: inspect.Signature) -> str:
    return ", ".join(
        f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in signature.parameters.values()
    )


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _torch_names() -> dict[str, Any]:
    import torch  # noqa: PLC0415
    from torch.autograd import forward_ad  # noqa: PLC0415

    return {
        "_tg_torch": torch,
        "_tg_type": type,
        "_tg_isinstance": isinstance,  # slow for torch.Tensor: asked only where the type is none of these
        "_tg_SCALARS": frozenset({bool, int, float, str}),
        "_tg_PLAIN": frozenset({torch.Tensor, torch.nn.Parameter}),
        "_tg_empty": torch.empty,
        "_tg_empty_like": torch.empty_like,
        "_tg_grad_enabled": torch.is_grad_enabled,
        "_tg_is_compiling": torch.compiler.is_compiling,
        "_tg_modes": torch._C._len_torch_dispatch_stack,  # noqa: SLF001 - no public name; since torch 2.0
        "_tg_transform": torch._C._functorch.peek_interpreter_stack,  # noqa: SLF001 - likewise
        "_tg_forward": forward_ad,
        "_tg_jit": torch._C._is_tracing,  # noqa: SLF001 - as torch.jit.is_tracing, without its wrapper
        "_tg_autocast": torch._C._is_any_autocast_enabled,  # noqa: SLF001 - likewise, for any device
        "_tg_inference": torch.is_inference_mode_enabled,
        "_tg_touched": torch.autograd.graph.increment_version,
    }
