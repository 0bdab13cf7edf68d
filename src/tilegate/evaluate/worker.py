"""The worker that opens an artifact and runs it. It has neither the reference nor an expected value.

Runs inside the sandbox. Each entry runs twice on poisoned outputs: elements that keep both poisons were not
written, elements that differ depend on something other than the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from tilegate.evaluate.arena import Region
from tilegate.evaluate.inputs import digest_inputs, extents, make_inputs
from tilegate.evaluate.requests import Facts, Numbered, RunRequest
from tilegate.library import Library, Rows, open_library
from tilegate.records.canonical import decode, encode
from tilegate.records.contract import Contract

if TYPE_CHECKING:
    import torch

POISONS = (0xFF, 0x7B)
"""Bytes of the two runs: NaN, then a large finite number, in every floating dtype; -1 and 123 elsewhere."""


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """For each entry: a `begin` frame, then `facts`, then one `output` frame for each output."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    request = decode(RunRequest, inputs["request"], where="run request")
    library = open_library(inputs["library"], identity=request.identity)
    rows = Rows.admitting_all(request.symbols)
    for numbered in request.entries:
        emit("begin", str(numbered.index).encode())
        facts, outputs = _run_entry(request.contract, numbered, library, rows)
        emit("facts", encode(facts))
        for data in outputs:
            emit("output", data)


def _run_entry(
    contract: Contract, numbered: Numbered, library: Library, rows: Rows
) -> tuple[Facts, list[bytes]]:
    import torch  # noqa: PLC0415

    made = make_inputs(contract, numbered.entry, numbered.seed)
    workload, layout = numbered.entry.workload, numbered.entry.layout
    arguments = contract.arguments_given(workload.attributes)
    regions = {
        t.name: Region(
            extents(t, workload.axes),
            getattr(torch, contract.dtype_of(t, workload.dtypes)),
            layout,
            strided=t.strided,
        )
        for t in arguments
    }
    runs: list[dict[str, bytes]] = []
    before: dict[str, bytes] = {}
    for poison in POISONS:
        for name, region in regions.items():
            if name in made:
                region.put(made[name])
                before[name] = region.data()
            else:
                region.fill(poison)
        tensors = [regions[t.name].tensor for t in arguments]
        refusal = library.entry(*tensors, rows.address)
        if refusal:
            facts = Facts(index=numbered.index, inputs=digest_inputs(made), refusal=refusal)
            return facts, []
        runs.append({o.name: regions[o.name].data() for o in contract.outputs})
    facts = _facts(contract, numbered.index, regions, before, runs)
    return structs.replace(facts, inputs=digest_inputs(made)), list(runs[0].values())


def _facts(
    contract: Contract,
    index: int,
    regions: dict[str, Region],
    before: dict[str, bytes],
    runs: list[dict[str, bytes]],
) -> Facts:
    unwritten: dict[str, int] = {}
    unstable: dict[str, int] = {}
    for output in contract.outputs:
        item = regions[output.name].tensor.element_size()
        first, second = (_words(run[output.name], item) for run in runs)
        poisoned = first.eq(_poison(POISONS[0], item)) & second.eq(_poison(POISONS[1], item))
        if output.name not in contract.in_place and bool(poisoned.any()):
            unwritten[output.name] = int(poisoned.sum())
        differs = first.ne(second) & ~poisoned
        if bool(differs.any()):
            unstable[output.name] = int(differs.sum())
    read_only = [name for name in before if name not in contract.in_place]
    return Facts(
        index=index,
        inputs="",
        outside=tuple(name for name, region in regions.items() if not region.canaries_alive()),
        modified=tuple(n for n in read_only if before[n] != regions[n].data()),
        unwritten=unwritten,
        unstable=unstable,
    )


def _words(data: bytes, item: int) -> torch.Tensor:
    """Elements as integers of their own width: NaNs compare like any other bits."""
    import torch  # noqa: PLC0415

    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[item]
    return torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)


def _poison(byte: int, item: int) -> int:
    return byte if item == 1 else int.from_bytes(bytes([byte]) * item, "little", signed=True)
