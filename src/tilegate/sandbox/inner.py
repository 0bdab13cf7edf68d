"""Inside the job: the trusted start of the child, run by path as a program of its own.

    parent ── outer ── init (pid 1) ── worker        with namespaces
    parent ── worker                                 without

The outer stands for the job towards the parent: it ends as the worker ended, and only once everything in the
namespace is dead. The init does nothing but reap: pid 1 is deaf to its own signals, so a crash in it would be
told as another one.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn


def _load_own_package() -> None:
    """Both sides of the wall run the same tilegate, whichever others the search path holds, if any."""
    root = Path(__file__).parents[1]
    spec = importlib.util.spec_from_file_location(
        "tilegate", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{root} is no package")
    sys.modules["tilegate"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


sys.path += sys.argv[2:]
_load_own_package()

from tilegate.records.canonical import decode, encode  # noqa: E402 (found by the line above)
from tilegate.sandbox import confine, frames  # noqa: E402 (found by the line above)
from tilegate.sandbox.job import Order  # noqa: E402 (found by the line above)

_CHUNK = 1 << 20


def main() -> None:
    order = decode(Order, sys.argv[1].encode(), where="the order of a job")
    for descriptor in (order.inputs_fd, order.results_fd):
        os.set_inheritable(descriptor, False)
    confine.die_with_parent()
    if os.getppid() != order.parent:
        os._exit(1)
    confine.forbid_new_privileges()
    confine.limit(order.limits)
    if confine.enter_namespaces():
        _descend(order)
    confine.drop_capabilities()
    _work(order)


def _descend(order: Order) -> None:
    """Returns in the worker alone."""
    reader, writer = os.pipe()
    outer = _Outer()
    signal.signal(signal.SIGTERM, outer.end)
    outer.init = os.fork()
    if outer.init:
        _close(order.inputs_fd, order.results_fd, writer)
        outer.wait(reader)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    confine.die_with_parent()
    worker = os.fork()
    if worker:
        _close(order.inputs_fd, order.results_fd, reader)
        _reap(worker, writer)
    _close(reader, writer)


class _Outer:
    """The process outside the namespace."""

    init = 0

    def end(self, _number: int, _frame: FrameType | None) -> None:
        """The parent wants the job gone: with its init, everything in the namespace dies."""
        if self.init:
            os.kill(self.init, signal.SIGKILL)

    def wait(self, reader: int) -> NoReturn:
        told = os.read(reader, 16)
        status = os.waitpid(self.init, 0)[1]
        self.init = 0
        _end_as(int(told) if told else status)


def _reap(worker: int, writer: int) -> NoReturn:
    pid, status = os.waitpid(-1, 0)
    while pid != worker:
        pid, status = os.waitpid(-1, 0)
    os.write(writer, str(status).encode())
    os._exit(0)


def _end_as(status: int) -> NoReturn:
    """End this process the way a wait status says that another one ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _work(order: Order) -> NoReturn:
    results = open(order.results_fd, "wb")  # noqa: SIM115, PTH123 (open until the process ends)

    def send(name: str, blob: bytes) -> None:
        results.write(frames.preamble(name, len(blob)))
        results.write(blob)
        results.flush()

    def emit(name: str, blob: bytes) -> None:
        if name in frames.RESERVED:
            raise ValueError(f"a frame named {name!r} is not a task's to send")
        send(name, blob)

    send(frames.ISOLATION, encode(confine.measure(order.namespaces)))
    code = 1
    try:
        inputs = _inputs(order.inputs_fd)
        module, _, function = order.task.partition(":")
        getattr(importlib.import_module(module), function)(inputs, emit)
        send(frames.END, b"")
        code = 0
    except SystemExit as leaving:
        code = _exit_status(leaving.code)
    except BaseException as error:  # noqa: BLE001 (the last frame of this process: told, and then it ends)
        traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
    finally:
        # Never through the interpreter's end: what libraries do while they are torn down is no result.
        _flush()
        os._exit(code)


def _inputs(descriptor: int) -> dict[str, bytes]:
    size = os.fstat(descriptor).st_size
    reader = frames.FrameReader(frame_bytes=size, total_bytes=size, frames=size)
    inputs: dict[str, bytes] = {}
    with open(descriptor, "rb", buffering=0) as stream:
        while piece := stream.read(_CHUNK):
            inputs.update(reader.feed(piece))
    if fault := reader.close():
        raise ValueError(f"the inputs of the job: {fault.why}")
    return inputs


def _exit_status(code: Any) -> int:
    """What the interpreter makes of `sys.exit(code)`."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _flush() -> None:
    """What was printed so far, by C code too. A task may have closed or replaced its streams."""
    ctypes.CDLL(None).fflush(None)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    main()
