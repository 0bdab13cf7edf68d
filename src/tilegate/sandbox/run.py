"""Running a job: one loop over what it sends, what it prints, its end, and two clocks. It cannot hang."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import selectors
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator

from tilegate.errors import SandboxError
from tilegate.records.isolation import Isolation, Limits
from tilegate.sandbox.frames import FrameReader
from tilegate.sandbox.job import Ending, Job, JobResult, last_words
from tilegate.sandbox.launch import Child, started

_CHUNK = 1 << 18
_LEAVE_S = 5.0
"""After its end frame a child has nothing left to do but exit; then it is ended, and has finished all the same."""


_running: set[Child] = set()
_stopping = threading.Lock()
"""Held while `_running` changes and while a job in it is ended: its descriptors are still its own then."""


class JobStopped(Exception):  # noqa: N818 - what `stop_jobs` asked for
    """In the thread that waited for a job which another thread ended."""


def stop_jobs() -> None:
    """End every job that this process runs now. Threads that wait for one see `JobStopped`."""
    with _stopping:
        for child in _running:
            child.end()


def run_job(job: Job, limits: Limits, *, on_frame: Callable[[str, bytes], None] | None = None) -> JobResult:
    """Run a task in a process of its own, and say how it ended.

    Args:
        job: what to run.
        limits: what it may take; reached, it is ended at once.
        on_frame: called with (name, blob) for each frame as it arrives. If it raises, the job is ended. The
            time it takes is not the job's silence.

    Raises:
        SandboxError: the process could not be started, or failed before the task was its own.
        JobStopped: another thread called `stop_jobs`.
    """
    began = time.monotonic()
    with started(job, limits) as child, _listed(child):
        watch = _Watch(child, limits, on_frame, began)
        cut = watch.attend()
        status = child.stop()
        watch.drain()
    if child.ended:
        raise JobStopped(job.task)
    ending, code = _conclude(watch, cut, status)
    if watch.reader.isolation is None and ending is Ending.EXITED:
        raise SandboxError(
            "a job failed before its task was imported",
            where=job.task,
            why=last_words(bytes(watch.output)) or f"exit status {code}",
            next_step="see that tilegate is installed for this interpreter, and that the memory limit is not tiny",
        )
    fault = watch.reader.fault
    return JobResult(
        ending=ending,
        code=code,
        why=fault.why if fault else "",
        frames=tuple(watch.frames),
        output=bytes(watch.output),
        output_total=watch.output_total,
        isolation=watch.reader.isolation or _unknown(),
        wall_s=time.monotonic() - began,
    )


@contextlib.contextmanager
def _listed(child: Child) -> Iterator[None]:
    with _stopping:
        _running.add(child)
    try:
        yield
    finally:
        with _stopping:
            _running.discard(child)


def _unknown() -> Isolation:
    """Of a job that ended before it could say: nothing is claimed."""
    return Isolation(level="process", network=True, own_pids=False, uid=os.getuid())


def _conclude(watch: _Watch, cut: Ending | None, status: int) -> tuple[Ending, int]:
    """Ending and code: a broken stream outweighs a clock, and a clock the exit that it caused."""
    reader = watch.reader
    if reader.fault is not None:
        return (Ending.TOO_LARGE if reader.fault.too_large else Ending.PROTOCOL), 0
    if cut is not None:
        return cut, 0
    if reader.ended and not watch.gone:
        return Ending.FINISHED, 0
    if status < 0:
        return Ending.SIGNALLED, -status
    if status > 0 or not reader.ended:
        return Ending.EXITED, status
    return Ending.FINISHED, 0


class _Watch:
    """What has come from one child so far."""

    def __init__(
        self, child: Child, limits: Limits, on_frame: Callable[[str, bytes], None] | None, began: float
    ) -> None:
        self.reader = FrameReader(
            frame_bytes=limits.frame_bytes, total_bytes=limits.total_bytes, frames=limits.frames
        )
        self.frames: list[tuple[str, bytes]] = []
        self.output = bytearray()
        self.output_total = 0
        self._child = child
        self._limits = limits
        self._on_frame = on_frame
        self.gone = False
        self._wall = began + limits.wall_s
        self._silence = math.inf  # until the start-up is over, silence is not the job's own

    def attend(self) -> Ending | None:
        """Take what comes until there is a reason to stop: the ending by a clock, or None for any other."""
        child = self._child
        with selectors.DefaultSelector() as selector:
            selector.register(child.results, selectors.EVENT_READ, self._take_frames)
            selector.register(child.output, selectors.EVENT_READ, self._take_output)
            selector.register(child.exit, selectors.EVENT_READ, self._take_exit)
            while not self.gone and self.reader.fault is None:
                patience = min(self._wall, self._silence) - time.monotonic()
                for key, _ in selector.select(max(0.0, patience)):
                    if not key.data(_CHUNK):
                        selector.unregister(key.fileobj)
                if (cut := self._clock(time.monotonic())) is not None:
                    return None if self.reader.ended else cut
        return None

    def drain(self) -> None:
        """Take what is in the pipes now, and no more: a survivor may hold them open and write on."""
        for descriptor, take in (
            (self._child.results, self._take_frames),
            (self._child.output, self._take_output),
        ):
            waiting = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
            take(int.from_bytes(waiting, sys.byteorder))

    def _clock(self, now: float) -> Ending | None:
        if self.gone or self.reader.fault is not None or now < min(self._wall, self._silence):
            return None
        return Ending.WALL if now >= self._wall else Ending.SILENT

    def _take_frames(self, size: int) -> bool:
        data = _read(self._child.results, size)
        frames = self.reader.feed(data or b"")
        if self.reader.isolation is not None and self._silence == math.inf:
            self._child.own_pids = self.reader.isolation.own_pids
            self._silence = time.monotonic() + self._limits.silence_s + self._limits.start_s
        for name, blob in frames:
            self.frames.append((name, blob))
            if self._on_frame is not None:
                self._on_frame(name, blob)
            self._silence = time.monotonic() + self._limits.silence_s
        if self.reader.ended:
            self._silence = time.monotonic() + _LEAVE_S
        return data != b""

    def _take_output(self, size: int) -> bool:
        data = _read(self._child.output, size)
        if data:
            self.output_total += len(data)
            self.output += data[: max(0, self._limits.output_bytes - len(self.output))]
        return data != b""

    def _take_exit(self, _size: int) -> bool:
        self.gone = True
        return False


def _read(descriptor: int, size: int) -> bytes | None:
    """Up to `size` bytes; b"" at the end of the stream, None where nothing waits."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
