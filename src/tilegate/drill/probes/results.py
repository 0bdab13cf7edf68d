"""At whoever reads what comes back."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tilegate.drill.probes.attempt import refused, tried
from tilegate.drill.props import Props
from tilegate.records.drill import Claim
from tilegate.records.isolation import Isolation, Level
from tilegate.sandbox import control
from tilegate.sandbox.frames import END, preamble

FORGED_UID = 4_242_424
_FLOOD = 8 << 20
_LONGEST = 900 << 10


class Emit(Protocol):
    def __call__(self, name: str, blob: bytes) -> None: ...


def exit_code(_props: Props, _emit: Emit) -> Claim:
    """Leave with 0 and a friendly word."""
    sys.stdout.write('{"status": "PASS", "artifact": "kernel.cubin"}\nPASS\n')
    sys.stdout.flush()
    os._exit(0)


class _Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, int]]:
        return os.open, (self.path, os.O_CREAT | os.O_WRONLY)


def pickle_as_result(props: Props, emit: Emit) -> Claim:
    """Makes a file for whoever unpickles it."""
    for name in ("result", "artifact.pkl", "meta"):
        emit(name, pickle.dumps(_Runs(f"{props.open_folder}/unpickled")))
    return tried("sent")


def library_as_result(_props: Props, emit: Emit) -> Claim:
    """A library with constructors, of this interpreter's, in place of a kernel's."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if ".so" in path.name and path.is_file() and path.stat().st_size < _LONGEST:
            emit("library", path.read_bytes())
            return tried(f"sent {path.name}")
    return refused("no library is at hand")


def forged_word(_props: Props, _emit: Emit) -> Claim:
    """What the job's trusted part says of its isolation, said again by the job."""
    isolation = Isolation(
        level=Level.FULL,
        network=False,
        own_pids=True,
        own_files=True,
        filtered=True,
        landlock=99,
        cgroup=True,
        uid=FORGED_UID,
    )
    return _into_all(control.write(control.Ready(isolation=isolation)))


def early_end(_props: Props, _emit: Emit) -> Claim:
    """A finished stream, and then silence."""
    _into_all(preamble(END, 0))
    os._exit(0)


def noise(_props: Props, _emit: Emit) -> Claim:
    """Bytes that are no frame, into every descriptor."""
    return _into_all(b"\0\xff{}PASS\n" * 512)


def _into_all(data: bytes) -> Claim:
    count = 0
    for number in range(3, 256):
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            os.write(number, data)
            count += 1
    return tried(f"written into {count} descriptors")


def many_frames(_props: Props, emit: Emit) -> Claim:
    """100,000 empty frames."""
    for _ in range(100_000):
        emit("more", b"")
    return tried("sent")


def long_frame(_props: Props, emit: Emit) -> Claim:
    """16 MiB in one frame."""
    emit("long", bytes(16 << 20))
    return tried("sent")


def endless_header(_props: Props, emit: Emit) -> Claim:
    """A name of 60,000 characters."""
    try:
        emit("n" * 60_000, b"")
    except Exception:  # noqa: BLE001 - whatever the polite way says, the rude one follows
        return _into_all(b"TGF1" + (60_000).to_bytes(2, "big") + b"n" * 60_000)
    return tried("sent")


def printing(_props: Props, _emit: Emit) -> Claim:
    """8 MiB on standard output."""
    for _ in range(_FLOOD >> 16):
        os.write(1, b"A" * (1 << 16))
    return tried("printed")


def cursor(_props: Props, _emit: Emit) -> Claim:
    """What moves a terminal's cursor and renames its window, printed and raised."""
    os.write(2, b"\x1b[2J\x1b]0;drill\x07\x1b[1A\n")
    return tried("printed")


def closed_streams(_props: Props, _emit: Emit) -> Claim:
    """With every descriptor closed there is nobody to report to."""
    os.closerange(0, 256)
    os._exit(0)
