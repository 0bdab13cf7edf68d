"""A device's arena: one allocation, grown as needed, with each tensor between zones of canaries.

On a GPU a write beside a tensor succeeds and says nothing, as long as it hits memory of the same process: a
pool makes sure that it does, and that what it hits is a canary. Layout of the pool:

    | zone | tensor | rest to 512, zone | tensor | rest to 512, zone | ...

What it does not see: writes that fly over a zone and land in a tensor (they are told as a modified input or a
wrong answer), or outside the pool; and reads whose values are not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilegate.evaluate.arena import Wanted
from tilegate.records.plan import Layout

if TYPE_CHECKING:
    import torch

GRAIN = 512
"""What allocators of GPUs align to. A tensor's zone begins right behind its last byte, and ends at a grain."""

ZONE_BYTES = 64 * 1024
"""On each side of a tensor at least: whole rows and tiles of most kernels, and next to nothing to compare."""


@dataclass(frozen=True, slots=True)
class _Region:
    flat: torch.Tensor
    """The tensor's storage, as bytes."""
    tensor: torch.Tensor

    def fill(self, byte: int) -> None:
        self.flat.fill_(byte)

    def data(self) -> bytes:
        data: bytes = self.flat.cpu().numpy().tobytes()
        return data


class Pool:
    """An arena on a device of torch's.

    Args:
        device: `cuda`, or `cpu`, where the same code runs on tensors of the host.
    """

    def __init__(self, device: str) -> None:
        import torch  # noqa: PLC0415

        self._device = device
        self._bytes = torch.empty(0, dtype=torch.uint8, device=device)
        self._zones: list[tuple[str, torch.Tensor]] = []
        """Whose a zone is, and its bytes. The zone between two tensors is in halves."""
        self._canary = 0

    def lay(self, wanted: Mapping[str, Wanted]) -> Mapping[str, _Region]:
        self._zones = []
        places: dict[str, tuple[int, int]] = {}
        at = ZONE_BYTES
        for name, one in wanted.items():
            item = one.dtype.itemsize
            start = at + (item if one.layout is Layout.OFFSET else 0)
            places[name] = start, start + item * math.prod(one.view.stored)
            at = -(-(places[name][1] + 2 * ZONE_BYTES) // GRAIN) * GRAIN
        self._grow(at)
        self._zones = list(self._divided(places, at))
        return {name: self._region(wanted[name], *place) for name, place in places.items()}

    def stage(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self._device)

    def guard(self, byte: int) -> None:
        self._canary = byte
        for _, zone in self._zones:
            zone.fill_(byte)

    def dead(self) -> tuple[str, ...]:
        """One answer is waited for, however many zones there are."""
        import torch  # noqa: PLC0415

        if not self._zones:
            return ()
        marks = torch.stack([zone.ne(self._canary).any() for _, zone in self._zones]).tolist()
        found = [name for (name, _), mark in zip(self._zones, marks, strict=True) if mark]
        return tuple(dict.fromkeys(found))

    def _grow(self, size: int) -> None:
        import torch  # noqa: PLC0415

        if size > self._bytes.numel():
            self._bytes = torch.empty(0, dtype=torch.uint8, device=self._device)  # the old one goes first
            self._bytes = torch.empty(size, dtype=torch.uint8, device=self._device)

    def _divided(self, places: Mapping[str, tuple[int, int]], size: int) -> list[tuple[str, torch.Tensor]]:
        zones: list[tuple[str, torch.Tensor]] = []
        names = list(places)
        before = 0
        for name, following in zip(names, [*names[1:], None], strict=True):
            start, stop = places[name]
            end = size if following is None else (stop + places[following][0]) // 2
            zones += [(name, self._bytes[before:start]), (name, self._bytes[stop:end])]
            before = end
        return zones

    def _region(self, wanted: Wanted, start: int, stop: int) -> _Region:
        flat = self._bytes[start:stop]
        view = wanted.view
        return _Region(flat, view.over(flat.view(wanted.dtype).reshape(view.stored)))
