"""What the runs of one entry left in memory, compared: with each other, with the poison, with the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from tilegate.evaluate.arena import Region, Wanted, put
from tilegate.records.contract import Contract
from tilegate.records.evidence import Facts

if TYPE_CHECKING:
    import torch


class Seen:
    """Takes a look after every run.

    Args:
        contract: of the operator.
        facts: index and inputs of the entry.
        before: bytes of every input's storage, as it was put.
        poisons: what outputs were filled with, run by run.
    """

    def __init__(
        self, contract: Contract, facts: Facts, before: Mapping[str, bytes], poisons: Sequence[int]
    ) -> None:
        self._contract, self._known, self._poisons = contract, facts, poisons
        self._before = {name: data for name, data in before.items() if name not in contract.in_place}
        self._runs: list[dict[str, bytes]] = []
        self._items: dict[str, int] = {}
        self._outside: dict[str, None] = {}
        self._modified: dict[str, None] = {}

    def look(self, regions: Mapping[str, Region], dead: Sequence[str]) -> None:
        self._outside.update(dict.fromkeys(dead))
        changed = [name for name, data in self._before.items() if regions[name].data() != data]
        self._modified.update(dict.fromkeys(changed))
        self._runs.append({o.name: regions[o.name].data() for o in self._contract.outputs})
        self._items = {o.name: regions[o.name].tensor.element_size() for o in self._contract.outputs}

    def outputs(self) -> list[bytes]:
        """Of the first run, which is a plain one."""
        return list(self._runs[0].values())

    def facts(self) -> Facts:
        unwritten: dict[str, int] = {}
        unstable: dict[str, int] = {}
        for name, item in self._items.items():
            left, differ = self._compared(name, item)
            if left and name not in self._contract.in_place:
                unwritten[name] = left
            if differ:
                unstable[name] = differ
        return structs.replace(
            self._known,
            outside=tuple(self._outside),
            modified=tuple(self._modified),
            unwritten=unwritten,
            unstable=unstable,
        )

    def _compared(self, name: str, item: int) -> tuple[int, int]:
        """Elements that kept the poison of every run, and those that differ otherwise."""
        runs = [_words(run[name], item) for run in self._runs]
        kept = runs[0].eq(_poison(self._poisons[0], item))
        for run, poison in zip(runs[1:], self._poisons[1:], strict=False):
            kept &= run.eq(_poison(poison, item))
        differs = runs[0].ne(runs[1])
        for run in runs[2:]:
            differs |= runs[0].ne(run)
        return int(kept.sum()), int((differs & ~kept).sum())


def image(wanted: Wanted, values: torch.Tensor, byte: int) -> bytes:
    """The bytes of a tensor's storage once values were put into it; `byte` stands in the gaps of a view."""
    import torch  # noqa: PLC0415

    view = wanted.view
    stored = torch.empty(view.stored, dtype=wanted.dtype)
    flat = stored.reshape(-1).view(torch.uint8)
    flat.fill_(byte)
    put(view.over(stored), values)
    data: bytes = flat.numpy().tobytes()
    return data


def _words(data: bytes, item: int) -> torch.Tensor:
    """Elements as integers of their own width: NaNs compare like any other bits."""
    import torch  # noqa: PLC0415

    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[item]
    return torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)


def _poison(byte: int, item: int) -> int:
    return byte if item == 1 else int.from_bytes(bytes([byte]) * item, "little", signed=True)
