"""The job that runs the reference: in float64 and in the tensors' own dtypes. It has no artifact.

Where values are hard it runs the reference in float64 again, on inputs off by about their last bit: how far
that carries is what rounding may cost anybody. One run in the tensors' own dtypes may have been lucky.

Runs inside the sandbox, since a reference is its author's Python.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilegate.evaluate.inputs import digest_inputs, make_inputs
from tilegate.evaluate.requests import Numbered, ReferenceRequest
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.contract import EPSILON, Contract
from tilegate.records.evidence import Facts
from tilegate.records.plan import Values
from tilegate.sandbox import importer

if TYPE_CHECKING:
    import torch

NUDGES = 3
"""Of right answers of an attention with MIXED values 60 of 8000 were told WRONG without, 1 with two of them."""


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """For each entry: `facts`, then for each output its float64 bytes (`wide`), those of each nudge (`nudged`),
    and its own bytes (`own`).
    """
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    request = decode(ReferenceRequest, inputs["request"], where="reference request")
    sources = {digest_of(data): data for name, data in inputs.items() if name != "request"}
    importer.install(request.files, sources)
    module, _, name = request.operator.partition(":")
    reference = getattr(importlib.import_module(module), name).reference
    for numbered in request.entries:
        made = make_inputs(request.contract, numbered.entry, numbered.seed)
        digest = digest_inputs(made)
        try:
            with torch.no_grad():
                own = _call(reference, request.contract, numbered, made)
                widened = {name: _widen(tensor) for name, tensor in made.items()}
                wide = _call(reference, request.contract, numbered, widened)
                nudges = [
                    _call(reference, request.contract, numbered, inputs)
                    for inputs in _nudged(request.contract, numbered, widened)
                ]
        except Exception as error:  # noqa: BLE001 - a reference may raise anything; its class is all we keep
            failed = type(error).__name__
            emit("facts", encode(Facts(index=numbered.index, inputs=digest, failed=failed)))
            continue
        emit("facts", encode(Facts(index=numbered.index, inputs=digest)))
        for a, b, *others in zip(wide, own, *nudges, strict=True):
            emit("wide", _raw(a.to(torch.float64)))
            for other in others:
                emit("nudged", _raw(other.to(torch.float64)))
            emit("own", _raw(b))


def _call(
    reference: Callable[..., Any], contract: Contract, numbered: Numbered, made: dict[str, torch.Tensor]
) -> list[torch.Tensor]:
    arguments = {name: tensor.clone() for name, tensor in made.items()}
    chosen = numbered.entry.workload.attributes
    attributes = {a.name: chosen[a.name] for a in contract.attributes if a.name in chosen}
    returned = reference(**arguments, **attributes)
    values = returned if isinstance(returned, tuple) else (returned,)
    if len(values) != len(contract.outputs):
        raise TypeError("number of outputs")
    return [
        arguments[o.name] if o.name in contract.in_place else value
        for o, value in zip(contract.outputs, values, strict=True)
    ]


def _nudged(
    contract: Contract, numbered: Numbered, widened: dict[str, torch.Tensor]
) -> Iterator[dict[str, torch.Tensor]]:
    """The inputs with a relative error of the accumulating dtype's spacing, other ones each time."""
    import torch  # noqa: PLC0415

    if numbered.entry.values is Values.NORMAL:
        return
    generator = torch.Generator().manual_seed(numbered.seed ^ 1)  # other numbers than the inputs'
    spacing = EPSILON.get(contract.tolerance.accumulate, 0.0)
    for _ in range(NUDGES):
        yield {
            name: tensor * (1 + spacing * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype))
            if tensor.is_floating_point()
            else tensor
            for name, tensor in widened.items()
        }


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _raw(tensor: torch.Tensor) -> bytes:
    import torch  # noqa: PLC0415

    data: bytes = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return data
