"""The worker that opens an artifact and runs it. It has neither the reference nor an expected value.

Runs inside the sandbox. Each entry runs twice or more on poisoned outputs: elements that keep every poison were
not written, elements that differ depend on something other than the inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tilegate.errors import ToolError
from tilegate.evaluate.arena import Arena, Region, Wanted, put
from tilegate.evaluate.inputs import digest_inputs, extents, make_inputs
from tilegate.evaluate.launches import Launches, OnCuda, OnHost
from tilegate.evaluate.pages import GuardedPages
from tilegate.evaluate.pool import Pool
from tilegate.evaluate.requests import Numbered, RunRequest
from tilegate.evaluate.seen import Seen, image
from tilegate.library import Rows, open_library
from tilegate.records.canonical import decode, encode
from tilegate.records.contract import Contract
from tilegate.records.evidence import Facts
from tilegate.records.miss import GUARD_CODES, MissReason

if TYPE_CHECKING:
    import torch

POISONS = (0xFF, 0x7B, 0xA6)
"""Bytes of outputs in the first run and the next: NaN, then a large finite number, in every floating dtype."""
CANARIES = (0xC5, 0x3B, 0x6D)
"""Bytes beside tensors, likewise: read as numbers of any dtype they differ."""
SPOILT = 0xC5
"""Bytes of inputs before they are put, and of what lies between the rows of a view."""

STICKY = GUARD_CODES.index(MissReason.STICKY)

DEVICE_FAULTS = {
    "illegal memory access": "illegal address",
    "misaligned address": "misaligned address",
    "illegal instruction": "illegal instruction",
    "invalid program counter": "invalid program counter",
    "hardware stack error": "hardware stack error",
    "device-side assert": "device assert",
    "launch timed out": "launch timed out",
    "launch failure": "launch failure",
    "captur": "stream capture",
}
"""What is found in a message of the device's runtime, and what is told of it."""
DEVICE_FAULT = "device fault"
"""Of any other message."""

Entry = Callable[..., int]
Emit = Callable[[str, bytes], None]


def work(inputs: Mapping[str, bytes], emit: Emit) -> None:
    """For each entry: a `begin` frame, then `facts`, then one `output` frame for each output.

    Where the device fails: `fault` with a word of `DEVICE_FAULTS`, and the end of this process, for nothing
    runs any more in one whose device has failed.
    """
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    request = decode(RunRequest, inputs["request"], where="run request")
    arena, launches = _place(request.backend)
    library = open_library(inputs["library"], identity=request.identity)
    rows = Rows.admitting_all(request.symbols)

    def entry(*tensors: Any) -> int:
        return library.entry(*tensors, rows.address)

    run_entries(request.contract, request.entries, entry, arena, launches, emit)


def run_entries(
    contract: Contract,
    entries: Iterable[Numbered],
    entry: Entry,
    arena: Arena,
    launches: Launches,
    emit: Emit,
) -> None:
    """Run entries in turn, and send what came of each.

    Args:
        contract: of the operator.
        entries: to be run.
        entry: `entry(tensor...)`, 0 or a refusal.
        arena: where tensors lie.
        launches: how calls are made.
        emit: takes frames as `work` says.

    Raises:
        ToolError: the device failed; the frames before tell at which entry.
    """
    for numbered in entries:
        emit("begin", str(numbered.index).encode())
        try:
            facts, outputs = _Trials(contract, numbered, entry, arena).run(launches)
        except RuntimeError as error:
            word = fault_word(error)
            emit("fault", word.encode())
            raise ToolError(f"the device failed: {word}") from error
        emit("facts", encode(facts))
        for data in outputs:
            emit("output", data)


def fault_word(error: RuntimeError) -> str:
    """A word of ours for what torch says of a device, in the first line; what follows is advice."""
    said = str(error).partition("\n")[0].lower()
    return next((word for pattern, word in DEVICE_FAULTS.items() if re.search(pattern, said)), DEVICE_FAULT)


def _place(backend: str) -> tuple[Arena, Launches]:
    if backend == "cpu":
        return GuardedPages(), OnHost()
    return Pool("cuda"), OnCuda()


class _Trials:
    """All runs of one entry, each a `launches.Trial`."""

    def __init__(self, contract: Contract, numbered: Numbered, entry: Entry, arena: Arena) -> None:
        self._contract, self._numbered, self._entry, self._arena = contract, numbered, entry, arena
        self._arguments = contract.arguments_given(numbered.entry.workload.attributes)
        self._wanted: dict[str, Wanted] = {}
        self._regions: Mapping[str, Region] = {}
        self._inputs: dict[str, torch.Tensor] = {}
        self._run = -1

    def run(self, launches: Launches) -> tuple[Facts, list[bytes]]:
        import torch  # noqa: PLC0415

        made = make_inputs(self._contract, self._numbered.entry, self._numbered.seed)
        facts = Facts(index=self._numbered.index, inputs=digest_inputs(made))
        try:
            self._lay(made)
        except (MemoryError, torch.OutOfMemoryError) as error:
            return Facts(index=facts.index, inputs=facts.inputs, failed=type(error).__name__), []
        before = {name: image(self._wanted[name], values, SPOILT) for name, values in made.items()}
        seen = Seen(self._contract, facts, before, POISONS)
        for number, launch in enumerate(launches.under(self._numbered.entry.condition)):
            self._run = number
            refusal = launch(self)
            if refusal & 0xFF == STICKY:
                raise RuntimeError("the device's context is lost")
            if refusal:
                return Facts(index=facts.index, inputs=facts.inputs, refusal=refusal), []
            seen.look(self._regions, self._arena.dead())
        return seen.facts(), seen.outputs()

    # launches.Trial

    def spoil(self) -> None:
        for name, region in self._regions.items():
            region.fill(SPOILT if name in self._inputs else POISONS[self._run])
        self._arena.guard(CANARIES[self._run])

    def put(self) -> None:
        for name, values in self._inputs.items():
            put(self._regions[name].tensor, values)

    def call(self) -> int:
        return self._entry(*(self._regions[t.name].tensor for t in self._arguments))

    def _lay(self, made: dict[str, torch.Tensor]) -> None:
        import torch  # noqa: PLC0415

        workload, layout = self._numbered.entry.workload, self._numbered.entry.layout
        self._wanted = {
            t.name: Wanted(
                extents(t, workload.axes),
                getattr(torch, self._contract.dtype_of(t, workload.dtypes)),
                layout,
                strided=t.strided,
            )
            for t in self._arguments
        }
        self._regions = self._arena.lay(self._wanted)
        self._inputs = {name: self._arena.stage(values) for name, values in made.items()}
