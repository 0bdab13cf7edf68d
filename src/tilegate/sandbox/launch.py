"""Starting a job's process, and ending it: the parent's side of the door.

A stronger sandbox is another command in front of the same program: `_command` and `_environment` change, and
nothing that calls `started`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tilegate.errors import SandboxError
from tilegate.records.canonical import encode
from tilegate.records.isolation import Limits
from tilegate.sandbox import confine, frames
from tilegate.sandbox.job import Job, Order

_INNER = Path(__file__).with_name("inner.py")
_STOP_S = 5.0
"""How long an end that waits for the whole namespace may take, and how long a SIGKILL."""


class Child:
    """A running job, as descriptors: nothing here blocks for longer than `_STOP_S`.

    Attributes:
        results: the frames, non-blocking.
        output: what it prints, non-blocking.
        exit: readable once the process has gone.
        own_pids: set when the child says so; then its end is the end of all that it started.
        ended: set when another thread asked for its end.
    """

    def __init__(self, process: subprocess.Popen[bytes], results: int, output: int, ended: int) -> None:
        self.results = results
        self.output = output
        self.exit = ended
        self.own_pids = False
        self.ended = False
        self._process = process

    def stop(self) -> int:
        """End the job with all that can be reached of it, and reap it. Idempotent.

        Returns:
            The exit status, or the negative signal number.
        """
        if self._process.returncode is None:
            if self.own_pids and not self._gone(0):
                signal.pidfd_send_signal(self.exit, signal.SIGTERM)
                self._gone(_STOP_S)
            _kill(self._process)
        return -signal.SIGKILL if self._process.returncode is None else self._process.returncode

    def end(self) -> None:
        """Ask for its end from another thread: whoever waits for it sees it go, and reaps it with `stop`."""
        self.ended = True
        number = signal.SIGTERM if self.own_pids else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.exit, number)

    def _gone(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.exit, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


@contextlib.contextmanager
def started(job: Job, limits: Limits) -> Iterator[Child]:
    """A job's process for the length of a `with`. Afterwards it and its folder are gone, whatever happened.

    Raises:
        SandboxError: the process could not be started.
    """
    with ExitStack() as ours:
        try:
            child = _start(job, limits, ours)
        except OSError as error:
            raise SandboxError(
                "a job could not be started",
                where=str(error.filename or job.task),
                why=error.strerror or str(error),
                next_step="free memory, processes or space for temporary files; Linux 5.3 or later is needed",
            ) from error
        yield child


def _start(job: Job, limits: Limits, ours: ExitStack) -> Child:
    folder = tempfile.mkdtemp(prefix="tilegate-")
    ours.callback(_remove, folder)
    with ExitStack() as theirs:
        inputs = _inputs(job, theirs)
        results, results_writer = _pipe(ours, theirs)
        output, output_writer = _pipe(ours, theirs)
        order = Order(
            task=job.task,
            limits=limits,
            inputs_fd=inputs,
            results_fd=results_writer,
            parent=os.getpid(),
            namespaces=confine.namespaces(),
        )
        process = subprocess.Popen(  # noqa: S603 (our own program; the order is data)
            _command(order, job.import_paths),
            stdin=subprocess.DEVNULL,
            stdout=output_writer,
            stderr=output_writer,
            pass_fds=(inputs, results_writer),
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
            umask=0o077,
        )
    ours.callback(_kill, process)
    ended = os.pidfd_open(process.pid)
    ours.callback(os.close, ended)
    child = Child(process, results, output, ended)
    ours.callback(child.stop)
    return child


def _command(order: Order, import_paths: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-I", "-B", "-X", "utf8", str(_INNER), encode(order).decode(), *import_paths]


def _environment(folder: str) -> dict[str, str]:
    """All that a job sees of the environment: where tools are, and a home of its own."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",  # sums must not depend on how many cores a machine has
        "HF_HUB_OFFLINE": "1",
        # TileLang's cache holds libraries and pickles that are run when found: never shared.
        "TILELANG_DISABLE_CACHE": "1",
        "TILELANG_CACHE_DIR": str(Path(folder, "tilelang-cache")),
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",  # importing tvm_ffi would start a C++ build for some torch
    }


def _inputs(job: Job, theirs: ExitStack) -> int:
    """The inputs as a stream of frames in memory: whole before the child starts, so nothing can wait for it."""
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


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        # Before it is reaped, so the number of the group cannot be another's yet.
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)


def _remove(folder: str) -> None:
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        # Read-only folders, or a tree deeper than the interpreter's stack. Neither tool follows links.
        for tool in (("chmod", "-R", "u+rwx"), ("rm", "-rf")):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(  # noqa: S603 (two fixed tools on a folder of our own)
                    [*tool, "--", folder],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=60,
                    check=False,
                )
