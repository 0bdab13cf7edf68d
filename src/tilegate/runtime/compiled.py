"""From the text of a call site to a function: the names it is compiled with, and what answers its misses."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tilegate.records.contract import Contract
from tilegate.runtime.callsite import ALONE, REFUSALS, Fixed, Refusal, Turn, fixed, source, varying_words
from tilegate.runtime.load import Loaded


@dataclass(frozen=True, slots=True)
class Answer:
    """What the last call site does with a call that it refuses."""

    miss: Callable[[Refusal, tuple[Any, ...]], Any]
    """Answers `(refusal, arguments)` where the refusal is not counted yet."""
    counted: dict[Refusal, Callable[[], object]] = field(default_factory=dict)
    """Refusals that are: what counts one more. The reference answers them."""
    wary: set[Refusal] = field(default_factory=set)
    """Refusals that came of a fixed extent. Once there is one, a call that lacks the extents is given no
    outputs: C says what is wrong before it comes to them, and would not launch without.
    """


@dataclass(frozen=True, slots=True)
class Others:
    """Who answers in place of a call site, where it is not alone."""

    turn: Turn = ALONE
    following: Callable[..., Any] | None = None
    """The next layer, for what this one refuses."""
    elsewhere: Callable[..., Any] | None = None
    """For tensors that lie at other places."""
    traced: Callable[..., Any] | None = None
    """While torch.compile traces; without it the reference."""


def compile_site(
    contract: Contract,
    reference: Callable[..., Any],
    loaded: Sequence[Loaded],
    answer: Answer,
    others: Others = Others(),
) -> Callable[..., Any]:
    """The call site as a function with the reference's name, signature and defaults.

    It has a second form, `as_method`, which takes an operator first and has no use for it.

    Args:
        contract: of the operator; the same digest as the artifacts'.
        reference: of the operator.
        loaded: at least one artifact; where several fit a call the first stands.
        answer: to what no call site serves.
        others: call sites of the same operator.
    """
    signature = inspect.signature(reference)
    text = source(contract, signature, loaded, others.turn)
    filename = show(f"call site: {contract.name}", text)
    scope = {**torch_names(), **_found_in(loaded, contract), "_tg_reference": reference}
    scope |= {"_tg_counted": answer.counted.get, "_tg_miss": answer.miss, "_tg_wary": answer.wary}
    scope |= {
        "_tg_next": others.following,
        "_tg_elsewhere": others.elsewhere,
        "_tg_places": others.turn.places,
    }
    scope["_tg_traced"] = others.traced or reference
    scope |= {f"_tg_{reason.name}": ~number for number, reason in enumerate(REFUSALS)}
    for name in (a.name for a in contract.choices):
        default, value = signature.parameters[name].default, fixed(loaded[0], name)
        # The very object that a call has by default: it needs no comparison.
        scope[f"_tg_fixed_{name}"] = default if type(default) is type(value) and default == value else value
    made: list[Any] = []
    for form in (text, text.replace("(", "(_tg_operator, ", 1)):
        exec(compile(form, filename, "exec"), scope)  # noqa: S102 - text made above from validated names
        function: Any = scope[contract.name]
        function.__defaults__ = getattr(reference, "__defaults__", None)
        function.__kwdefaults__ = getattr(reference, "__kwdefaults__", None)
        made.append(function)
    site, method = made
    site.as_method, method.site = method, site
    site.keeps_open = tuple(loaded)  # rows are reached by address: their owners live as long as the site
    return cast("Callable[..., Any]", site)


def show(name: str, text: str) -> str:
    """Let tracebacks show the lines of a generated function. Returns the file name to compile it under."""
    filename = f"<tilegate {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return filename


def _found_in(loaded: Sequence[Loaded], contract: Contract) -> dict[str, Any]:
    """The names by which a call site reaches its artifacts."""
    varying = [name for name, _ in varying_words(contract, loaded)]
    if not varying:
        return {"_tg_entry": loaded[0].library.entry, "_tg_rows": loaded[0].rows.address}
    chosen: dict[object, tuple[Callable[..., int], int]] = {}
    for one in loaded:
        key = tuple(_key_part(name, fixed(one, name), contract) for name in varying)
        chosen.setdefault(key if len(key) > 1 else key[0], (one.library.entry, one.rows.address))
    return {"_tg_find": chosen.get}


def _key_part(name: str, value: Fixed, contract: Contract) -> object:
    import torch  # noqa: PLC0415 - only a serving process has it

    return getattr(torch, str(value)) if name in contract.dtypes else value


def torch_names() -> dict[str, Any]:
    import torch  # noqa: PLC0415
    from torch.autograd import forward_ad  # noqa: PLC0415

    return {
        "_tg_torch": torch,
        "_tg_type": type,
        "_tg_int": int,
        "_tg_isinstance": isinstance,  # slow for torch.Tensor: asked only where the type is none of these
        "_tg_SCALARS": frozenset({bool, int, float, str}),
        "_tg_Tensor": torch.Tensor,
        "_tg_Parameter": torch.nn.Parameter,
        "_tg_empty": torch.empty,
        "_tg_empty_like": torch.empty_like,
        "_tg_grad_enabled": torch.is_grad_enabled,
        "_tg_is_dynamo_compiling": torch.compiler.is_dynamo_compiling,
        "_tg_compiler": torch.compiler,  # the two that is_compiling() asks, without the third of TorchScript
        "_tg_modes": torch._C._len_torch_dispatch_stack,  # noqa: SLF001 - no public name; since torch 2.0
        "_tg_transform": torch._C._functorch.peek_interpreter_stack,  # noqa: SLF001 - likewise
        "_tg_forward": forward_ad,
        "_tg_jit": torch._C._is_tracing,  # noqa: SLF001 - as torch.jit.is_tracing, without its wrapper
        "_tg_autocast": torch._C._is_any_autocast_enabled,  # noqa: SLF001 - likewise, for any device
        "_tg_inference": torch.is_inference_mode_enabled,
        "_tg_touched": torch.autograd.graph.increment_version,
    }
