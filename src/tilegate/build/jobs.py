"""The parent side of the build jobs: ask, check what came back, turn failures into compiler traces."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegate.build import elf
from tilegate.build.cuda.priming import primed, with_room
from tilegate.build.failing import refusal
from tilegate.build.requests import CompileRequest, DescribeRequest, ElaborateRequest, Kernels
from tilegate.build.told import failed_job
from tilegate.errors import RecordError
from tilegate.records.artifact import ABI, Elaboration, Manifest
from tilegate.records.canonical import blob_of, decode, digest_of, encode
from tilegate.records.closure import Binding, Closure, SourceFile, Specialization
from tilegate.records.contract import Contract
from tilegate.records.declaration import Declaration
from tilegate.records.device import DeviceKernel
from tilegate.records.isolation import Isolation, JobPolicy
from tilegate.records.target import Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace, Stage
from tilegate.rules.sanitize import Observation, Subject, sanitize
from tilegate.sandbox import COMPILE, DESCRIBE, ELABORATE, Job, JobResult, run_job, run_jobs, warmed

WARM = (
    "torch",
    "tilegate.build.elaborate",
    "tilegate.build.compile",
    "tilelang.language",
    "tilelang.jit",
    "tvm",
)
"""What every build job needs: imported once for all kernels of a closure, seconds each time it is not."""


_TASKS = {"cpu": "tilegate.build.compile:work", "cuda": "tilegate.build.cuda.job:work"}
_LIBRARIES = {"cpu": elf.ALLOWED_LIBRARIES, "cuda": elf.LIBC_ONLY}
"""What a library may need, by backend of its target."""


Run = Callable[[Sequence[Job], None], list[JobResult]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One specialization of one kernel, to be elaborated."""

    closure: Closure
    contract: Contract
    specialization: Specialization
    lowering: str = "c"
    """`Target.lowering` of the targets that the IR is for."""

    @property
    def subject(self) -> Subject:
        return Subject(
            operator=self.contract.name,
            kernel=self.closure.binding.kernel,
            axes=self.specialization.axes,
            dtypes=self.specialization.dtypes,
            identifiers=_identifiers(self.contract, self.closure.binding),
        )


@dataclass(frozen=True, slots=True)
class Elaborated:
    """One specialization as IR, with the isolation its job ran under."""

    elaboration: Elaboration
    ir: bytes
    isolation: Isolation


@dataclass(frozen=True, slots=True)
class Built:
    """One artifact: its manifest, and the library's bytes."""

    manifest: Manifest
    library: bytes


def describe(
    modules: Sequence[str],
    files: Sequence[SourceFile],
    sources: Mapping[str, bytes],
    *,
    policy: JobPolicy = DESCRIBE,
) -> list[Declaration] | CompilerTrace:
    """What some operator modules declare, learned in a job: their Python never runs here.

    Raises:
        ContractError: one of them declares an operator wrongly.
    """
    request = DescribeRequest(modules=tuple(modules), files=tuple(files))
    result = run_job(_job("tilegate.build.describe:work", request, files, sources), policy)
    for name, data in result.frames:
        if name == "failure" and (refused := refusal(data)) is not None:
            raise refused
    failed = failed_job(result, Stage.DESCRIBE, Subject())
    if failed is not None:
        return failed
    return [decode(Declaration, data, where="a declaration from a job") for _, data in result.frames]


def elaborate(
    asked: Sequence[Asked],
    sources: Mapping[str, bytes],
    *,
    policy: JobPolicy = ELABORATE,
    parallel: int = 1,
) -> list[Elaborated | CompilerTrace]:
    """IR of each specialization, in order, each from a job of its own in one sandbox.

    Args:
        asked: of closures with the same files; different authors' code never shares a sandbox.
        sources: of those files, by digest.
        policy: what each job may see and take.
        parallel: how many run at once.
    """
    requests = [
        ElaborateRequest(
            contract=one.contract,
            closure=one.closure.digest,
            binding=one.closure.binding,
            files=one.closure.files,
            specialization=one.specialization,
            lowering=one.lowering,
        )
        for one in asked
    ]
    jobs = [_job("tilegate.build.elaborate:work", request, request.files, sources) for request in requests]
    results = run_jobs(jobs, policy, warm=WARM, parallel=parallel)
    answers = zip(asked, requests, results, strict=True)
    return [_elaborated(one.subject, request, result) for one, request, result in answers]


Compile = Callable[[Sequence[tuple[Elaborated, Target]]], list[Built | CompilerTrace]]


@contextlib.contextmanager
def compiler(
    targets: Sequence[Target], toolchain: Toolchain, *, policy: JobPolicy = COMPILE, parallel: int = 1
) -> Iterator[Compile]:
    """A sandbox that compiles, for the length of a `with`. It warms itself while factories run elsewhere.

    Args:
        targets: of all that it will be asked for, each as often as it will be.
        toolchain: that does it; named in each manifest.
        policy: what each job may see and take.
        parallel: how many run at once.

    Yields:
        A function from pieces of IR with their targets, of closures with the same files, to the artifact of
        each, in order, each from a job of its own.
    """
    before, after, scratch = primed(targets, toolchain.device_compiler)
    how: dict[str, Any] = {"warm": (*before, *WARM, *after), "parallel": parallel}
    room = with_room(policy, scratch)
    with warmed(room, **how) as run:
        yield lambda asked: _compiled(asked, toolchain, lambda jobs: _all(jobs, run, room, how))


def _all(jobs: Sequence[Job], run: Run, policy: JobPolicy, how: dict[str, Any]) -> list[JobResult]:
    """Every result, from another sandbox where the warmed one was lost."""
    done = run(jobs, None)
    return [*done, *run_jobs(jobs[len(done) :], policy, **how)]


def _compiled(
    asked: Sequence[tuple[Elaborated, Target]],
    toolchain: Toolchain,
    run: Callable[[Sequence[Job]], list[JobResult]],
) -> list[Built | CompilerTrace]:
    requests = [
        CompileRequest(
            elaboration=one.elaboration,
            target=target,
            identity=identity_of(one.elaboration, target, toolchain),
            device_compiler=toolchain.device_compiler,
        )
        for one, target in asked
    ]
    jobs = [
        Job(task=_TASKS[request.target.backend], inputs={"request": encode(request), "ir": one.ir})
        for request, (one, _) in zip(requests, asked, strict=True)
    ]
    answers = zip(asked, requests, run(jobs) if jobs else [], strict=True)
    return [_built(one.isolation, request, toolchain, result) for (one, _), request, result in answers]


def identity_of(elaboration: Elaboration, target: Target, toolchain: Toolchain) -> str:
    """What makes an artifact this one: IR, target and toolchain. It is compiled into the library."""
    text = encode(elaboration) + b"\0" + str(target).encode() + b"\0" + toolchain.digest.encode()
    return hashlib.sha256(text).hexdigest()


def _built(
    isolation: Isolation, request: CompileRequest, toolchain: Toolchain, result: JobResult
) -> Built | CompilerTrace:
    subject = _compile_subject(request, toolchain)
    failed = failed_job(result, Stage.COMPILE, subject)
    if failed is not None:
        return failed
    protocol = sanitize(Observation(stage=Stage.COMPILE, ending="protocol"), subject)
    kernels: tuple[DeviceKernel, ...] = ()
    frames = list(result.frames)
    try:
        if request.target.backend == "cuda" and frames and frames[0][0] == "kernels":
            kernels = decode(Kernels, frames.pop(0)[1], where="kernels from a job").kernels
    except RecordError:
        return protocol
    if [name for name, _ in frames] != ["library"] or bool(kernels) != (request.target.backend == "cuda"):
        return protocol
    manifest = Manifest(
        abi=ABI,
        elaboration=request.elaboration,
        target=request.target,
        toolchain=toolchain,
        isolation=(isolation, result.isolation),
        identity=request.identity,
        library=blob_of(frames[0][1]),
        kernels=kernels,
    )
    return _inspected(Built(manifest, frames[0][1]), subject)


def _inspected(built: Built, subject: Subject) -> Built | CompilerTrace:
    """The library is looked at before anyone opens it."""
    objections = elf.objections(built.library, allowed=_LIBRARIES[built.manifest.target.backend])
    if not objections:
        return built
    seen = Observation(
        stage=Stage.COMPILE,
        ending="finished",
        template="library-refused",
        numbers={"objections": len(objections)},
    )
    return sanitize(seen, subject)


def _compile_subject(request: CompileRequest, toolchain: Toolchain) -> Subject:
    specialization = request.elaboration.specialization
    return Subject(
        operator=request.elaboration.operator,
        kernel=request.elaboration.kernel,
        axes=specialization.axes,
        dtypes=specialization.dtypes,
        target=str(request.target),
        toolchain=toolchain.digest,
    )


def _job(
    task: str,
    request: DescribeRequest | ElaborateRequest,
    files: Sequence[SourceFile],
    sources: Mapping[str, bytes],
) -> Job:
    inputs = {"request": encode(request)}
    inputs |= {f"source.{i}": sources[file.digest] for i, file in enumerate(files)}
    return Job(task=task, inputs=inputs)


def _identifiers(contract: Contract, binding: Binding) -> frozenset[str]:
    """Names that a job may say back: whoever reads a trace of this kernel knows them already."""
    return frozenset({
        *contract.axes,
        *contract.dtypes,
        *(tensor.name for tensor in contract.arguments),
        *(attribute.name for attribute in contract.attributes),
        *binding.parameters,
        *binding.constants,
    })  # fmt: skip


def _elaborated(subject: Subject, request: ElaborateRequest, result: JobResult) -> Elaborated | CompilerTrace:
    """What a job claims about its IR counts only where it agrees with what was asked."""
    failed = failed_job(result, Stage.ELABORATE, subject)
    if failed is not None:
        return failed
    protocol = Observation(stage=Stage.ELABORATE, ending="protocol")
    if [name for name, _ in result.frames] != ["elaboration", "ir"]:
        return sanitize(protocol, subject)
    (_, told), (_, ir) = result.frames
    try:
        elaboration = decode(Elaboration, told, where="an elaboration from a job")
    except RecordError:
        return sanitize(protocol, subject)
    claimed = (
        elaboration.operator, elaboration.kernel, elaboration.contract, elaboration.closure,
        elaboration.specialization, elaboration.ir,
    )  # fmt: skip
    asked = (
        request.contract.name, request.binding.kernel, request.contract.digest, request.closure,
        request.specialization, digest_of(ir),
    )  # fmt: skip
    return sanitize(protocol, subject) if claimed != asked else Elaborated(elaboration, ir, result.isolation)
