"""The host's arena: each tensor between canaries and pages that may not be touched.

A write or read past either page ends the worker by a signal; a smaller overrun kills a canary. Both are told
apart from a wrong answer. Layout of one region:

    | no access | canary ... | tensor | slack (canary) | no access |
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilegate.evaluate.arena import ALIGNED_BYTES, Wanted
from tilegate.records.plan import Layout

if TYPE_CHECKING:
    import torch

PAGE = mmap.PAGESIZE
_PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class GuardedPages:
    """An arena of the host's memory."""

    def __init__(self) -> None:
        self._regions: dict[str, _Region] = {}
        self._canary = 0

    def lay(self, wanted: Mapping[str, Wanted]) -> Mapping[str, _Region]:
        self._regions = {}  # the old ones go first
        self._regions = {name: _Region(one) for name, one in wanted.items()}
        return self._regions

    def stage(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def guard(self, byte: int) -> None:
        self._canary = byte
        for region in self._regions.values():
            region.guard(byte)

    def dead(self) -> tuple[str, ...]:
        return tuple(name for name, region in self._regions.items() if not region.alive(self._canary))


class _Region:
    """One tensor's memory. Keep it as long as the tensor."""

    def __init__(self, wanted: Wanted) -> None:
        import torch  # noqa: PLC0415

        view = wanted.view
        item = torch.empty((), dtype=wanted.dtype).element_size()
        self.size = item * math.prod(view.stored)
        inner = -(-(self.size + 2 * ALIGNED_BYTES) // PAGE) * PAGE
        self._memory = mmap.mmap(-1, inner + 2 * PAGE)
        self._raw: Any = (ctypes.c_ubyte * len(self._memory)).from_buffer(self._memory)
        self._base = ctypes.addressof(self._raw)
        for page in (self._base, self._base + PAGE + inner):
            if _libc.mprotect(page, PAGE, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._start, self._stop = PAGE, PAGE + inner
        self.offset = _place(self._stop, self.size, item, wanted.layout)
        self.address = self._base + self.offset
        self.tensor = view.over(self._stored(view.stored, wanted.dtype))

    def fill(self, byte: int) -> None:
        ctypes.memset(self.address, byte, self.size)

    def data(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def guard(self, byte: int) -> None:
        for start, stop in self._canaries():
            ctypes.memset(self._base + start, byte, stop - start)

    def alive(self, byte: int) -> bool:
        view = memoryview(self._memory)
        zones = [bytes(view[start:stop]) for start, stop in self._canaries()]
        return all(zone.count(byte) == len(zone) for zone in zones)

    def _canaries(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self._start, self.offset), (self.offset + self.size, self._stop)

    def _stored(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        import torch  # noqa: PLC0415

        if self.size == 0:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(self._raw, dtype=torch.uint8, count=self.size, offset=self.offset)
        return flat.view(dtype).reshape(shape)


def _place(stop: int, size: int, item: int, layout: Layout) -> int:
    """As close to the closing page as the layout allows: an overrun of one element is then seen."""
    start = stop - size
    if layout is Layout.OFFSET:
        return start - item if start % ALIGNED_BYTES == 0 else start
    return start - start % ALIGNED_BYTES
