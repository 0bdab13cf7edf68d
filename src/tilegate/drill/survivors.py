"""Programs that a job left behind, found by a word in their command line that only this drill knows."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_ROUNDS = 20


def end_survivors(name: str) -> list[int]:
    """Numbers of those that lived. Afterwards none does, even if they forked on."""
    found: list[int] = []
    for _ in range(_ROUNDS):
        alive = [pid for pid in _with(name) if pid != os.getpid()]
        if not alive:
            break
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found += alive
    return found


def _with(name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if name.encode() in words and b"Z" not in _state(entry):
                    found.append(int(entry.name))
    return found


def _state(entry: Path) -> bytes:
    return (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
