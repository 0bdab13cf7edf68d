"""The keeper of a sandbox: forks a child for each task it is told to start, and tells how each ended.

It stands between the parent, which trusts nothing it is told by a task, and tasks that share one warmed process:
what the keeper imported, none imports again. A task gets descriptors of its own and nothing of its neighbours'.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import tempfile
from typing import NoReturn

from tilegate.sandbox import confine, control, landlock
from tilegate.sandbox.task import run_task


class Keeper:
    """Serves one parent over its socket until that closes."""

    def __init__(self, parent: socket.socket, scratch: str, *, fenced: bool) -> None:
        self._parent = parent
        self._scratch = scratch
        self._fenced = fenced
        self._parts: dict[int, int] = {}
        """Number of the part, by process."""
        self._folders: dict[int, str] = {}

    def serve(self) -> NoReturn:
        ended, notify = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._parent, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while True:
            ready = [number for number, _ in poll.poll()]
            if ended in ready:
                os.read(ended, 1 << 12)
                self._reap()
            if self._parent.fileno() in ready:
                self._obey()

    def _obey(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._parent, control.MESSAGE_BYTES, 3)
        if not data:
            self._leave()
        message = control.asked(data)
        if isinstance(message, control.Stop):
            self._end(message.part)
        else:
            self._start(message, *descriptors)

    def _start(self, message: control.Start, inputs: int, results: int, output: int) -> None:
        # Its name cannot be guessed: a neighbour must not stand in the way of what is started later.
        self._folders[message.part] = tempfile.mkdtemp(prefix="part-", dir=self._scratch)
        pid = os.fork()
        if not pid:
            self._become(message, inputs, results, output)
        self._parts[pid] = message.part
        self._tell(control.Started(part=message.part, pid=pid))
        for descriptor in (inputs, results, output):
            os.close(descriptor)

    def _become(self, message: control.Start, inputs: int, results: int, output: int) -> NoReturn:
        """The child: free of all that is the keeper's, then the task's for good."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        confine.end_with_parent()
        inputs, results = _settle(inputs, results, output)
        folder = self._folders[message.part]
        os.chdir(folder)
        os.environ.update(HOME=folder, TMPDIR=folder, TILELANG_CACHE_DIR=f"{folder}/cache")
        if self._fenced:
            landlock.isolate_signals()  # the keeper is out of its reach; before ABI 6, only from tracing
        run_task(message.task, inputs, results)

    def _end(self, part: int) -> None:
        for pid, number in self._parts.items():
            if number == part:
                _kill(pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if (part := self._parts.pop(pid, None)) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                shutil.rmtree(self._folders.pop(part), ignore_errors=True)
                self._tell(control.Ended(part=part, status=status))

    def _tell(self, message: control.Told) -> None:
        with contextlib.suppress(OSError):  # a parent that is gone is seen by its silence
            self._parent.send(control.write(message))

    def _leave(self) -> NoReturn:
        """The parent is gone, or wants no more."""
        for pid in self._parts:
            _kill(pid)
        os._exit(0)


def _settle(*descriptors: int) -> tuple[int, int]:
    """Of (inputs, results, output): 3 and 4 become the first two, 1 and 2 the last, and no other stays open."""
    inputs, results, output = (fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in descriptors)
    for source, number, inheritable in (
        (output, 1, True),
        (output, 2, True),
        (inputs, 3, False),
        (results, 4, False),
    ):
        os.dup2(source, number, inheritable)
    os.closerange(5, os.sysconf("SC_OPEN_MAX"))
    return 3, 4


def _kill(pid: int) -> None:
    """A part leads a session and a process group of its own."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
