"""What a job's processes hold together. Limits of the kernel count for each process; this counts for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Census:
    """One look at a process and all below it."""

    processes: int
    bytes: int
    """Anonymous and shared memory. Pages of files are not counted: they can be dropped at any time. Pages that
    forks still share are counted for each."""


def take(pid: int) -> Census:
    """Processes below `pid` now, itself included; one that goes meanwhile is left out."""
    found = [held for one in (pid, *below(pid)) if (held := _held(one)) is not None]
    return Census(processes=len(found), bytes=sum(found))


def below(pid: int) -> Iterator[int]:
    """Children of a process, theirs, and so on."""
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_bytes().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from below(child)


def outer_pid(root: int, inner: int) -> int:
    """The process below `root` that has the number `inner` in its own namespace, or 0 where there is none."""
    for pid in below(root):
        line = _status(pid).get("NSpid", "")
        if line and int(line.split()[-1]) == inner:
            return pid
    return 0


def _held(pid: int) -> int | None:
    status = _status(pid)
    if not status:
        return None
    kilobytes = sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem") if name in status)
    return kilobytes * 1024


def _status(pid: int) -> dict[str, str]:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
