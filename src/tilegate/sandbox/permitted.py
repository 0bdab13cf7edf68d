"""Which system calls a job may make, as data. What is not written here is refused: read sandbox/seccomp.py.

The lists are what Python 3.11 to 3.14, glibc from 2.36 on, torch, TileLang, gcc, g++ and nvcc call, and what
has no more power than those. Names that a machine lacks say nothing there.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

INT = 0xFFFF_FFFF
"""Of an `int` or `unsigned int` the kernel reads only this half; the other one may hold anything."""


@dataclass(frozen=True, slots=True)
class Check:
    """`arguments[index] & mask` is one of `values`."""

    index: int
    values: frozenset[int]
    mask: int = INT


@dataclass(frozen=True, slots=True)
class Rule:
    """A call that runs where all checks of one row hold, and is refused with `otherwise` elsewhere."""

    why: str
    any_of: tuple[tuple[Check, ...], ...]
    otherwise: int = errno.EPERM


def _only(index: int, *values: int) -> Check:
    return Check(index, frozenset(values))


def _without(index: int, bits: int) -> Check:
    return Check(index, frozenset({0}), bits)


def _names(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


def _null(index: int) -> Check:
    """A pointer to nothing."""
    return Check(index, frozenset({0}), 0xFFFF_FFFF_FFFF_FFFF)


_LIMITS = frozenset(range(16)) - {4}
"""All resources but RLIMIT_CORE."""

FILES = _names(
    "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range",
    "stat lstat fstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink readlinkat",
    "getdents getdents64 getcwd chdir fchdir rmdir unlink unlinkat rename renameat utimensat umask",
    "truncate ftruncate fallocate fsync fdatasync fadvise64 flock sendfile copy_file_range",
    "dup dup2 dup3 pipe pipe2 eventfd2",
)
MEMORY = _names("mmap munmap mprotect mremap madvise msync mincore brk mseal membarrier")
PROCESSES = _names(
    "fork vfork execve exit exit_group wait4 waitid set_tid_address set_robust_list rseq futex restart_syscall",
    "getpid getppid gettid getpgid getpgrp getsid setpgid setsid pidfd_open",
    "getuid geteuid getgid getegid getresuid getresgid getgroups",
    "sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max",
    "sched_get_priority_min getpriority getrlimit getrusage times getcpu uname sysinfo getrandom",
)
"""With seccomp's own call refused, nothing can be put in front of this filter."""
SIGNALS = _names(
    "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause",
    "kill tkill tgkill pidfd_send_signal",
)
"""Who can be signalled is bounded by the namespace of pids and by Landlock. Signals with a payload
(rt_sigqueueinfo) are left out: nothing here needs them."""
WAITING = _names(
    "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2",
    "nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time alarm getitimer setitimer",
)
MESSAGES = _names("sendto sendmsg recvfrom recvmsg shutdown getsockname getpeername getsockopt")
"""On a connected socket that was inherited. It must be a stream or of whole packets (SOCK_SEQPACKET): with one
of datagrams a sender may name any other as its receiver. Sockets cannot be made, bound or connected here."""
LANDLOCK = _names("landlock_create_ruleset landlock_add_rule landlock_restrict_self")
"""Each domain only takes away. A forked child enters one of its own behind this filter."""

ALLOWED = FILES | MEMORY | PROCESSES | SIGNALS | WAITING | MESSAGES | LANDLOCK

_SET_ID = 0o6000
_CREATE = 0o100 | 0o20000000
"""O_CREAT, and the bit of O_TMPFILE that O_DIRECTORY does not have: without either the mode means nothing."""
_NEW_NAMESPACE = 0x7E02_0080
"""CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET and _NEWTIME."""
_SETS_ID = "a file must not run with the rights of whoever made it, once it is outside"
_CREATES = f"{_SETS_ID}; a mode counts only where a file is made"

FILTERED: Mapping[str, Rule] = {
    "clone": Rule(
        "threads and processes, but no namespaces; the kernel drops the upper half of the flags",
        ((Check(0, frozenset({0}), 0xFFFF_FFFF_0000_0000 | _NEW_NAMESPACE),),),
    ),
    "open": Rule(_CREATES, ((_without(1, _CREATE),), (_without(2, _SET_ID),))),
    "openat": Rule(_CREATES, ((_without(2, _CREATE),), (_without(3, _SET_ID),))),
    "creat": Rule(_SETS_ID, ((_without(1, _SET_ID),),)),
    "chmod": Rule(_SETS_ID, ((_without(1, _SET_ID),),)),
    "fchmod": Rule(_SETS_ID, ((_without(1, _SET_ID),),)),
    "fchmodat": Rule(_SETS_ID, ((_without(2, _SET_ID),),)),
    "fchmodat2": Rule(_SETS_ID, ((_without(2, _SET_ID),),)),
    "mkdir": Rule(_SETS_ID, ((_without(1, _SET_ID),),)),
    "mkdirat": Rule(_SETS_ID, ((_without(2, _SET_ID),),)),
    "renameat2": Rule("RENAME_WHITEOUT would make a device", ((_only(4, 0, 1, 2),),)),
    "prlimit64": Rule(
        "limits of the caller, of no other process; to set that of core dumps would call the host's handler",
        ((_only(0, 0), _only(1, *_LIMITS)), (_only(0, 0), _null(2))),
    ),
    "setrlimit": Rule("likewise", ((_only(0, *_LIMITS),),)),
    "sched_setaffinity": Rule("the caller's processors, as OpenMP and cpuinfo set them", ((_only(0, 0),),)),
    "personality": Rule("to be asked, not changed", ((_only(0, 0xFFFF_FFFF),),)),
    "ioctl": Rule(
        "what terminals, pipes and descriptors are asked; above all no TIOCSTI, which types for the user",
        (
            (
                _only(
                    1,
                    0x5401,  # TCGETS: isatty
                    0x802C_542A,  # TCGETS2: isatty from glibc 2.42 on
                    0x540F,  # TIOCGPGRP
                    0x5413,  # TIOCGWINSZ
                    0x541B,  # FIONREAD
                    0x5421,  # FIONBIO
                    0x5450,  # FIONCLEX
                    0x5451,  # FIOCLEX
                    0x4004_9409,  # FICLONE: two open files; Python 3.14 copies by it and takes only the real answer
                ),
            ),
        ),
        otherwise=errno.ENOTTY,  # as from a descriptor that does not know the request: callers do without
    ),
    "fcntl": Rule(
        "descriptors, locks, pipes and seals; no F_SETOWN, F_SETSIG, F_NOTIFY (signals that the kernel sends) and "
        "no F_SETLEASE (which holds up others' opens)",
        (
            (
                _only(
                    1,
                    *range(8),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW
                    *range(36, 39),  # F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW
                    1030,  # F_DUPFD_CLOEXEC
                    *range(1031, 1035),  # F_SETPIPE_SZ, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS
                ),
            ),
        ),
    ),
    "prctl": Rule(
        "names, and what only takes away: who must end with its parent, or has hidden its memory, stays so",
        (
            (
                _only(
                    0,
                    2,  # PR_GET_PDEATHSIG
                    3,  # PR_GET_DUMPABLE
                    15,  # PR_SET_NAME
                    16,  # PR_GET_NAME
                    21,  # PR_GET_SECCOMP
                    38,  # PR_SET_NO_NEW_PRIVS
                    39,  # PR_GET_NO_NEW_PRIVS
                    51,  # PR_SVE_GET_VL: aarch64, by libraries that choose their code by it
                    0x5356_4D41,  # PR_SET_VMA: glibc names its memory
                ),
            ),
            (_only(0, 1), _only(1, 9)),  # PR_SET_PDEATHSIG, SIGKILL
            (_only(0, 4), Check(1, frozenset({0}), (1 << 64) - 1)),  # PR_SET_DUMPABLE, off
        ),
    ),
    "arch_prctl": Rule(
        "x86-64: thread-local storage, and the tiles of AMX, which must be asked for",
        (
            (
                _only(
                    0,
                    0x1002,  # ARCH_SET_FS
                    0x1003,  # ARCH_GET_FS
                    *range(0x1021, 0x1024),  # ARCH_GET_XCOMP_SUPP, _GET_XCOMP_PERM, _REQ_XCOMP_PERM
                ),
            ),
        ),
    ),
}

MEMORY_FILES: Mapping[str, Rule] = {"memfd_create": Rule("to open a library from memory", ((),))}
"""Files without a name hold memory that no process seems to have: for jobs alone that need them."""

DRIVER: Mapping[str, Rule] = {
    "ioctl": Rule(
        "besides, what NVIDIA's driver is asked through its own device nodes: Landlock leaves no others to ask",
        (
            *FILTERED["ioctl"].any_of,
            (Check(1, frozenset({0x4600}), 0xFF00),),  # nvidiactl and nvidia0: requests of kind F
            (Check(1, frozenset({0, 0x3000_0000}), 0xFFFF_FF00),),  # nvidia-uvm: plain numbers
        ),
        otherwise=errno.ENOTTY,
    ),
    "socket": Rule(
        "libcuda listens on an abstract socket of its own, and gives up where it cannot; nothing can be connected to",
        ((_only(0, 1), Check(1, frozenset({5}), 0xF)),),  # AF_UNIX, SOCK_SEQPACKET
    ),
    **{name: Rule("goes with that socket", ((),)) for name in ("bind", "listen", "accept", "accept4")},
    "get_mempolicy": Rule("where memory is, asked by libcuda", ((),)),
}
"""In place of the rules above, for work on a GPU."""

REFUSED: Mapping[str, int] = {
    # Their arguments stand behind a pointer, and callers go on with the older call: clone, openat.
    "clone3": errno.ENOSYS,
    "openat2": errno.ENOSYS,
    # New or optional, and callers have another way that they take on this answer alone.
    "execveat": errno.ENOSYS,  # fexecve goes through /proc/self/fd
    "futex_waitv": errno.ENOSYS,
    "futex_wake": errno.ENOSYS,
    "futex_wait": errno.ENOSYS,
    "futex_requeue": errno.ENOSYS,
    "map_shadow_stack": errno.ENOSYS,
    "cachestat": errno.ENOSYS,
    "statmount": errno.ENOSYS,
    "listmount": errno.ENOSYS,
    "file_getattr": errno.ENOSYS,
    "file_setattr": errno.ENOSYS,
    "splice": errno.ENOSYS,
    # Landlock does not govern them. Copying tools take this answer for a file system without attributes.
    **dict.fromkeys(
        _names(
            "getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat",
            "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat",
        ),
        errno.EOPNOTSUPP,
    ),
}
