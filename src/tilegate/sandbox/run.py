"""Running jobs: one loop over what they send, what they print, their ends, and the clocks. It cannot hang."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tilegate.records.isolation import JobPolicy
from tilegate.sandbox import census, control
from tilegate.sandbox.box import Box
from tilegate.sandbox.job import Ending, Job, JobResult
from tilegate.sandbox.launch import opened
from tilegate.sandbox.watch import CHUNK, OnFrame, Watch

LOOK_S = 0.1
"""Between two looks at the memory and processes of a sandbox. A look reads one file for each process."""
_STOP_S = 5.0
"""How long the keeper may take to end one task, before all of its sandbox is ended."""

_running: set[Box] = set()
_stopping = threading.Lock()
"""Held while `_running` changes and while a box in it is asked to end: its descriptors are still its own then."""


class JobStopped(Exception):  # noqa: N818 - what `stop_jobs` asked for
    """In the thread that waited for a job which another thread ended."""


def stop_jobs() -> None:
    """End every job that this process runs now. Threads that wait for one see `JobStopped`."""
    with _stopping:
        for box in _running:
            box.ask_to_end()


def run_job(job: Job, policy: JobPolicy, *, on_frame: OnFrame | None = None) -> JobResult:
    """Run a task in a sandbox of its own, and say how it ended.

    Args:
        job: what to run.
        policy: what it may see and take; a limit that is reached ends it at once.
        on_frame: called with (name, blob) for each frame as it arrives. If it raises, the job is ended. The
            time it takes is not the job's silence.

    Raises:
        SandboxError: the isolation cannot be had, or the process could not be started.
        JobStopped: another thread called `stop_jobs`.
    """
    (result,) = run_jobs([job], policy, on_frame=on_frame)
    return result


def run_jobs(
    jobs: Sequence[Job],
    policy: JobPolicy,
    *,
    warm: Sequence[str] = (),
    parallel: int = 1,
    on_frame: OnFrame | None = None,
) -> list[JobResult]:
    """Run tasks as forks of one warmed process in one sandbox, and say how each ended, in order.

    They share a user, a folder for temporary files and a namespace, and nothing else: only jobs of one author
    belong together. One that crashes, hangs or takes too much ends alone.

    Args:
        jobs: what to run.
        policy: what each may see and take.
        warm: modules imported once, before all of them.
        parallel: how many run at once.
        on_frame: as for `run_job`.

    Raises:
        SandboxError, JobStopped: as for `run_job`.
    """
    results: list[JobResult] = []
    while len(results) < len(jobs):  # again only where a whole sandbox was lost with some still to be run
        left = jobs[len(results) :]
        paths = tuple(dict.fromkeys(path for job in left for path in job.import_paths))
        with warmed(policy, warm=warm, import_paths=paths, parallel=min(parallel, len(left))) as run:
            results += run(left, on_frame)
    return results


@contextlib.contextmanager
def warmed(
    policy: JobPolicy, *, warm: Sequence[str] = (), import_paths: Sequence[str] = (), parallel: int = 1
) -> Iterator[Callable[[Sequence[Job], OnFrame | None], list[JobResult]]]:
    """A sandbox that warms itself while its caller does something else.

    Yields:
        A function that runs jobs in it, as `run_jobs` does: of the first on, unless the sandbox is lost.

    Raises:
        SandboxError, JobStopped: as for `run_job`; what cannot be had, when the first job is run.
    """
    with opened(policy, warm=warm, import_paths=import_paths, parallel=parallel) as box, _listed(box):
        yield lambda jobs, on_frame: _Shift(box, policy, jobs, parallel, on_frame).work()


@contextlib.contextmanager
def _listed(box: Box) -> Iterator[None]:
    with _stopping:
        _running.add(box)
    try:
        yield
    finally:
        with _stopping:
            _running.discard(box)


class _Shift:
    """The jobs that one sandbox runs, for as long as it lives."""

    def __init__(
        self, box: Box, policy: JobPolicy, jobs: Sequence[Job], at_once: int, on_frame: OnFrame | None
    ) -> None:
        self._box = box
        self._limits = policy.limits
        self._jobs = jobs
        self._at_once = at_once
        self._on_frame = on_frame
        self._watches: dict[int, Watch] = {}
        self._results: dict[int, JobResult] = {}
        self._ends: dict[int, float] = {}
        """When the keeper must have ended a part that it was told to end."""
        self._next_look = time.monotonic() + LOOK_S
        self._lost = False
        self._selector = selectors.DefaultSelector()

    def work(self) -> list[JobResult]:
        """Results of the jobs from the first on: all of them, unless the sandbox was lost before."""
        box = self._box
        box.wait()  # nothing is sent before it is what was asked for
        with self._selector:
            self._listen(box.socket.fileno(), self._hear)
            self._listen(box.exit, self._lose)
            self._listen(box.wish, self._give_up)
            while len(self._results) < len(self._jobs):
                while not self._lost and self._free():
                    self._start(len(self._watches))
                if self._lost and not self._watches.keys() - self._results.keys():
                    break
                for key, _ in self._selector.select(max(0.0, self._patience())):
                    still = key.fd in self._selector.get_map()  # another of these may have closed it
                    if still and not key.data(CHUNK):
                        self._selector.unregister(key.fileobj)
                self._enforce(time.monotonic())
        return [self._results[number] for number in sorted(self._results)]

    def _free(self) -> bool:
        started = len(self._watches)
        return started < len(self._jobs) and started - len(self._results) < self._at_once

    def _start(self, number: int) -> None:
        part = self._box.start(number, self._jobs[number])
        watch = self._watches[number] = Watch(part, self._limits, self._on_frame)
        self._listen(part.results, watch.take_frames)
        self._listen(part.output, watch.take_output)

    def _listen(self, descriptor: int, take: Callable[[int], bool]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, take)

    def _going(self) -> dict[int, Watch]:
        return {n: w for n, w in self._watches.items() if n not in self._results}

    def _patience(self) -> float:
        going = self._going()
        times = [w.deadline for n, w in going.items() if n not in self._ends] + list(self._ends.values())
        return min([self._next_look, *times]) - time.monotonic()

    def _hear(self, _size: int) -> bool:
        while (message := self._box.message()) is not None:
            if isinstance(message, control.Started) and message.part in self._watches:
                self._watches[message.part].begin(message.pid)
            elif isinstance(message, control.Ended) and message.part in self._going():
                self._conclude(message.part, message.status)
        return True

    def _lose(self, _size: int) -> bool:
        """The sandbox has gone, and all that ran in it."""
        self._hear(0)
        self._lost = True
        self._box.stop()
        for number in self._going():
            self._conclude(number, signal.SIGKILL)
        return False

    def _give_up(self, _size: int) -> bool:
        raise JobStopped

    def _conclude(self, number: int, status: int) -> None:
        watch = self._watches[number]
        if os.WIFSIGNALED(status) and not watch.broken and self._box.ran_out_of_memory():
            watch.cut = Ending.MEMORY
        if len(self._jobs) == 1:
            self._box.stop()  # what it left running is gone before its end is told
        for descriptor in (watch.part.results, watch.part.output):
            with contextlib.suppress(KeyError):
                self._selector.unregister(descriptor)
        self._results[number] = watch.conclude(status, self._box.isolation)
        self._ends.pop(number, None)
        self._box.close_part(number)

    def _enforce(self, now: float) -> None:
        if not self._lost and now >= self._next_look:
            self._look(now)
        for number, watch in self._going().items():
            watch.look_at_clock(now)
            if watch.broken and number not in self._ends:
                self._ends[number] = now + _STOP_S
                if len(self._jobs) == 1:
                    self._box.stop()
                else:
                    self._box.end_part(number)
        if not self._lost and any(now >= until for until in self._ends.values()):
            self._box.stop()  # the keeper does not answer

    def _look(self, now: float) -> None:
        """Each task by what is below it; and the whole sandbox, where what they left running is found too."""
        self._next_look = now + LOOK_S
        going = [watch for watch in self._going().values() if not watch.broken]
        if len(self._jobs) > 1:
            for watch in going:
                watch.outer_pid = watch.outer_pid or census.outer_pid(self._box.pid, watch.pid)
                watch.cut = self._excess(census.take(watch.outer_pid), 1)
        beyond = self._excess(census.take(self._box.pid), len(going) + (len(self._jobs) > 1))
        if beyond is None and self._box.ran_out_of_memory():
            beyond = Ending.MEMORY
        if beyond is None and self._box.files() > self._limits.files * len(going):
            beyond = Ending.FILES
        if beyond is not None and going and not any(watch.broken for watch in going):
            for watch in going:
                watch.cut = beyond

    def _excess(self, seen: census.Census, shares: int) -> Ending | None:
        if seen.bytes > self._limits.job_bytes * shares:
            return Ending.MEMORY
        return Ending.PROCESSES if seen.processes > self._limits.processes * shares else None
