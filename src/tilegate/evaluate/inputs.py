"""Inputs of one entry, from its seed alone: the worker and the reference each make their own."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

from tilegate.records.contract import DTYPES, Contract, TensorSpec, ValueRange
from tilegate.records.plan import Entry, Layout, Values

if TYPE_CHECKING:
    import torch

MIXED_BINADES = (-6, 6)

NORMAL_INTEGERS = (1, 65)
"""NORMAL integers are small and positive; zero, negatives and extremes are value classes of their own."""


def make_inputs(contract: Contract, entry: Entry, seed: int) -> dict[str, torch.Tensor]:
    """Contiguous CPU tensors by input name, with the dtypes and extents of the entry's workload.

    The same seed gives the same bytes in every process of one torch version.
    """
    import torch  # noqa: PLC0415 - heavy, and only needed inside jobs

    generator = torch.Generator().manual_seed(seed)
    given = contract.inputs_given(entry.workload.attributes)
    return {t.name: _tensor(contract, t, entry, generator) for t in given}


def extents(tensor: TensorSpec, axes: dict[str, int]) -> tuple[int, ...]:
    return tuple(axes[dim] if isinstance(dim, str) else dim for dim in tensor.dims)


def output_sizes(contract: Contract, entry: Entry) -> tuple[int, ...]:
    """Bytes of each output of an entry."""
    dtypes, axes = entry.workload.dtypes, entry.workload.axes
    return tuple(
        DTYPES[contract.dtype_of(output, dtypes)] * math.prod(extents(output, axes))
        for output in contract.outputs
    )


def digest_inputs(inputs: dict[str, torch.Tensor]) -> str:
    import torch  # noqa: PLC0415

    state = hashlib.sha256()
    for name in sorted(inputs):
        state.update(name.encode() + b"\0")
        state.update(inputs[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return "sha256:" + state.hexdigest()


def _tensor(contract: Contract, spec: TensorSpec, entry: Entry, generator: torch.Generator) -> torch.Tensor:
    import torch  # noqa: PLC0415

    shape = extents(spec, entry.workload.axes)
    dtype: torch.dtype = getattr(torch, contract.dtype_of(spec, entry.workload.dtypes))
    declared = contract.values.get(spec.name)
    if dtype is torch.bool:
        return _expanded(torch.randint(0, 2, shape, generator=generator).to(torch.bool), spec, entry)
    if dtype.is_floating_point:
        values = _floats(shape, dtype, entry.values, declared, generator)
    else:
        values = _integers(shape, dtype, entry.values, declared, generator)
    if declared is not None:
        values = values.clamp(declared.low, declared.high)
    return _expanded(values.to(dtype), spec, entry)


def _expanded(values: torch.Tensor, spec: TensorSpec, entry: Entry) -> torch.Tensor:
    """What stride 0 can hold: rows that are all the first one."""
    if spec.strided and entry.layout is Layout.EXPANDED and values.dim() > 1 and values.numel():
        values = values[..., :1, :].expand(values.shape)
    return values.contiguous()


def _floats(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    values: Values,
    declared: ValueRange | None,
    generator: torch.Generator,
) -> torch.Tensor:
    """Float64 values of one class. Scales leave room for a square: max ** 1/4 for HUGE."""
    import torch  # noqa: PLC0415

    info = torch.finfo(dtype)
    if declared is not None and values is Values.NORMAL:
        span = declared.high - declared.low
        return torch.rand(shape, generator=generator, dtype=torch.float64) * span + declared.low
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    if values in (Values.NAN, Values.INF):
        return _planted(normal, float(values.value), generator)
    if values is Values.NEGATIVE:
        return -normal.abs()
    if values is Values.MIXED:
        return normal * torch.exp2(torch.randint(*MIXED_BINADES, shape, generator=generator).double())
    scale = {Values.ZEROS: 0.0, Values.TINY: info.tiny * 4, Values.HUGE: info.max**0.25}
    return normal * scale.get(values, 1.0)


def _planted(normal: torch.Tensor, value: float, generator: torch.Generator) -> torch.Tensor:
    """The value in the first element and in about one of sixteen others; infinities of both signs."""
    import torch  # noqa: PLC0415

    flat = normal.reshape(-1)
    chosen = torch.rand(flat.shape, generator=generator) < 1 / 16
    chosen[:1] = True
    signs = torch.where(flat < 0, -1.0, 1.0).double()
    return torch.where(chosen, signs * value, flat).reshape(normal.shape)


def _integers(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    values: Values,
    declared: ValueRange | None,
    generator: torch.Generator,
) -> torch.Tensor:
    import torch  # noqa: PLC0415

    info = torch.iinfo(dtype)
    low, high = NORMAL_INTEGERS
    if declared is not None and values is Values.NORMAL:
        low, high = int(declared.low), int(declared.high) + 1
    normal = torch.randint(low, high, shape, generator=generator)
    match values:
        case Values.ZEROS:
            return torch.zeros_like(normal)
        case Values.NEGATIVE:
            return -normal
        case Values.EXTREMES:
            pool = torch.tensor([info.min, info.max, 0, 1, info.max - 1])
            return pool[torch.randint(0, len(pool), shape, generator=generator)]
        case _:
            return normal
