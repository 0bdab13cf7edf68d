"""From how a job ended, and what it said of its failure, to a compiler trace: the parent's side."""

from __future__ import annotations

import msgspec

from tilegate.build.requests import Failure
from tilegate.records.trace import CompilerTrace, Stage
from tilegate.rules.sanitize import Observation, Subject, sanitize
from tilegate.sandbox import Ending, JobResult


def failed_job(result: JobResult, stage: Stage, subject: Subject) -> CompilerTrace | None:
    """The trace of a job that failed; None where it did not."""
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
