"""Where the tensors of an entry lie: each between canaries, so that a write beside it is seen afterwards.

Two arenas keep one promise: pages of the host that may not be touched (`pages`), and a pool on a device
(`pool`). Canaries are written anew before every run, and differ between runs: what is read there and used
makes the runs differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tilegate.records.plan import Layout

if TYPE_CHECKING:
    import torch

ALIGNED_BYTES = 64
GAP = 3
"""Elements between the rows of Layout.GAPPED: no row but the first is aligned."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor to be laid out. The layouts of views count only where it is `strided`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout
    strided: bool = False

    @property
    def view(self) -> View:
        return View.of(self.shape, self.layout if self.strided else Layout.ALIGNED)


class Region(Protocol):
    """One tensor's memory."""

    @property
    def tensor(self) -> torch.Tensor:
        """As a call gets it."""

    def fill(self, byte: int) -> None:
        """Every byte of the tensor's storage, gaps included."""

    def data(self) -> bytes:
        """All bytes of the tensor's storage, gaps included."""


class Arena(Protocol):
    """Memory for the tensors of one entry after another."""

    def lay(self, wanted: Mapping[str, Wanted]) -> Mapping[str, Region]:
        """Room for one entry's tensors. Those of the entry before are gone.

        Raises:
            MemoryError, torch.OutOfMemoryError: there is not as much.
        """

    def stage(self, values: torch.Tensor) -> torch.Tensor:
        """Values of an input, where `put` takes them from without waiting."""

    def guard(self, byte: int) -> None:
        """Write every canary anew."""

    def dead(self) -> tuple[str, ...]:
        """Tensors beside which a canary died since `guard`."""


@dataclass(frozen=True, slots=True)
class View:
    """What is stored, and how the tensor lies in it."""

    stored: tuple[int, ...]
    shape: tuple[int, ...]
    layout: Layout

    @classmethod
    def of(cls, shape: tuple[int, ...], layout: Layout) -> View:
        stored = shape
        if layout is Layout.PERMUTED:
            stored = (*reversed(shape[:-1]), *shape[-1:])
        elif layout is Layout.GAPPED and shape:
            stored = (*shape[:-1], shape[-1] + GAP)
        elif layout is Layout.EXPANDED and len(shape) > 1:
            stored = (*shape[:-2], min(1, shape[-2]), shape[-1])
        return cls(stored, shape, layout)

    def over(self, stored: torch.Tensor) -> torch.Tensor:
        rank = len(self.shape)
        if self.layout is Layout.PERMUTED and rank > 1:
            return stored.permute(*reversed(range(rank - 1)), rank - 1)
        if self.layout is Layout.GAPPED and self.shape:
            return stored[..., : self.shape[-1]]
        return stored.expand(self.shape) if self.layout is Layout.EXPANDED else stored


def put(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Write values through a view. Where rows repeat, they are equal."""
    if tensor.dim() > 1 and tensor.stride(-2) == 0 and tensor.numel():
        tensor[..., :1, :].copy_(values[..., :1, :])
    else:
        tensor.copy_(values)
