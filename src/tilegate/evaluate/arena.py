"""Memory for one tensor between canaries and pages that may not be touched.

A write or read past either page ends the worker by a signal; a smaller overrun kills a canary. Both are told
apart from a wrong answer. Layout of one region:

    | no access | canary ... | tensor | slack (canary) | no access |
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

from tilegate.records.plan import Layout

if TYPE_CHECKING:
    import torch

PAGE = mmap.PAGESIZE
ALIGNED_BYTES = 64
CANARY = 0xC5
_PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Region:
    """One tensor's memory. Keep it as long as the tensor."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, layout: Layout) -> None:
        import torch  # noqa: PLC0415

        item = torch.empty((), dtype=dtype).element_size()
        self.size = item
        for extent in shape:
            self.size *= extent
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
        self.tensor = _view(self._raw, self.offset, self.size, shape, dtype)

    def fill(self, byte: int) -> None:
        ctypes.memset(self.address, byte, self.size)

    def canaries_alive(self) -> bool:
        view = memoryview(self._memory)
        before = bytes(view[self._start : self.offset])
        after = bytes(view[self.offset + self.size : self._stop])
        return before.count(CANARY) == len(before) and after.count(CANARY) == len(after)

    def data(self) -> bytes:
        return ctypes.string_at(self.address, self.size)


def _place(stop: int, size: int, item: int, layout: Layout) -> int:
    """As close to the closing page as the layout allows: an overrun of one element is then seen."""
    start = stop - size
    if layout is Layout.ALIGNED:
        return start - start % ALIGNED_BYTES
    return start - item if start % ALIGNED_BYTES == 0 else start


def _view(raw: Any, offset: int, size: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    import torch  # noqa: PLC0415

    if size == 0:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(raw, dtype=torch.uint8, count=size, offset=offset)
    return flat.view(dtype).reshape(shape)
