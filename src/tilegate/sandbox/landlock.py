"""Landlock: which files a process reaches, which processes it can signal. Linux 5.13 or later, through ctypes.

A domain is entered, never left, and all that is started inside stays inside; a second one only takes away.
It binds the thread that enters it and those started afterwards, so it is entered while there is one.

What it does not govern, whatever the path: looking (stat), and changing the mode, owner, times and attributes
of a file that the user owns. Trees that are only to be read must be mounted so, or belong to someone else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

SIGNALS_FROM = 6
"""The first ABI that keeps a process from signalling those outside of its domain."""

_TCP_FROM = 4
_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls. Their numbers are the same on every machine."""
_ASK_ABI, _PATH_BENEATH, _PR_SET_NO_NEW_PRIVS = 1, 1, 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_NEWER_RIGHTS = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
"""The ABI that each came with. Those before them came with the first."""

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
"""No device, socket, pipe or symbolic link can be made: nothing for a reader outside to stumble over."""
_DEVICE = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
"""Cutting short is part of opening a file of /proc to write it."""
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""What may be said of something that is no folder."""
_BIND_AND_CONNECT_TCP = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """What this kernel's Landlock knows: 0 where it is absent or switched off, 7 in Linux 6.15."""
    return max(0, int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_ABI))))


def handled(version: int) -> tuple[int, int, int]:
    """All that an ABI can deny, as bits of rights over files, over the network, and of scopes. Pure."""
    oldest = _REFER - 1
    files = oldest | sum(right for since, right in _NEWER_RIGHTS if version >= since)
    network = _BIND_AND_CONNECT_TCP if version >= _TCP_FROM else 0
    return files, network, _ABSTRACT_SOCKETS_AND_SIGNALS if version >= SIGNALS_FROM else 0


def restrict(
    read: Sequence[Path],
    write: Sequence[Path],
    *,
    devices: Sequence[Path] = (),
    optional: Collection[Path] = (),
) -> int:
    """From here on this process, and all that it starts, reaches nothing but these paths.

    What is open already stays open, and mapped what is mapped.

    Args:
        read: files and folders with all below: to be read and run.
        write: likewise, and files and folders made, changed, moved and removed there.
        devices: device files, or folders with them: to be read, written, and asked by ioctl.
        optional: those of the paths that may be missing.

    Returns:
        The ABI that was used. Below 6 processes outside can be signalled, and abstract Unix sockets reached;
        below 5 every device that can be opened can be asked by ioctl; below 4 TCP is open; below 3 a file can
        be cut short wherever it is; below 2 nothing moves from one folder to another.

    Raises:
        OSError: there is no Landlock here, another thread runs and would stay free, a path is missing, or the
            kernel refuses. Nothing is restricted then.
    """
    version = abi()
    _check_alone(version)
    denied = handled(version)
    rules = _create(*denied)
    try:
        for paths, rights in ((read, _READ), (write, _WRITE), (devices, _DEVICE)):
            there = (path for path in paths if path not in optional or path.exists())
            _permit(rules, there, rights & denied[0])
        _enter(rules)
    finally:
        os.close(rules)
    return version


def isolate_signals() -> int:
    """From here on this process can neither signal nor trace those that were there before, its parent above all.

    For a child that was just forked, before it starts a thread. It reaches the same files as before, and works
    behind the filter of sandbox/seccomp.py.

    Returns:
        The ABI that was used. From 6 on both hold; below, only tracing is barred; with 0, nothing is.

    Raises:
        OSError: the kernel refuses. Sixteen domains can be inside one another.
    """
    version = abi()
    if version:
        scopes = handled(version)[2]
        # A domain must deny something. That nobody makes devices here changes nothing.
        rules = _create(0 if scopes else _MAKE_CHAR, 0, scopes)
        try:
            _enter(rules)
        finally:
            os.close(rules)
    return version


def _check_alone(version: int) -> None:
    if not version:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (numbers, not paths)
        raise OSError(errno.EBUSY, "another thread runs, and would stay outside of the Landlock domain")


def _create(files: int, network: int, scopes: int) -> int:
    """`struct landlock_ruleset_attr`: an older kernel takes a longer one, as long as the rest is zero."""
    wanted = struct.pack("=3Q", files, network, scopes)
    return _call(_CREATE, wanted, ctypes.c_size_t(len(wanted)), ctypes.c_uint32(0))


def _permit(rules: int, paths: Iterable[Path], rights: int) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            beneath = struct.pack("=Qi", rights if folder else rights & _OF_A_FILE, descriptor)
            _call(_ADD, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), beneath, ctypes.c_uint32(0))
        finally:
            os.close(descriptor)


def _enter(rules: int) -> None:
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "prctl: no new privileges")
    _call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))


def _call(number: int, *arguments: bytes | ctypes.c_int | ctypes.c_uint32 | ctypes.c_size_t) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock, call {number}: {os.strerror(ctypes.get_errno())}")
    return result
