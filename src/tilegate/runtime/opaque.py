"""The operator as torch.compile sees it: one opaque operator of torch, with a fake implementation.

Its text is generated as that of a call site is, and read by torch.compile alone: an eager call never comes
here. While a graph is traced it asks what can be asked of a tensor without contents: whether the contract
fits, and whether any artifact might. If so, the graph holds one node `tilegate::name`, which makes an ordinary
call of the operator whenever it runs: what is served then, and how it is counted, is decided then. Otherwise
the graph holds the reference, as PyTorch: where a gradient is wanted, under a transform or autocast, for
export, and where no artifact has such a dtype, attribute or device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilegate.records.contract import Contract
from tilegate.runtime.callsite import (
    ODD,
    arguments_of,
    dense,
    extent,
    first_input,
    fixed,
    owner,
    parameters_of,
    some,
)
from tilegate.runtime.compiled import show, torch_names
from tilegate.runtime.load import Loaded
from tilegate.runtime.operator import OPERATORS

NAMESPACE = "tilegate"

KINDS = {"bool": "bool", "int": "SymInt", "float": "float", "str": "str"}
"""Of attributes, as torch spells them in a schema."""

TYPES = {kind: f"_tg_{kind}" for kind in KINDS}
"""Of attributes, in traced text: a schema takes no other, though Python finds 0 and False equal."""


class Opaque:
    """One operator as a node of a graph."""

    def __init__(self, contract: Contract, reference: Callable[..., Any], loaded: Sequence[Loaded]) -> None:
        signature = inspect.signature(reference)
        text = traced_source(contract, signature)
        scope = {
            **_names(),
            **_known(contract, loaded),
            "_tg_reference": reference,
            "_tg_operators": OPERATORS,
        }
        exec(compile(text, show(f"traced call: {contract.name}", text), "exec"), scope)  # noqa: S102 - as call sites
        scope["_tg_node"] = _node(
            contract.name, schema(contract, signature), scope["_tg_run"], scope["_tg_fake"]
        )
        self.traced: Callable[..., Any] = scope[contract.name]
        """What stands for a call of the operator while torch.compile traces it."""
        self.traced.__defaults__ = getattr(reference, "__defaults__", None)
        self.traced.__kwdefaults__ = getattr(reference, "__kwdefaults__", None)


def traced_source(contract: Contract, signature: inspect.Signature) -> str:
    """Text of three functions: what is traced in place of a call; what a node does when its graph runs, which is a
    call of the operator, whatever is attached to it by then; and what makes outputs without contents.
    """
    taken, given = ", ".join(signature.parameters), arguments_of(signature)
    fresh = [o for o in contract.outputs if o.name not in contract.in_place]
    made = ", ".join(o.name for o in fresh)
    returned = ", ".join(o.name for o in contract.outputs)
    tensors = "".join(f"{t.name}, " for t in contract.inputs)
    lines = [
        f"def {contract.name}({parameters_of(signature)}):",
        "    if (",
        "        " + "\n        or ".join(f"({test})" for test in _misfits(contract)),
        "    ):",
        f"        return _tg_reference({given})",
        f"    {made}{' = ' if made else ''}_tg_node({taken})",
        f"    return {returned}",
        f"def _tg_run({taken}):",
        f"    {returned} = _tg_operators[{contract.name!r}]({given})",
        f"    return {f'_tg_own({made}, ({tensors}))' if len(fresh) == 1 else f'_tg_owns(({made}), ({tensors}))'}",
        f"def _tg_fake({taken}):",
        f"    return {', '.join(dense(o, contract) for o in fresh) or None}",
    ]
    return "\n".join(lines) + "\n"


def schema(contract: Contract, signature: inspect.Signature) -> str:
    """What the node takes and gives, as torch declares it. In-place tensors are mutated, and not returned: a
    node's outputs are its own.
    """
    optional = {t.name for t in contract.inputs if t.optional}
    kinds = {t.name: "Tensor?" if t.name in optional else "Tensor" for t in contract.inputs}
    kinds |= {name: f"Tensor({chr(97 + i)}!)" for i, name in enumerate(contract.in_place)}
    kinds |= {a.name: KINDS[a.kind] for a in contract.attributes}
    fresh = [o for o in contract.outputs if o.name not in contract.in_place]
    given = "Tensor" if len(fresh) == 1 else f"({', '.join('Tensor' for _ in fresh)})"
    return f"({', '.join(f'{kinds[name]} {name}' for name in signature.parameters)}) -> {given}"


def _misfits(contract: Contract) -> list[str]:
    """Tests after which a graph holds the reference. Extents are compared with one another and with what the
    contract fixes, never with what artifacts do: a graph serves many shapes.
    """
    tests = [
        "not _tg_is_dynamo_compiling() or _tg_changed()",
        some(f"({ODD})", contract),
        f"_tg_grad_enabled() and ({some('{0}.requires_grad', contract)})",
        some("{0}.layout is not _tg_torch.strided", contract),
        f"{first_input(contract)}.device.type not in _tg_kinds",
    ]
    tests += [
        f"_tg_type({a.name}) is not {TYPES[a.kind]} or {a.name} not in _tg_known_{a.name}"
        for a in contract.attributes
    ]
    for t in contract.inputs:
        if t.optional:
            tests.append(f"({t.name} is not None) not in _tg_known_{t.name}")
        own = [f"{t.name}.dim() != {len(t.dims)}"]
        if t.dtype not in contract.dtypes:
            own.append(f"{t.name}.dtype is not _tg_torch.{t.dtype}")
        elif owner(t.dtype, contract) == t.name:
            own.append(f"{t.name}.dtype not in _tg_known_{t.dtype}")
        else:
            own.append(f"{t.name}.dtype is not {owner(t.dtype, contract)}.dtype")
        for i, d in enumerate(t.dims):
            there = str(d) if isinstance(d, int) else extent(d, contract)
            if there != f"{t.name}.shape[{i}]":
                own.append(f"{t.name}.shape[{i}] != {there}")
        test = " or ".join(own)
        tests.append(f"{t.name} is not None and ({test})" if t.optional else test)
    return tests


def _known(contract: Contract, loaded: Sequence[Loaded]) -> dict[str, Any]:
    """What some artifact has been built for, by word."""
    import torch  # noqa: PLC0415 - only a serving process has it

    found: dict[str, Any] = {
        f"_tg_known_{a.name}": tuple({fixed(one, a.name) for one in loaded}) for a in contract.attributes
    }
    for t in contract.inputs:
        if t.optional:
            found[f"_tg_known_{t.name}"] = tuple({bool(fixed(one, t.name)) for one in loaded})
    for variable, alternatives in contract.dtypes.items():
        dtypes = {fixed(one, variable) for one in loaded}
        spelled = [d for d in alternatives if d in dtypes or None in dtypes]
        found[f"_tg_known_{variable}"] = tuple(getattr(torch, d) for d in spelled)
    return found | {"_tg_kinds": tuple({one.candidate.target.backend for one in loaded})}


def _names() -> dict[str, Any]:
    """What traced text is compiled with. One question is not traced but asked for good, once for each graph: torch
    compiles again where modes have changed.
    """
    import torch  # noqa: PLC0415

    exporting = getattr(torch.compiler, "is_exporting", bool)  # since 2.7
    transform = torch._C._functorch.peek_interpreter_stack  # noqa: SLF001 - as call sites ask
    autocast = torch._C._is_any_autocast_enabled  # noqa: SLF001 - likewise
    forward = torch.autograd.forward_ad

    def changed() -> bool:
        dual = forward._current_level >= 0  # noqa: SLF001 - likewise
        return bool(exporting() or transform() is not None or dual or autocast())

    # What torch.compiler.assume_constant_result does, which imports a compiler to do it.
    vars(changed)["_dynamo_marked_constant"] = True
    owns = {"_tg_own": _own, "_tg_owns": _owns}
    kinds = {"_tg_bool": bool, "_tg_int": int, "_tg_float": float, "_tg_str": str}
    return {**torch_names(), **owns, **kinds, "_tg_changed": changed}


@dataclass(slots=True)
class _Definition:
    """What torch knows of an operator. It stays, whatever is attached: graphs hold it."""

    schema: str
    library: Any
    run: Callable[..., Any]
    fake: Callable[..., Any]

    def runs(self, *args: Any) -> Any:
        return self.run(*args)

    def fakes(self, *args: Any) -> Any:
        return self.fake(*args)


_defined: dict[str, _Definition] = {}
"""By operator. Written while the caller holds the lock under which operators are attached."""


def _node(name: str, wanted: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """The operator in torch's registry, doing from now on what it is given."""
    import torch  # noqa: PLC0415

    known = _defined.get(name)
    if known is not None and known.schema != wanted:  # reloaded with another signature
        known.library._destroy()  # noqa: SLF001 - there is no public way to take a definition back
        vars(getattr(torch.ops, NAMESPACE)).pop(name, None)  # what torch.ops has looked up
        known = None
    if known is None:
        library = torch.library.Library(NAMESPACE, "FRAGMENT")
        known = _defined[name] = _Definition(wanted, library, run, fake)
        library.define(f"{name}{wanted}", tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, known.runs, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", known.fakes, lib=library)
    known.run, known.fake = run, fake
    node: Callable[..., Any] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return node


def _own(out: Any, given: tuple[Any, ...]) -> Any:
    """An output as the fake implementation said: contiguous, with memory of its own. A reference may answer with a
    view of its input, or with strides like its input's.
    """
    import torch  # noqa: PLC0415

    aliased = torch._C._is_alias_of  # noqa: SLF001 - no public name
    if out.is_contiguous() and not any(aliased(out, other) for other in given if other is not None):
        return out
    return out.clone(memory_format=torch.contiguous_format)


def _owns(outputs: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Likewise several, or none."""
    own: list[Any] = []
    for out in outputs:
        own.append(_own(out, (*given, *own)))
    return tuple(own) or None
