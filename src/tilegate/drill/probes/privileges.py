"""Towards another user, another root folder, or another state of the machine.

What would change the machine is asked for in a way that changes nothing where it is granted, and is not asked
for at all without a sandbox.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import struct
import subprocess
import time
from functools import partial
from pathlib import Path

from tilegate.drill.probes.attempt import after, each, escaped, in_child, reaches, refused, syscall, unable
from tilegate.drill.props import Props
from tilegate.records.drill import Claim

_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
_PRIVATE = 1 << 18 | 1 << 14
_REMOUNT_READ_ONLY_BIND = 32 | 4096 | 1
_PR_GET_NO_NEW_PRIVS = 39


def become_root(_props: Props) -> Claim:
    if os.getuid() == 0 and _uid_of_host() == 0:
        return escaped("is root already")
    return each(
        lambda: in_child(lambda: after(escaped("is root"), os.setuid, 0)),
        lambda: in_child(lambda: after(escaped("is root"), os.setresuid, 0, 0, 0)),
        lambda: in_child(lambda: after(escaped("is root"), os.setreuid, 0, 0)),
        lambda: in_child(_file_user),
    )


def _file_user() -> Claim:
    syscall("setfsuid", 0)
    now = syscall("setfsuid", -1)
    return escaped("is root to files") if now == 0 else refused("still itself")


def _uid_of_host() -> int:
    """Of this process's uid 0, as the parent namespace counts."""
    inside, outside, _ = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()[0].split()
    return int(outside) - int(inside)


def become_group(_props: Props) -> Claim:
    if os.getgid() == 0 and _uid_of_host() == 0:
        return escaped("is in root's group already")
    return each(
        lambda: in_child(lambda: after(escaped("is in root's group"), os.setgid, 0)),
        lambda: in_child(lambda: after(escaped("is in groups of its choice"), os.setgroups, [0, 6])),
    )


def set_uid_program(props: Props) -> Claim:
    """One of root's, planted by the host."""
    done = subprocess.run(
        [f"{props.folder}/id", "-u"], capture_output=True, text=True, timeout=5, check=False
    )
    if done.returncode:
        return refused(done.stderr.strip()[:80] or f"exit status {done.returncode}")
    user = int(done.stdout)
    return escaped("runs as root") if user == 0 else refused(f"runs as {user}")


def capabilities(_props: Props) -> Claim:
    """Those that are held, and those that could be taken back."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    held = {n: int(v, 16) for n, v in (line.split(":\t") for line in lines if line.startswith("Cap"))}
    alive = {name: value for name, value in held.items() if value and name != "CapBnd"}
    if alive:
        return escaped(", ".join(f"{name} {value:x}" for name, value in alive.items()))
    header = struct.pack("<Ii", 0x20080522, 0)
    return each(lambda: after(escaped("took one"), syscall, "capset", header, struct.pack("<6I", *[1] * 6)))


def new_privileges(_props: Props) -> Claim:
    """Whether programs could still give any."""
    libc = ctypes.CDLL(None)
    on = libc.prctl(_PR_GET_NO_NEW_PRIVS, *[ctypes.c_ulong(0)] * 4)
    return refused("given up for good") if on == 1 else escaped("programs may give some")


def user_namespace(_props: Props) -> Claim:
    """Whoever makes one is root in it, in front of much of the kernel."""
    return in_child(lambda: after(escaped("is root in a new one"), syscall, "unshare", _NEWUSER))


def other_namespaces(_props: Props) -> Claim:
    kinds = (_NEWNS, _NEWPID, _NEWNET, 0x02000000, 0x04000000, 0x08000000, 0x00000080)
    return each(
        *(
            lambda k=k: in_child(lambda: after(escaped(f"made one of {k:#x}"), syscall, "unshare", k))
            for k in kinds
        )
    )


def clone_user_namespace(_props: Props) -> Claim:
    def call() -> Claim:
        child = syscall("clone", _NEWUSER | 17, 0, 0, 0, 0)
        return _parted(child)

    return in_child(call)


def clone3_user_namespace(_props: Props) -> Claim:
    """Its flags stand behind a pointer, where a filter cannot see them."""

    def call() -> Claim:
        wanted = struct.pack("<11Q", _NEWUSER, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
        return _parted(syscall("clone3", wanted, len(wanted)))

    return in_child(call)


def _parted(child: int) -> Claim:
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return escaped("has a child that is root in a new one")


def mount(_props: Props) -> Claim:
    """In a namespace of its own where it can have one, so that the host's mounts stay as they are."""
    Path("mnt").mkdir()

    def call() -> Claim:
        _apart()
        syscall("mount", b"none", b"mnt", b"tmpfs", 0, b"size=1m")
        syscall("umount2", b"mnt", 2)
        return escaped("mounted a file system")

    return in_child(call)


def remount(props: Props) -> Claim:
    """A folder that is read-only here, for writing."""
    place = props.toolchain.encode()

    def call() -> Claim:
        _apart()
        syscall("mount", place, place, None, 4096, None)
        syscall("mount", None, place, None, _REMOUNT_READ_ONLY_BIND & ~1, None)
        syscall("umount2", place, 2)
        return escaped("mounted over it")

    def directly() -> Claim:
        syscall("mount", None, place, None, _REMOUNT_READ_ONLY_BIND & ~1, None)
        return escaped("it can be written now")

    return each(lambda: in_child(call), lambda: in_child(directly))


def unmount(_props: Props) -> Claim:
    """What may lie beneath /proc."""
    return in_child(lambda: after(escaped("it is gone"), syscall, "umount2", b"/proc", 2))


def _apart() -> None:
    try:
        syscall("unshare", _NEWNS)
    except PermissionError:
        return
    syscall("mount", None, b"/", None, _PRIVATE, None)


def change_root(_props: Props) -> Claim:
    return each(
        lambda: in_child(lambda: after(escaped("changed it"), os.chroot, ".")),
        lambda: in_child(lambda: reaches("pivot_root", b".", b".")),
    )


def host_name(props: Props) -> Claim:
    """Set to what it is."""
    return after(escaped(f"could rename {props.hostname}"), socket.sethostname, os.uname().nodename)


def clock(_props: Props) -> Claim:
    """Set to what it says."""
    return each(
        lambda: after(escaped("set it"), time.clock_settime, time.CLOCK_REALTIME, time.time()),
        lambda: reaches("settimeofday", None, None),
        lambda: reaches("adjtimex", struct.pack("<I", 0x4000) + bytes(256)),
        lambda: reaches("clock_adjtime", 0, struct.pack("<I", 0x4000) + bytes(256)),
    )


def reboot(_props: Props) -> Claim:
    """With a magic number that no kernel takes."""
    return reaches("reboot", 0, 0, 0, None)


def swap(_props: Props) -> Claim:
    """On a file that does not exist."""
    return each(lambda: reaches("swapon", b"/nonexistent", 0), lambda: reaches("swapoff", b"/nonexistent"))


def _settings(*paths: str) -> Claim:
    """Opened for writing, never written."""

    def opens(path: str) -> Claim:
        os.close(os.open(path, os.O_WRONLY))
        return escaped(f"could write {path}")

    return each(*(partial(opens, path) for path in paths))


def kernel_settings(_props: Props) -> Claim:
    return _settings(
        *(
            f"/proc/sys/kernel/{name}"
            for name in ("hostname", "modprobe", "randomize_va_space", "ns_last_pid")
        ),
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/fs/protected_symlinks",
    )


def core_pattern(_props: Props) -> Claim:
    """A program of one's choice, run as root, outside."""
    return _settings("/proc/sys/kernel/core_pattern")


def magic_keys(_props: Props) -> Claim:
    return _settings("/proc/sysrq-trigger")


def device_settings(_props: Props) -> Claim:
    return _settings(
        "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/ksm/run", "/sys/kernel/profiling"
    )


def control_groups(_props: Props) -> Claim:
    """Their release agent is a program that root runs outside; leaving them leaves their limits."""
    root = Path("/sys/fs/cgroup")
    folders = [root, *(entry for entry in root.iterdir() if entry.is_dir())]
    names = ("release_agent", "cgroup.procs", "notify_on_release", "cgroup.subtree_control")
    paths = [str(folder / name) for folder in folders for name in names if (folder / name).exists()]
    return _settings(*paths) if paths else refused("there are none")


def raise_limits(_props: Props) -> Claim:
    def rise(kind: int) -> Claim:
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY:
            return escaped(f"limit {kind} is open")
        resource.setrlimit(kind, (hard + 1, hard + 1))
        return escaped(f"raised limit {kind} above {hard}")

    def by_python(kind: int) -> Claim:
        try:
            return rise(kind)
        except ValueError as error:  # what Python makes of EPERM here
            return refused(str(error))

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
    return each(*(partial(by_python, kind) for kind in kinds))


def core_dump(_props: Props) -> Claim:
    """A crash must neither leave memory on the host's disk nor start the program that looks at it."""
    child = os.fork()
    if not child:
        os.abort()
    status = os.waitpid(child, 0)[1]
    if os.WCOREDUMP(status):
        return escaped("the kernel dumped it")
    return refused("no dump") if os.WIFSIGNALED(status) else unable(f"no crash: {status}")
