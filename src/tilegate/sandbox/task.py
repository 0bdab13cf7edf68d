"""A task in its own process: inputs from memory, frames to the parent, and an end that is its own."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import traceback
from typing import Any, NoReturn

from tilegate.sandbox import frames

_CHUNK = 1 << 20


def run_task(name: str, inputs_fd: int, results_fd: int) -> NoReturn:
    """Call `package.module:function` with its inputs and a way to send frames. Never returns.

    Args:
        name: of the task.
        inputs_fd: a file of frames, whole.
        results_fd: a pipe to the parent.
    """
    results = open(results_fd, "wb")  # noqa: SIM115 (open until the process ends)

    def send(frame: str, blob: bytes) -> None:
        results.write(frames.preamble(frame, len(blob)))
        results.write(blob)
        results.flush()

    def emit(frame: str, blob: bytes) -> None:
        if frame == frames.END:
            raise ValueError(f"a frame named {frame!r} is not a task's to send")
        send(frame, blob)

    code = 1
    try:
        inputs = _inputs(inputs_fd)
        module, _, function = name.partition(":")
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
