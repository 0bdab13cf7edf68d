"""What the child asks the kernel for before it runs anything that is not ours, and what came of it.

Nothing is assumed: namespaces are compared with the parent's, and a piece that cannot be had is told by name.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Mapping
from pathlib import Path

from tilegate.records.isolation import Isolation, Level, Limits
from tilegate.sandbox import landlock, permitted, seccomp
from tilegate.sandbox.control import Lacking, Order

KINDS = ("net", "pid", "mnt", "user", "ipc", "uts", "cgroup")
"""Namespaces that must be the job's own under `full`."""
LEAST_LANDLOCK = 1
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/self", "/proc/sys/vm/overcommit_memory")
"""Read of the host's /proc by libraries while they start. The rest of it tells about other processes."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 38, 36

_libc = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):  # noqa: N818 - carried to the parent as the record it holds
    """A piece of the isolation that was asked for cannot be had here."""

    def __init__(self, piece: str, why: str) -> None:
        super().__init__(piece, why)
        self.lacking = Lacking(piece=piece, why=why)


def namespaces() -> dict[str, str]:
    """Identities of this process's namespaces, by kind; one that cannot be read is left out."""
    found = {}
    for kind in KINDS:
        try:
            found[kind] = os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115 (the link is no path)
        except OSError:
            continue
    return found


def confine(order: Order) -> Isolation:
    """Put this process behind the walls of its level, for good, and measure them.

    Raises:
        Unavailable: one of them cannot be had.
    """
    apart = _apart(order.parents)
    if order.level is Level.FULL and (shared := [kind for kind in KINDS if not apart[kind]]):
        raise Unavailable("namespaces", f"shared with the host: {', '.join(shared)}")
    forbid_new_privileges()
    adopt_orphans()
    _limit(order.limits, own_user=order.own_user, driver=order.level is Level.GPU)
    abi = 0 if order.level is Level.NONE else _fence_files(order, own_proc=apart["pid"])
    if order.level is not Level.NONE:
        _filter_calls(order)
    return Isolation(
        level=order.level,
        network=not apart["net"] and not _filtered(),
        own_pids=apart["pid"],
        own_files=apart["mnt"] and order.level is Level.FULL,
        filtered=_filtered(),
        landlock=abi,
        cgroup=order.cgroup,
        uid=order.uid,
    )


def die_with(parent: int) -> None:
    """End when the parent ends, whatever this process does."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def end_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def forbid_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    """What a task leaves running stays below this process, where it is found and ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _apart(parents: Mapping[str, str]) -> dict[str, bool]:
    """Which namespaces are this process's own. One that cannot be read on either side counts as shared."""
    own = namespaces()
    return {kind: kind in own and kind in parents and own[kind] != parents[kind] for kind in KINDS}


def _limit(limits: Limits, *, own_user: bool, driver: bool) -> None:
    """Resource limits of this process and of each that it starts; never above what is already in force.

    The kernel counts processes for each user. A person runs other programs too, so where a job has no user of
    its own only the parent's count bounds it.
    """
    if own_user:
        _cap(resource.RLIMIT_NPROC, limits.processes)
    if not driver:  # a GPU's driver reserves addresses by the terabyte
        _cap(resource.RLIMIT_AS, limits.memory_bytes)
    for what, wanted in (
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 1),  # a handler that is a program is kept from a crash by 1, and not by 0
    ):
        _cap(what, wanted)


def _cap(what: int, wanted: int) -> None:
    hard = resource.getrlimit(what)[1]
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(what, (value, value))


def _fence_files(order: Order, *, own_proc: bool) -> int:
    # A GPU's driver reads /proc of the process that it is in, which cannot be named before it is forked, and
    # gives its threads names there. What others' processes hold stays shut: Landlock lets nobody look inside.
    driver = order.level is Level.GPU
    proc = ["/proc"] if own_proc or driver else FACTS
    shared = ["/dev/shm"] if order.level is Level.FULL else []  # noqa: S108 - the job's own there
    nodes = (*DEVICES, *order.devices, *(["/proc"] if driver else []))
    present = [Path(path) for path in (*order.reads, *proc) if Path(path).exists()]
    devices = [Path(path) for path in nodes if Path(path).exists()]
    try:
        abi = landlock.restrict(present, [Path(order.scratch), *map(Path, shared)], devices=devices)
    except OSError as error:
        raise Unavailable("landlock", error.strerror or str(error)) from None
    if abi < LEAST_LANDLOCK:
        raise Unavailable("landlock", "this kernel has none")
    return abi


def _filter_calls(order: Order) -> None:
    driver = permitted.DRIVER if order.level is Level.GPU else {}
    from_memory = permitted.MEMORY_FILES if order.memory_files else {}
    try:
        seccomp.install((*driver.items(), *from_memory.items()))
    except OSError as error:
        raise Unavailable("seccomp", error.strerror or str(error)) from None
    if not _filtered():
        raise Unavailable("seccomp", "the kernel took the filter and does not apply it")


def _filtered() -> bool:
    """Whether a filter of system calls is in force here."""
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return any(line.split() == ["Seccomp:", "2"] for line in lines)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
