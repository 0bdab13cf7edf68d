"""One plan on one device: the artifact's worker, the reference's job, the judge between them.

The two jobs never meet. A worker that crashes or hangs ends one entry, and another worker goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from tilegate.errors import ToolError
from tilegate.evaluate.inputs import output_sizes
from tilegate.evaluate.judge import Expected, judge
from tilegate.evaluate.requests import Numbered, ReferenceRequest, RunRequest
from tilegate.evaluate.worker import DEVICE_FAULT, DEVICE_FAULTS
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import decode, encode
from tilegate.records.closure import SourceFile
from tilegate.records.contract import Contract
from tilegate.records.evaluation import EntryResult, EntryVerdict, Evaluation, Vouch
from tilegate.records.evidence import Facts
from tilegate.records.isolation import Isolation, JobPolicy, Level
from tilegate.records.plan import Entry, Plan
from tilegate.records.target import DeviceClass
from tilegate.sandbox import Ending, Job, JobResult, last_words, run_job
from tilegate.sandbox.policy import EVALUATE, REFERENCE

CHUNK_BYTES = 192 * 2**20
"""Outputs held in memory at a time."""

MEMORY_ERRORS = ("MemoryError", "OutOfMemoryError")
"""What a worker may say kept it from trying an entry."""

MAX_LOST_WORKERS = 6
"""A kernel that crashed or hung this often is not asked again: what did not run has not passed."""

Progress = Callable[[int], None]

Observe = Callable[[Facts, Sequence[bytes]], None]
"""Told of each entry that ran to its end: what was seen, and the outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is evaluated, and the reference it is held against."""

    contract: Contract
    manifest: Manifest
    library: bytes
    operator: str
    """`package.module:function` of the reference."""
    files: tuple[SourceFile, ...]
    sources: Mapping[str, bytes]


@dataclass(slots=True)
class _Run:
    """What one chunk's worker left behind."""

    facts: dict[int, Facts]
    outputs: dict[int, list[bytes]]
    lost: dict[int, EntryResult]
    isolation: Isolation
    fault: str = ""
    """What the worker that ended last said of the device."""


def evaluate(
    subject: Subject,
    plan: Plan,
    device: DeviceClass,
    versions: dict[str, str],
    *,
    policy: JobPolicy = EVALUATE,
    progress: Progress = lambda _: None,
    observe: Observe = lambda *_: None,
) -> Evaluation:
    """Run every entry of the plan and judge it.

    Args:
        subject: the artifact and its reference.
        plan: what it must face.
        device: where the worker runs, recorded in the evaluation.
        versions: likewise.
        policy: of the worker; the reference gets one of its own at the same level, or without a GPU.
        progress: told how many entries are judged.
        observe: given what the judge is given.

    Raises:
        ToolError: the jobs could not do their work, or did not make the same inputs.
    """
    numbered = [Numbered(index=i, seed=plan.seed(i), entry=e) for i, e in enumerate(plan.entries)]
    results: list[EntryResult] = []
    isolation: Isolation | None = None
    lost = 0
    for chunk in chunks(subject.contract, numbered):
        if lost >= MAX_LOST_WORKERS:
            break
        run = _run_artifact(subject, chunk, policy, MAX_LOST_WORKERS - lost)
        lost += len(run.lost)
        results += _judge_chunk(subject, chunk, run, policy.level)
        for index in sorted(run.facts):
            observe(run.facts[index], run.outputs[index])
        isolation = run.isolation
        progress(len(results))
    if isolation is None:
        raise ToolError(
            "the plan is empty", next_step="declare served workloads, or evaluate a kernel with axes"
        )
    return Evaluation(
        contract=plan.contract,
        manifest=plan.manifest,
        library=subject.manifest.library.digest,
        plan=plan.digest,
        device=device,
        versions=versions,
        isolation=isolation,
        vouch=Vouch.OBSERVED,
        results=tuple(results),
    )


def chunks(contract: Contract, numbered: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    """In order, with as many outputs in each as are held in memory at a time."""
    chunk: list[Numbered] = []
    held = 0
    for one in numbered:
        size = sum(output_sizes(contract, one.entry))
        if chunk and held + size > CHUNK_BYTES:
            yield chunk
            chunk, held = [], 0
        chunk.append(one)
        held += size
    if chunk:
        yield chunk


def _run_artifact(subject: Subject, chunk: Sequence[Numbered], policy: JobPolicy, may_lose: int) -> _Run:
    """Run a chunk, starting another worker behind each entry that took one with it."""
    run: _Run | None = None
    rest = list(chunk)
    while rest:
        request = RunRequest(
            contract=subject.contract,
            identity=subject.manifest.identity,
            symbols=subject.manifest.symbols,
            entries=tuple(rest),
            backend=subject.manifest.target.backend,
        )
        job = Job(
            task="tilegate.evaluate.worker:work",
            inputs={"request": encode(request), "library": subject.library},
        )
        result = run_job(job, policy)
        if run is None:
            run = _Run({}, {}, {}, result.isolation)
        begun = _sort_frames(result, run)
        if result.ending is Ending.FINISHED:
            break
        verdict = _lost_entry(result, begun, subject.operator, run.fault)
        run.lost[verdict.index] = verdict
        run.facts.pop(verdict.index, None)
        run.outputs.pop(verdict.index, None)
        rest = [one for one in rest if one.index > verdict.index]
        if len(run.lost) >= may_lose:
            break
    if run is None:
        raise ToolError("a chunk without entries")
    return run


def _sort_frames(result: JobResult, run: _Run) -> int | None:
    """File a worker's frames by entry; the number of the entry that it began last."""
    begun: int | None = None
    run.fault = ""
    for name, data in result.frames:
        if name == "begin":
            begun = int(data)
        elif name == "fault":
            run.fault = data.decode(errors="replace")
        elif name == "facts" and begun is not None:
            run.facts[begun] = structs.replace(decode(Facts, data, where="facts of an entry"), index=begun)
            run.outputs[begun] = []
        elif name == "output" and begun is not None:
            run.outputs[begun].append(data)
    return begun


def _lost_entry(result: JobResult, begun: int | None, operator: str, fault: str) -> EntryResult:
    if begun is None:
        raise ToolError(
            "the evaluation worker ended before its first entry",
            where=operator,
            why=_why_ended(result),
            next_step="tilegate doctor, tilegate store check; if nothing is wrong there, build again",
        )
    if result.ending in (Ending.SILENT, Ending.WALL):
        return EntryResult(index=begun, verdict=EntryVerdict.HUNG, detail=result.ending.name.lower())
    detail = f"signal {result.code}" if result.ending is Ending.SIGNALLED else f"exit {result.code}"
    if fault:
        detail = fault if fault in DEVICE_FAULTS.values() else DEVICE_FAULT  # the worker's claim
    return EntryResult(index=begun, verdict=EntryVerdict.CRASHED, detail=detail)


def _judge_chunk(subject: Subject, chunk: Sequence[Numbered], run: _Run, level: Level) -> list[EntryResult]:
    results = dict(run.lost)
    for facts in run.facts.values():
        if facts.failed:
            detail = f"device: {facts.failed}" if facts.failed in MEMORY_ERRORS else "device"
            results[facts.index] = EntryResult(
                index=facts.index, verdict=EntryVerdict.UNSUPPORTED, detail=detail
            )
    ran = [one for one in chunk if one.index in run.facts and one.index not in results]
    expected = run_reference(subject, ran, level) if ran else {}
    for one in ran:
        facts, (theirs, values) = run.facts[one.index], expected[one.index]
        if facts.inputs != theirs.inputs:
            raise ToolError(
                "the worker and the reference made different inputs from one seed",
                where=f"entry {one.index}",
                why="they run different versions of torch, or one of them is not telling the truth",
                next_step="tilegate doctor",
            )
        outputs = run.outputs[one.index]
        results[one.index] = judge_beside(subject.contract, one.entry, facts, outputs, theirs, values)
    return [results[index] for index in sorted(results)]


def judge_beside(
    contract: Contract,
    entry: Entry,
    facts: Facts,
    outputs: Sequence[bytes],
    reference: Facts,
    expected: Sequence[Expected],
) -> EntryResult:
    """The verdict of one entry, where the reference could do it; else UNSUPPORTED."""
    if reference.failed:
        detail = f"reference: {reference.failed}"
        return EntryResult(index=facts.index, verdict=EntryVerdict.UNSUPPORTED, detail=detail)
    return judge(contract, entry, facts, outputs, expected)


def run_reference(
    subject: Subject, ran: Sequence[Numbered], level: Level
) -> dict[int, tuple[Facts, list[Expected]]]:
    """What the reference says of some entries, by their numbers: facts, and each output.

    Raises:
        ToolError: its job did not end as it should.
    """
    beside = Level.REDUCED if level is Level.GPU else level  # it runs on the processor
    request = ReferenceRequest(
        contract=subject.contract, operator=subject.operator, files=subject.files, entries=tuple(ran)
    )
    inputs = {"request": encode(request)}
    inputs |= {f"source.{i}": subject.sources[file.digest] for i, file in enumerate(subject.files)}
    result = run_job(Job(task="tilegate.evaluate.reference:work", inputs=inputs), REFERENCE.at(beside))
    if result.ending is not Ending.FINISHED:
        raise ToolError(
            "the reference could not be run",
            where=subject.operator,
            why=_why_ended(result),
            next_step="call the reference in plain PyTorch on the served shapes",
        )
    expected: dict[int, tuple[Facts, list[Expected]]] = {}
    facts: Facts | None = None
    wide = b""
    nudged: list[bytes] = []
    for name, data in result.frames:
        if name == "facts":
            facts = decode(Facts, data, where="facts of the reference")
            expected[facts.index] = (facts, [])
        elif name == "wide":
            wide, nudged = data, []
        elif name == "nudged":
            nudged.append(data)
        elif name == "own" and facts is not None:
            expected[facts.index][1].append(Expected(wide, data, tuple(nudged)))
    return expected


def _why_ended(result: JobResult) -> str:
    said = last_words(result.output) or "it printed nothing"
    return f"{said} (ending: {result.ending.value}, {result.code})"
