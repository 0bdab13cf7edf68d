"""What a child asks the kernel for before it runs anything that is not ours. Linux, through ctypes.

Three ways in, the first that works: namespaces as root; namespaces inside a user namespace; none. Whether it
worked is measured afterwards, by comparing with the parent's namespaces, and never assumed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Mapping
from typing import Any

from tilegate.records.isolation import Isolation, Limits

KINDS = ("net", "pid")
"""Namespaces that `Isolation` speaks of."""
OPEN_FILES = 256
"""A TileLang build passed with 64; an evaluation may hold many libraries."""

_NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 1 << 2

_libc = ctypes.CDLL(None, use_errno=True)


def namespaces() -> dict[str, str]:
    """Identities of this process's namespaces, by kind; one that cannot be read is left out."""
    found = {}
    for kind in KINDS:
        try:
            found[kind] = os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115 (the link is no path)
        except OSError:
            continue
    return found


def measure(parents: Mapping[str, str]) -> Isolation:
    """The isolation in force in this process, against the namespaces of the one that started the job.

    A namespace that cannot be read on either side counts as shared.
    """
    own = namespaces()
    apart = {kind: kind in own and kind in parents and own[kind] != parents[kind] for kind in KINDS}
    return Isolation(
        level="namespaces" if all(apart.values()) else "process",
        network=not apart["net"],
        own_pids=apart["pid"],
        uid=os.getuid(),
    )


def die_with_parent() -> None:
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def forbid_new_privileges() -> None:
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def limit(limits: Limits) -> None:
    """Resource limits of this process and of each that it starts; never above what is already in force."""
    for what, wanted in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(what, (value, value))


def enter_namespaces() -> bool:
    """Give the next child of this process its own pids, and this one its own network, IPC and host name.

    Returns:
        Whether it did. If not, nothing has changed.
    """
    apart = _NEWNET | _NEWPID | _NEWIPC | _NEWUTS
    try:
        _call("unshare", apart)
    except OSError:
        # A user namespace without its map would leave us nobody, so the whole way is walked by a child first.
        scout = os.fork()
        if not scout:
            os._exit(0 if _enter_as_user(apart) else 1)
        return os.waitpid(scout, 0)[1] == 0 and _enter_as_user(apart)
    return True


def _enter_as_user(apart: int) -> bool:
    uid, gid = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEWUSER | apart)
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(descriptor, line.encode())
            os.close(descriptor)
    except OSError:
        return False
    return True


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def drop_capabilities() -> None:
    """Root without its powers: it cannot rejoin the host's namespaces or look into the host's processes.

    Reading stays: in a container the user's files often belong to another uid.
    """
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    data = (_CapData * 2)()
    _call("capget", ctypes.byref(header), data)
    kept = data[0].permitted & _CAP_DAC_READ_SEARCH
    data[0] = _CapData(kept, kept, 0)
    data[1] = _CapData(0, 0, 0)
    _call("capset", ctypes.byref(header), data)


def _call(name: str, *arguments: Any) -> None:
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    if getattr(_libc, name)(*words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
