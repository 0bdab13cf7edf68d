"""Limits of the kernel for all processes of a sandbox together, where an administrator has delegated them.

Version 2: a group that may be written to, with memory and pids among its `cgroup.subtree_control` (systemd:
`Delegate=yes` with `DelegateSubgroup=`). Version 1: writable groups of both controllers. The parent's own count
stands beside it in any case: it tells which task it was, and needs nobody's leave.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, slots=True)
class Group:
    """Folders of one sandbox's group: one in version 2, one for each controller in version 1."""

    folders: tuple[Path, ...]

    @property
    def doors(self) -> tuple[str, ...]:
        """A process that writes 0 to these joins, and all that it starts is inside."""
        return tuple(str(folder / "cgroup.procs") for folder in self.folders)

    def ended_for_memory(self) -> int:
        """How many of its processes the kernel has ended for their memory."""
        found = 0
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    found += sum(map(_count, (folder / name).read_text().splitlines()))
        return found


@contextlib.contextmanager
def group(*, memory_bytes: int, processes: int) -> Iterator[Group | None]:
    """A new group with these limits, or None where none is delegated. It goes with the `with`."""
    name = f"tilegate-{os.getpid()}-{secrets.token_hex(4)}"
    made: list[Path] = []
    try:
        try:
            for base in delegated(MEMBERSHIP.read_text(), ROOT):
                folder = base / name
                folder.mkdir()
                made.append(folder)
                _bound(folder, memory_bytes, processes)
            found = Group(tuple(made)) if made else None
        except OSError:
            found = None
        yield found
    finally:
        for folder in made:
            with contextlib.suppress(
                OSError
            ):  # a process that is still dying keeps it; it holds nothing else
                folder.rmdir()


def delegated(membership: str, root: Path) -> tuple[Path, ...]:
    """Groups below which this process may make one: that of both controllers, one for each, or none.

    Args:
        membership: text of `/proc/self/cgroup`: lines of number, controllers and path.
        root: where the hierarchies are mounted.
    """
    own = {names: path for _, names, path in (line.split(":", 2) for line in membership.splitlines())}
    if "" in own:
        unified = root if (root / "cgroup.controllers").exists() else root / "unified"
        here = unified / own[""].lstrip("/")
        for base in (here, here.parent):
            if (
                base.is_relative_to(unified)
                and set(CONTROLLERS) <= _passed_on(base)
                and os.access(base, os.W_OK)
            ):
                return (base,)
    bases = [root / names / path.lstrip("/") for names, path in own.items() if names in CONTROLLERS]
    if len(bases) == len(CONTROLLERS) and all(os.access(base, os.W_OK) for base in bases):
        return tuple(bases)
    return ()


def _passed_on(base: Path) -> set[str]:
    try:
        return set((base / "cgroup.subtree_control").read_text().split())
    except OSError:
        return set()


def _bound(folder: Path, memory_bytes: int, processes: int) -> None:
    values = {
        "memory.max": memory_bytes,
        "memory.swap.max": 0,
        "memory.limit_in_bytes": memory_bytes,
        "pids.max": processes,
    }
    for name, value in values.items():
        if (folder / name).exists():
            (folder / name).write_text(str(value))


def _count(line: str) -> int:
    name, _, number = line.partition(" ")
    return int(number) if name == "oom_kill" else 0
