"""One user id per running sandbox: the kernel counts processes per user, and a user cannot signal another.

Ids 60600 to 60663 lie between those of people and those that systemd hands out. A slot is held by a lock on a
file, so that two tilegate processes never share one; the lock goes with the process that holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tilegate.errors import SandboxError

FIRST, COUNT = 60600, 64
LOCKS = Path("/run/tilegate-uids")


def switchable() -> bool:
    """Whether this process may become another user: host root, or root of a namespace with ids to spare."""
    return os.geteuid() == 0 and all(_mapped(uid) for uid in (FIRST, FIRST + COUNT - 1))


@contextlib.contextmanager
def claimed() -> Iterator[int]:
    """A user id that no other sandbox on this machine has now.

    Raises:
        SandboxError: all are taken, or the locks cannot be kept.
    """
    uid, lock = _claim()
    with lock:
        yield uid


def _claim() -> tuple[int, IO[bytes]]:
    try:
        LOCKS.mkdir(mode=0o700, exist_ok=True)
        for uid in range(FIRST, FIRST + COUNT):
            lock = (LOCKS / str(uid)).open("wb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
            else:
                return uid, lock
    except OSError as error:
        raise SandboxError(
            "no user id could be claimed for a job",
            where=str(error.filename or LOCKS),
            why=error.strerror or str(error),
            next_step="let /run be writable for root, or run as an ordinary user",
        ) from error
    raise SandboxError(
        "no user id is free for a job",
        where=str(LOCKS),
        why=f"all {COUNT} are held by jobs that run now",
        next_step="wait for other tilegate processes to end",
    )


def stuck_as_root() -> bool:
    """Root of the machine, for all that can be told, and no other user to become: its files stay its own inside."""
    return os.geteuid() == 0 and not switchable() and any(outside == 0 for _, outside, _ in _ranges())


def _mapped(uid: int) -> bool:
    return any(first <= uid < first + count for first, _, count in _ranges())


def _ranges() -> list[tuple[int, int, int]]:
    """User ids of this namespace: the first inside, the first outside, how many."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return []
    return [(int(inside), int(outside), int(count)) for inside, outside, count in map(str.split, lines)]


def sweep(uid: int) -> None:
    """End every process that still runs as this user of ours: nothing of a job is left when its slot is free."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.stat().st_uid == uid:
                os.kill(int(entry.name), signal.SIGKILL)
