"""A job, and what became of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tilegate.records.isolation import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One function to be run in a process of its own."""

    task: str
    """`package.module:function`, imported by name in the child and called as `function(inputs, emit)`.

    `inputs` is a mapping of name to bytes; `emit(name, blob)` sends one frame back. It returns None.
    """
    inputs: Mapping[str, bytes]
    import_paths: tuple[str, ...] = ()
    """More entries at the end of `sys.path`, to be read."""


class Ending(enum.Enum):
    """How a job came to its end."""

    FINISHED = "finished"
    """The function returned, and the stream is complete."""
    EXITED = "exited"
    """It raised (code 1), or left by `sys.exit` or `os._exit`, whatever the code."""
    SIGNALLED = "signalled"
    WALL = "wall"
    """Ended by `Limits.wall_s`."""
    SILENT = "silent"
    """Ended by `Limits.silence_s`."""
    MEMORY = "memory"
    """Ended by `Limits.job_bytes`: all its processes together."""
    PROCESSES = "processes"
    """Ended by `Limits.processes`."""
    FILES = "files"
    """Ended by `Limits.files`."""
    PROTOCOL = "protocol"
    """What it sent is no stream of frames."""
    TOO_LARGE = "too_large"
    """It sent more than `Limits` allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a job did. None of it is to be believed for being here: it came from the job."""

    ending: Ending
    code: int
    """Exit status of EXITED, signal number of SIGNALLED, otherwise 0."""
    why: str
    """The rule that the stream broke, for PROTOCOL and TOO_LARGE; otherwise empty."""
    frames: tuple[tuple[str, bytes], ...]
    """Every frame that arrived whole, in order, whatever the ending."""
    output: bytes
    """What was printed, on stdout and stderr together: the first `Limits.output_bytes`."""
    output_total: int
    """Bytes printed, kept or not."""
    isolation: Isolation
    """Measured inside, before anything foreign ran."""
    wall_s: float


def last_words(output: bytes) -> str:
    """The line in which a job said why it ended: of a traceback, the one with the exception; else the last."""
    lines = output.decode(errors="replace").splitlines()
    said = [line for line in lines if line.strip() and not line.startswith((" ", "next: "))]
    words = said[-1].removeprefix("tilegate.errors.")[:200] if said else ""
    return "".join(c for c in words if c.isprintable())  # a job must not move the cursor of a terminal
