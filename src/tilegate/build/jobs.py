"""The parent side of the build jobs: ask, check what came back, turn failures into compiler traces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tilegate.build import elf
from tilegate.build.failing import refusal
from tilegate.build.requests import CompileItem, CompileRequest, DescribeRequest, ElaborateRequest, Failure
from tilegate.errors import RecordError
from tilegate.records.artifact import ABI, Elaboration, Manifest
from tilegate.records.canonical import blob_of, decode, digest_of, encode
from tilegate.records.closure import Binding, Closure, SourceFile, Specialization
from tilegate.records.contract import Contract
from tilegate.records.declaration import Declaration
from tilegate.records.isolation import Isolation, Limits
from tilegate.records.target import Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace, Stage
from tilegate.rules.sanitize import Observation, Subject, sanitize
from tilegate.sandbox import COMPILE, DESCRIBE, ELABORATE, Ending, Job, JobResult, run_job


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
    limits: Limits = DESCRIBE,
) -> list[Declaration] | CompilerTrace:
    """What some operator modules declare, learned in a job: their Python never runs here.

    Raises:
        ContractError: one of them declares an operator wrongly.
    """
    request = DescribeRequest(modules=tuple(modules), files=tuple(files))
    result = _run("tilegate.build.describe:work", request, files, sources, limits)
    for name, data in result.frames:
        if name == "failure" and (refused := refusal(data)) is not None:
            raise refused
    failed = _failure(result, Stage.DESCRIBE, Subject())
    if failed is not None:
        return failed
    return [decode(Declaration, data, where="a declaration from a job") for _, data in result.frames]


def elaborate(
    closure: Closure,
    contract: Contract,
    specializations: Sequence[Specialization],
    sources: Mapping[str, bytes],
    *,
    limits: Limits = ELABORATE,
) -> list[Elaborated | CompilerTrace]:
    """IR of each specialization, in order. One job serves them all: importing TileLang costs seconds.

    A factory that raises ends its own specialization; one that ends the job ends those behind it too.
    """
    request = ElaborateRequest(
        contract=contract,
        closure=closure.digest,
        binding=closure.binding,
        files=closure.files,
        specializations=tuple(specializations),
    )
    result = _run("tilegate.build.elaborate:work", request, closure.files, sources, limits)
    answers = iter(_answers(result))
    out: list[Elaborated | CompilerTrace] = []
    for specialization in specializations:
        subject = _subject(closure, contract, specialization)
        answer = next(answers, None)
        if answer is None:
            out.append(_ended(result, Stage.ELABORATE, subject))
        elif isinstance(answer, bytes):
            out.append(_told(answer, Stage.ELABORATE, subject))
        else:
            out.append(_accepted(answer, request, specialization, result, subject))
    return out


def compile_artifacts(
    elaborated: Sequence[Elaborated],
    targets: Sequence[Target],
    toolchain: Toolchain,
    *,
    limits: Limits = COMPILE,
) -> list[Built | CompilerTrace]:
    """The artifacts of one closure's IR, for each elaboration and target, in that order."""
    asked = [(one, target) for one in elaborated for target in targets]
    items = tuple(
        CompileItem(
            elaboration=one.elaboration,
            target=target,
            identity=identity_of(one.elaboration, target, toolchain),
        )
        for one, target in asked
    )
    inputs = {"request": encode(CompileRequest(items=items))}
    inputs |= {f"ir.{i}": one.ir for i, one in enumerate(elaborated)}
    result = run_job(Job(task="tilegate.build.compile:work", inputs=inputs), limits)
    answers = iter(result.frames)
    out: list[Built | CompilerTrace] = []
    for item, (one, _) in zip(items, asked, strict=True):
        subject = _compile_subject(item, toolchain)
        name, data = next(answers, ("", b""))
        if name == "library":
            out.append(_inspected(item, one.isolation, toolchain, data, result, subject))
        elif name == "failure":
            out.append(_told(data, Stage.COMPILE, subject))
        else:
            out.append(_ended(result, Stage.COMPILE, subject))
    return out


def identity_of(elaboration: Elaboration, target: Target, toolchain: Toolchain) -> str:
    """What makes an artifact this one: IR, target and toolchain. It is compiled into the library."""
    text = encode(elaboration) + b"\0" + str(target).encode() + b"\0" + toolchain.digest.encode()
    return hashlib.sha256(text).hexdigest()


def _inspected(
    item: CompileItem,
    isolation: Isolation,
    toolchain: Toolchain,
    library: bytes,
    result: JobResult,
    subject: Subject,
) -> Built | CompilerTrace:
    """The library is looked at before anyone opens it."""
    objections = elf.objections(library)
    if objections:
        seen = Observation(
            stage=Stage.COMPILE,
            ending="finished",
            template="library-refused",
            numbers={"objections": len(objections)},
        )
        return sanitize(seen, subject)
    manifest = Manifest(
        abi=ABI,
        elaboration=item.elaboration,
        target=item.target,
        toolchain=toolchain,
        isolation=(isolation, result.isolation),
        identity=item.identity,
        library=blob_of(library),
    )
    return Built(manifest, library)


def _compile_subject(item: CompileItem, toolchain: Toolchain) -> Subject:
    specialization = item.elaboration.specialization
    return Subject(
        operator=item.elaboration.operator,
        kernel=item.elaboration.kernel,
        axes=specialization.axes,
        dtypes=specialization.dtypes,
        target=str(item.target),
        toolchain=toolchain.digest,
    )


def _run(
    task: str,
    request: DescribeRequest | ElaborateRequest,
    files: Sequence[SourceFile],
    sources: Mapping[str, bytes],
    limits: Limits,
) -> JobResult:
    inputs = {"request": encode(request)}
    inputs |= {f"source.{i}": sources[file.digest] for i, file in enumerate(files)}
    return run_job(Job(task=task, inputs=inputs), limits)


def _subject(closure: Closure, contract: Contract, specialization: Specialization) -> Subject:
    return Subject(
        operator=contract.name,
        kernel=closure.binding.kernel,
        axes=specialization.axes,
        dtypes=specialization.dtypes,
        identifiers=_identifiers(contract, closure.binding),
    )


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


def _answers(result: JobResult) -> Iterator[bytes | tuple[bytes, bytes]]:
    """Frames as answers: a failure, or an elaboration with the IR that follows it."""
    held: bytes | None = None
    for name, data in result.frames:
        if name == "failure":
            yield data
        elif name == "elaboration":
            held = data
        elif name == "ir" and held is not None:
            yield held, data
            held = None


def _accepted(
    answer: tuple[bytes, bytes],
    request: ElaborateRequest,
    specialization: Specialization,
    result: JobResult,
    subject: Subject,
) -> Elaborated | CompilerTrace:
    """What a job claims about its IR counts only where it agrees with what was asked."""
    protocol = Observation(stage=Stage.ELABORATE, ending="protocol")
    try:
        elaboration = decode(Elaboration, answer[0], where="an elaboration from a job")
    except RecordError:
        return sanitize(protocol, subject)
    claimed = (
        elaboration.operator, elaboration.kernel, elaboration.contract, elaboration.closure,
        elaboration.specialization, elaboration.ir,
    )  # fmt: skip
    asked = (
        request.contract.name, request.binding.kernel, request.contract.digest, request.closure,
        specialization, digest_of(answer[1]),
    )  # fmt: skip
    if claimed != asked:
        return sanitize(protocol, subject)
    return Elaborated(elaboration, answer[1], result.isolation)


def _failure(result: JobResult, stage: Stage, subject: Subject) -> CompilerTrace | None:
    for name, data in result.frames:
        if name == "failure":
            return _told(data, stage, subject)
    return None if result.ending is Ending.FINISHED else _ended(result, stage, subject)


def _ended(result: JobResult, stage: Stage, subject: Subject) -> CompilerTrace:
    ending = "protocol" if result.ending is Ending.FINISHED else result.ending.value
    if result.ending is Ending.EXITED and b"MemoryError" in result.output:
        return sanitize(Observation(stage=stage, ending="finished", template="memory"), subject)
    return sanitize(Observation(stage=stage, ending=ending, code=result.code), subject)


def _told(data: bytes, stage: Stage, subject: Subject) -> CompilerTrace:
    """A failure that the job told itself."""
    try:
        failure = msgspec.json.decode(data, type=Failure, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return sanitize(Observation(stage=stage, ending="protocol"), subject)
    seen = Observation(
        stage=stage,
        ending="finished",
        step=failure.step,
        kind=failure.kind,
        message=failure.message,
        line=None if failure.line is msgspec.UNSET else failure.line,
        template=failure.template,
        numbers=failure.numbers,
        words=failure.words,
    )
    return sanitize(seen, subject)
