"""A sandbox that runs, as its parent holds it: a process, the keeper's socket, and descriptors for each task."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from tilegate.errors import SandboxError
from tilegate.records.isolation import Isolation, Level
from tilegate.sandbox import bubblewrap, census, cgroup, control, frames
from tilegate.sandbox.job import Job, last_words
from tilegate.sandbox.missing import lacking, piece_in

_READY_S = 120.0
"""Start-up and warm imports, on a cold disk."""
_STOP_S = 5.0
"""How long an end may take, and how long a SIGKILL."""
_WORDS_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """One task of a sandbox, as descriptors to read from without waiting."""

    results: int
    output: int


class Box:
    """Nothing here blocks for longer than `_STOP_S`.

    Attributes:
        socket: where the keeper's messages arrive.
        exit: readable once the sandbox has gone.
        wish: readable once another thread wants it to end.
        isolation: as measured inside, once it has been waited for.
    """

    isolation: Isolation

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        parent: socket.socket,
        output: int,
        level: Level,
        group: cgroup.Group | None,
    ) -> None:
        self.socket = parent
        self.exit = os.pidfd_open(process.pid)
        self.wish = os.eventfd(0)
        self._output = output
        self._process = process
        self._level = level
        self._group = group
        self._ended_for_memory = 0
        self._parts: dict[int, ExitStack] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> None:
        """Until the sandbox is what was asked for, with all that was to be imported.

        Raises:
            SandboxError: it is not, or did not start.
        """
        self.isolation = _measured(self, self._level)

    def start(self, number: int, job: Job) -> Part:
        """Let the keeper run a task. Its inputs are whole in memory before, so nothing can wait for them."""
        kept = self._parts[number] = ExitStack()
        with ExitStack() as theirs:
            inputs = _inputs(job, theirs)
            results, results_writer = _pipe(kept, theirs)
            output, output_writer = _pipe(kept, theirs)
            message = control.write(control.Start(part=number, task=job.task))
            with contextlib.suppress(ConnectionError):  # its end will be told
                socket.send_fds(self.socket, [message], [inputs, results_writer, output_writer])
        return Part(results, output)

    def end_part(self, number: int) -> None:
        """Ask the keeper to end a task; `Ended` tells that it did."""
        with contextlib.suppress(OSError):
            self.socket.send(control.write(control.Stop(part=number)))

    def close_part(self, number: int) -> None:
        self._parts.pop(number).close()

    def message(self) -> control.Told | None:
        """The keeper's next message, if one waits. One that is none ends the sandbox."""
        try:
            data = self.socket.recv(control.MESSAGE_BYTES, socket.MSG_DONTWAIT)
            return control.told(data) if data else None
        except BlockingIOError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            self.stop()
            return None

    def words(self) -> str:
        """What the start-up printed last."""
        try:
            return last_words(os.read(self._output, _WORDS_BYTES))
        except BlockingIOError:
            return ""

    def ask_to_end(self) -> None:
        """From another thread: whoever attends to the sandbox sees the wish."""
        os.eventfd_write(self.wish, 1)

    def stop(self) -> int:
        """End it with all that it started, and reap it. Idempotent.

        Returns:
            The exit status, or the negative signal number.
        """
        if self._process.returncode is None:
            self._end_below()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.exit, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        return -signal.SIGKILL if self._process.returncode is None else self._process.returncode

    def close(self) -> None:
        self.stop()
        for kept in self._parts.values():
            kept.close()
        os.close(self.exit)
        os.close(self.wish)

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has ended one of its processes for that since this was asked."""
        before, self._ended_for_memory = (
            self._ended_for_memory,
            self._group.ended_for_memory() if self._group else 0,
        )
        return self._ended_for_memory > before

    def files(self) -> int:
        """Temporary files in it now, where it has a file system of its own."""
        if not self.isolation.own_files:
            return 0
        try:
            inside = next(census.below(self.pid))
            found = os.statvfs(f"/proc/{inside}/root{bubblewrap.SCRATCH}")
        except (StopIteration, OSError):  # on its way out
            return 0
        return found.f_files - found.f_ffree

    def gone(self, seconds: float) -> bool:
        return _readable(self.exit, seconds)

    def _end_below(self) -> None:
        """Everything in a namespace dies with its first process, and bubblewrap ends when all of it is dead.

        Without one the keeper adopts whatever loses its parent, so all of it is found below the keeper.
        """
        until = time.monotonic() + _STOP_S
        while not self.gone(0) and time.monotonic() < until:
            alive = list(census.below(self.pid))
            if not alive:
                return
            for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped, none starts another meanwhile
                for pid in alive:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            self.gone(0.002)


def _measured(box: Box, level: Level) -> Isolation:
    poll = select.poll()
    for descriptor in (box.socket.fileno(), box.exit):
        poll.register(descriptor, select.POLLIN)
    poll.poll(_READY_S * 1000)
    message = box.message()
    if isinstance(message, control.Ready):
        return message.isolation
    if isinstance(message, control.Lacking):
        raise lacking(level, message.piece, message.why)
    status = box.stop()
    words = box.words()
    if level is not Level.NONE and (piece := piece_in(words)) is not None:
        raise lacking(level, piece, words)
    raise SandboxError(
        "a job failed before its task was imported",
        where=level.value,
        why=words or f"exit status {status}",
        next_step="see that tilegate is installed for this interpreter, and that the memory limit is not tiny",
    )


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _inputs(job: Job, theirs: ExitStack) -> int:
    """The inputs as a stream of frames in memory."""
    descriptor = os.memfd_create("inputs")
    theirs.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as stream:
        for name, blob in (*job.inputs.items(), (frames.END, b"")):
            stream.write(frames.preamble(name, len(blob)))
            stream.write(blob)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    ours.callback(os.close, reader)
    theirs.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer
