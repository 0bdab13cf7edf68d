"""NVIDIA's compute-sanitizer over a few entries: what canaries cannot see, such as reads beside a tensor and races.

Each tool runs a small worker in which every tensor is an allocation of its own. The sanitizer talks to the
process that it looks into over sockets, which no isolated job may make: these jobs run at level `none`, and only
where somebody asks for them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from tilegate.evaluate.devices import driven
from tilegate.evaluate.inputs import extents, make_inputs
from tilegate.evaluate.requests import Numbered, RunRequest
from tilegate.evaluate.run import Subject
from tilegate.library import Rows, open_library
from tilegate.records.canonical import decode, encode
from tilegate.records.evidence import Facts, Sanitized
from tilegate.records.isolation import JobPolicy, Level
from tilegate.records.plan import Condition, Layout, Plan, Values
from tilegate.sandbox import Ending, Job, run_job

TOOLS = ("memcheck", "racecheck", "initcheck")
PROGRAM = "compute-sanitizer"
FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/compute-sanitizer")
FOUND_EXIT = 99
"""What the program is asked to leave with where it found something."""
MAX_ENTRIES = 24
"""Plain entries of a plan, spread over it: under a tool each takes up to seconds."""
JOB_BYTES = 32 * 2**30
"""A tool keeps a shadow of everything that is allocated."""
SILENCE_S = 300.0
"""A tool says nothing until it has ended."""

_ENTRY = re.compile(rb"^tilegate entry (\d+)$", re.MULTILINE)
_ERROR = re.compile(
    rb"^=+ (?:Error: |Warning: )?((?:Invalid|Uninitialized|Misaligned|Race|\w+ hazard|Potential)[^\n]{0,80})",
    re.MULTILINE,
)
_SUMMARY = re.compile(rb"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a tool found at one entry."""

    index: int
    tool: str
    errors: int


def sanitize(subject: Subject, plan: Plan, policy: JobPolicy) -> tuple[list[Sanitized], list[Finding]]:
    """Run some plain entries under each tool. A tool stops at the first entry at which it finds something.

    Returns:
        What each tool did, and what was found.
    """
    entries = chosen(plan)
    request = RunRequest(
        contract=subject.contract,
        identity=subject.manifest.identity,
        symbols=subject.manifest.symbols,
        entries=entries,
        backend=subject.manifest.target.backend,
    )
    told: list[Sanitized] = []
    found: list[Finding] = []
    for tool in TOOLS:
        inputs = {"request": encode(request), "library": subject.library, "tool": tool.encode()}
        job = Job(task="tilegate.evaluate.sanitizer:work", inputs=inputs)
        result = run_job(job, driven(policy.at(Level.NONE)).within(silence_s=SILENCE_S, job_bytes=JOB_BYTES))
        frames = dict(result.frames)
        if "skipped" in frames:
            told.append(Sanitized(tool=tool, skipped=frames["skipped"].decode(errors="replace")[:200]))
        elif result.ending is not Ending.FINISHED or "said" not in frames:
            told.append(Sanitized(tool=tool, skipped=f"its job ended: {result.ending.value}"))
        else:
            one, finding = read(tool, frames["said"], int(frames["status"]), entries)
            told.append(one)
            found += [finding] if finding else []
    return told, found


def chosen(plan: Plan) -> tuple[Numbered, ...]:
    """Plain entries with normal values and aligned data, spread evenly over the plan."""
    plain = [
        Numbered(index=index, seed=plan.seed(index), entry=entry)
        for index, entry in enumerate(plan.entries)
        if (entry.layout, entry.values, entry.condition) == (Layout.ALIGNED, Values.NORMAL, Condition.PLAIN)
    ]
    step = max(1, -(-len(plain) // MAX_ENTRIES))
    return tuple(plain[::step])


def read(
    tool: str, said: bytes, status: int, entries: Sequence[Numbered]
) -> tuple[Sanitized, Finding | None]:
    """What a tool's output means.

    Args:
        tool: its name.
        said: everything that it and the worker printed.
        status: its exit status.
        entries: those that the worker was to run.
    """
    marks = [(mark.start(), int(mark[1])) for mark in _ENTRY.finditer(said)]
    errors = list(_ERROR.finditer(said))
    summary = _SUMMARY.search(said)
    counted = int(summary[1]) if summary else len(errors)
    known = {one.index for one in entries}
    ran = len({index for _, index in marks} & known)
    if not errors and not counted and status == 0:
        return Sanitized(tool=tool, entries=ran), None
    if not errors:  # something else went wrong under it
        return Sanitized(
            tool=tool, entries=ran, skipped=f"exit status {status}, with nothing that it names"
        ), None
    kind = " ".join(errors[0][1].decode(errors="replace").split())
    at = next((index for start, index in reversed(marks) if start < errors[0].start()), -1)
    one = Sanitized(tool=tool, entries=ran, errors=max(counted, 1), kind=kind[:80])
    return one, Finding(at, tool, max(counted, 1)) if at in known else None


def with_findings(facts: Facts, findings: Sequence[Finding]) -> Facts:
    """Facts of an entry with what tools found there: a write or read outside, or an answer left to chance."""
    for finding in findings:
        if finding.index != facts.index or facts.refusal:
            continue
        if finding.tool == "memcheck":
            facts = structs.replace(facts, outside=(*facts.outside, finding.tool))
        else:
            facts = structs.replace(facts, unstable={**facts.unstable, finding.tool: finding.errors})
    return facts


# Inside the job


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """Sends `said` and `status` of the tool, or `skipped` with the reason."""
    program = _program()
    if program is None:
        emit("skipped", f"{PROGRAM} is not installed".encode())
        return
    for name in ("request", "library"):
        Path(name).write_bytes(inputs[name])
    script = f"import sys; sys.path[:] = {sys.path!r}; from tilegate.evaluate.sanitizer import run; run()"
    command = [program, "--tool", inputs["tool"].decode(), "--error-exitcode", str(FOUND_EXIT)]
    command += [
        "--print-limit",
        "20",
        "--report-api-errors",
        "no",
        "--",
        sys.executable,
        "-I",
        "-B",
        "-c",
        script,
    ]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    status = _spawn(command, environment, Path("said"))
    emit("said", Path("said").read_bytes())
    emit("status", str(status).encode())


def _program() -> str | None:
    return shutil.which(PROGRAM, path=os.pathsep.join((os.environ.get("PATH", ""), *FOLDERS)))


def _spawn(command: list[str], environment: Mapping[str, str], output: Path) -> int:
    with output.open("wb") as file:
        number = file.fileno()
        actions = [(os.POSIX_SPAWN_DUP2, number, 1), (os.POSIX_SPAWN_DUP2, number, 2)]
        pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run() -> None:
    """Under the tool: each entry once, told before it begins. Outputs stay as they were allocated."""
    for line in _entries(Path("request").read_bytes(), Path("library").read_bytes()):
        os.write(1, line)


def _entries(request_bytes: bytes, library_bytes: bytes) -> Iterator[bytes]:
    import torch  # noqa: PLC0415

    request = decode(RunRequest, request_bytes, where="run request")
    library = open_library(library_bytes, identity=request.identity)
    rows = Rows.admitting_all(request.symbols)
    for numbered in request.entries:
        workload = numbered.entry.workload
        made = {
            n: v.to("cuda") for n, v in make_inputs(request.contract, numbered.entry, numbered.seed).items()
        }
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
        torch.cuda.synchronize()
        yield f"tilegate entry {numbered.index}\n".encode()
        library.entry(*tensors, rows.address)
        torch.cuda.synchronize()
