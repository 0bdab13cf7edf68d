"""Memory for one tensor between canaries and pages that may not be touched.

A write or read past either page ends the worker by a signal; a smaller overrun kills a canary. Both are told
apart from a wrong answer. Layout of one region:

    | no access | canary ... | tensor | slack (canary) | no access |
"""

from __future__ import annotations

import ctypes
import math
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilegate.records.plan import Layout

if TYPE_CHECKING:
    import torch

PAGE = mmap.PAGESIZE
ALIGNED_BYTES = 64
CANARY = 0xC5
GAP = 3
"""Elements between the rows of Layout.GAPPED: no row but the first is aligned."""
_PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Region:
    """One tensor's memory. Keep it as long as the tensor."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, layout: Layout, *, strided: bool = False
    ) -> None:
        """Args:
        shape: of the tensor, in elements.
        dtype: of the tensor.
        layout: how it lies; those of views count only where it is `strided`.
        """
        import torch  # noqa: PLC0415

        view = _View.of(shape, layout if strided else Layout.ALIGNED)
        item = torch.empty((), dtype=dtype).element_size()
        self.size = item * math.prod(view.stored)
        inner = -(-(self.size + 2 * ALIGNED_BYTES) // PAGE) * PAGE
        self._memory = mmap.mmap(-1, inner + 2 * PAGE)
        self._raw: Any = (ctypes.c_ubyte * len(self._memory)).from_buffer(self._memory)
        base = ctypes.addressof(self._raw)
        ctypes.memset(base, CANARY, len(self._memory))
        for page in (base, base + PAGE + inner):
            if _libc.mprotect(page, PAGE, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._start, self._stop = PAGE, PAGE + inner
        self.offset = _place(self._stop, self.size, item, layout)
        self.address = base + self.offset
        self.tensor = view.over(self._stored(view.stored, dtype))

    def fill(self, byte: int) -> None:
        ctypes.memset(self.address, byte, self.size)

    def put(self, values: torch.Tensor) -> None:
        """Write values through the view. Where rows repeat, they are equal."""
        if self.tensor.dim() > 1 and self.tensor.stride(-2) == 0 and self.tensor.numel():
            self.tensor[..., :1, :].copy_(values[..., :1, :])
        else:
            self.tensor.copy_(values)

    def canaries_alive(self) -> bool:
        view = memoryview(self._memory)
        before = bytes(view[self._start : self.offset])
        after = bytes(view[self.offset + self.size : self._stop])
        return before.count(CANARY) == len(before) and after.count(CANARY) == len(after)

    def data(self) -> bytes:
        """All bytes of the tensor's storage, gaps included."""
        return ctypes.string_at(self.address, self.size)

    def _stored(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        import torch  # noqa: PLC0415

        if self.size == 0:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(self._raw, dtype=torch.uint8, count=self.size, offset=self.offset)
        return flat.view(dtype).reshape(shape)


@dataclass(frozen=True, slots=True)
class _View:
    """What is stored, and how the tensor lies in it."""

    stored: tuple[int, ...]
    shape: tuple[int, ...]
    layout: Layout

    @classmethod
    def of(cls, shape: tuple[int, ...], layout: Layout) -> _View:
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


def _place(stop: int, size: int, item: int, layout: Layout) -> int:
    """As close to the closing page as the layout allows: an overrun of one element is then seen."""
    start = stop - size
    if layout is Layout.OFFSET:
        return start - item if start % ALIGNED_BYTES == 0 else start
    return start - start % ALIGNED_BYTES
