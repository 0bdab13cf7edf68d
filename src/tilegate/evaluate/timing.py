"""How long calls take on a GPU: an artifact and its reference, each in a job of its own. Facts, no verdicts.

Between two timed calls more than the second-level cache holds is read, so inputs come from memory; work that is
queued in front keeps the host out of what events measure. The parent's clock bounds what a job may claim.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilegate.evaluate.inputs import extents, make_inputs
from tilegate.evaluate.requests import Measured, Numbered, TimingRequest
from tilegate.evaluate.run import Subject
from tilegate.library import Rows, open_library
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.contract import Contract
from tilegate.records.evaluation import EntryVerdict, Evaluation
from tilegate.records.evidence import Timing
from tilegate.records.isolation import JobPolicy
from tilegate.records.plan import Origin, Plan
from tilegate.sandbox import Ending, Job, JobResult, importer, run_job

if TYPE_CHECKING:
    import torch

MAX_TIMED = 16
"""Served workloads of one artifact, the first ones that passed."""
WARM_CALLS = 3
BATCH = 10
"""Timed calls behind one delay."""
MAX_RUNS = 100
BUDGET_S = 1.0
"""Of one entry, after which no further batch begins."""
DELAY_CYCLES = 10_000_000
"""Of a kernel that only waits, in front of a batch: about 5 ms, in which the host queues all of it."""

Call = Callable[[], object]


def time_served(
    subject: Subject, plan: Plan, evaluation: Evaluation, policy: JobPolicy
) -> tuple[Timing, ...]:
    """Medians of the served workloads that passed, of the artifact and of the reference beside it.

    A job that fails times nothing: the verdicts are known already.
    """
    passed = {r.index for r in evaluation.results if r.verdict is EntryVerdict.PASSED}
    entries = tuple(
        Numbered(index=i, seed=plan.seed(i), entry=entry)
        for i, entry in enumerate(plan.entries)
        if i in passed and entry.origin is Origin.SERVED
    )[:MAX_TIMED]
    if not entries:
        return ()
    ours = _measured(
        TimingRequest(
            contract=subject.contract,
            entries=entries,
            identity=subject.manifest.identity,
            symbols=subject.manifest.symbols,
        ),
        {"library": subject.library},
        policy,
    )
    theirs = _measured(
        TimingRequest(
            contract=subject.contract, entries=entries, operator=subject.operator, files=subject.files
        ),
        {f"source.{i}": subject.sources[file.digest] for i, file in enumerate(subject.files)},
        policy,
    )
    return tuple(_timing(one, theirs.get(index)) for index, one in sorted(ours.items()))


def _timing(ours: Measured, reference: Measured | None) -> Timing:
    return Timing(
        index=ours.index,
        runs=ours.runs,
        device_ns=ours.device_ns,
        wall_ns=ours.wall_ns,
        reference_device_ns=reference.device_ns if reference else None,
        reference_wall_ns=reference.wall_ns if reference else None,
    )


def _measured(request: TimingRequest, blobs: Mapping[str, bytes], policy: JobPolicy) -> dict[int, Measured]:
    job = Job(task="tilegate.evaluate.timing:work", inputs={"request": encode(request), **blobs})
    result = run_job(job, policy)
    asked = {one.index for one in request.entries}
    found = {one.index: one for one in _told(result) if one.index in asked}
    return found if _possible(found.values(), result.wall_s) else {}


def _told(result: JobResult) -> Iterator[Measured]:
    if result.ending is Ending.FINISHED:
        for name, data in result.frames:
            if name == "measured":
                yield decode(Measured, data, where="what a timing job says")


def _possible(found: Sequence[Measured] | Any, wall_s: float) -> bool:
    """Nobody computes for longer than he was there, or takes no time at all."""
    total = sum(one.runs * one.device_ns for one in found)
    return total <= wall_s * 1e9 and all(one.runs > 0 and one.device_ns > 0 for one in found)


# Inside the job


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """Sends one `measured` frame for each entry that can be called."""
    request = decode(TimingRequest, inputs["request"], where="timing request")
    caller = _artifact(request, inputs) if request.identity else _reference(request, inputs)
    meter = _Meter()
    for numbered in request.entries:
        call = caller(numbered)
        runs, device_ns, wall_ns = meter.measure(call)
        emit(
            "measured",
            encode(Measured(index=numbered.index, runs=runs, device_ns=device_ns, wall_ns=wall_ns)),
        )


def _artifact(request: TimingRequest, inputs: Mapping[str, bytes]) -> Callable[[Numbered], Call]:
    import torch  # noqa: PLC0415

    library = open_library(inputs["library"], identity=request.identity)
    rows = Rows.admitting_all(request.symbols)

    def caller(numbered: Numbered) -> Call:
        workload = numbered.entry.workload
        made = _on_device(request.contract, numbered)
        tensors = [
            made[t.name]
            if t.name in made
            else torch.empty(
                extents(t, workload.axes),
                dtype=getattr(torch, request.contract.dtype_of(t, workload.dtypes)),
                device="cuda",
            )
            for t in request.contract.arguments_given(workload.attributes)
        ]
        return lambda: library.entry(*tensors, rows.address)

    return caller


def _reference(request: TimingRequest, inputs: Mapping[str, bytes]) -> Callable[[Numbered], Call]:
    sources = {digest_of(data): data for name, data in inputs.items() if name.startswith("source.")}
    importer.install(request.files, sources)
    module, _, name = request.operator.partition(":")
    reference = getattr(importlib.import_module(module), name).reference

    def caller(numbered: Numbered) -> Call:
        made = _on_device(request.contract, numbered)
        chosen = numbered.entry.workload.attributes
        attributes = {a.name: chosen[a.name] for a in request.contract.attributes if a.name in chosen}
        return lambda: reference(**made, **attributes)

    return caller


def _on_device(contract: Contract, numbered: Numbered) -> dict[str, torch.Tensor]:
    made = make_inputs(contract, numbered.entry, numbered.seed)
    return {name: values.to("cuda") for name, values in made.items()}


class _Meter:
    """Medians of calls on the GPU."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415

        self._torch: Any = torch
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self._swept = torch.ones(2 * l2_bytes // 4, dtype=torch.int32, device="cuda")

    def measure(self, call: Call) -> tuple[int, int, int]:
        """Runs, median of device_ns, and wall_ns of a call."""
        torch = self._torch
        with torch.no_grad():
            for _ in range(WARM_CALLS):
                call()
            torch.cuda.synchronize()
            until = time.monotonic() + BUDGET_S
            spans: list[int] = []
            while len(spans) < MAX_RUNS and (not spans or time.monotonic() < until):
                spans += self._batch(call)
            return len(spans), round(statistics.median(spans)), self._row(call, until)

    def _batch(self, call: Call) -> list[int]:
        torch = self._torch
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(BATCH)]
        torch.cuda._sleep(DELAY_CYCLES)  # noqa: SLF001 - torch's own tests use it for this
        for start, stop in events:
            self._swept.sum()
            start.record()
            call()
            stop.record()
        torch.cuda.synchronize()
        return [round(start.elapsed_time(stop) * 1e6) for start, stop in events]

    def _row(self, call: Call, until: float) -> int:
        rows: list[int] = []
        while len(rows) < MAX_RUNS // BATCH and (not rows or time.monotonic() < until + BUDGET_S):
            start = time.perf_counter_ns()
            for _ in range(BATCH):
                call()
            self._torch.cuda.synchronize()
            rows.append((time.perf_counter_ns() - start) // BATCH)
        return round(statistics.median(rows))
