"""At the kernel: calls that no build needs, and large pieces of code behind them.

Each is asked for with arguments that do nothing where it is granted. An answer from the kernel's own code, even
that the arguments make no sense, counts as an escape: it was reached.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import time
from functools import partial
from pathlib import Path

from tilegate.drill.probes.attempt import (
    after,
    each,
    escaped,
    in_child,
    libc,
    reaches,
    refused,
    spelled,
    syscall,
    tried,
)  # fmt: skip
from tilegate.drill.props import Props
from tilegate.records.drill import Claim

_TIOCSTI, _TIOCLINUX, _TIOCSCTTY = 0x5412, 0x541C, 0x540E
_X32 = 0x40000000
_GETPID_32 = bytes.fromhex("b814000000 cd80 c3")
"""mov eax, 20; int 0x80; ret: the process's number by the rules of another machine."""


def _zeros(size: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(size)


def io_uring(_props: Props) -> Claim:
    """Does other calls on one's behalf, past every filter."""
    return reaches("io_uring_setup", 4, _zeros(120))


def io_uring_others(_props: Props) -> Claim:
    return each(
        lambda: reaches("io_uring_enter", -1, 0, 0, 0, 0, 0),
        lambda: reaches("io_uring_register", -1, 0, 0, 0),
    )


def perf(_props: Props) -> Claim:
    attributes = bytearray(struct.pack("<IIQ", 1, 128, 1) + bytes(112))
    attributes[40] = 0x60  # neither kernel nor hypervisor
    return reaches("perf_event_open", bytes(attributes), 0, -1, -1, 0)


def bpf(_props: Props) -> Claim:
    attributes = struct.pack("<IIII", 2, 4, 4, 1) + bytes(112)
    return reaches("bpf", 0, attributes, len(attributes))


def userfaultfd(_props: Props) -> Claim:
    return reaches("userfaultfd", 1)


def key_control(_props: Props) -> Claim:
    return reaches("keyctl", 0, -4, 0, 0, 0)


def file_notices(_props: Props) -> Claim:
    """Fanotify sees, and holds up, what others open."""
    return reaches("fanotify_init", 0, os.O_RDONLY)


def file_handle(_props: Props) -> Claim:
    return reaches("name_to_handle_at", -100, b".", struct.pack("<Ii", 128, 0) + bytes(128), _zeros(8), 0)


def kernel_log(_props: Props) -> Claim:
    """Its size only."""
    return reaches("syslog", 10, None, 0)


def module_loading(_props: Props) -> Claim:
    """Of no module."""
    return each(lambda: reaches("init_module", None, 0, b""), lambda: reaches("finit_module", -1, b"", 0))


def another_kernel(_props: Props) -> Claim:
    """To be started; none is given."""
    return each(
        lambda: reaches("kexec_load", 0, 1 << 20, None, 0),
        lambda: reaches("kexec_file_load", -1, -1, 0, None, 0),
    )


def ports(_props: Props) -> Claim:
    return each(lambda: reaches("iopl", 3), lambda: reaches("ioperm", 0x80, 1, 1))


def segment_table(_props: Props) -> Claim:
    return reaches("modify_ldt", 0, _zeros(16), 16)


def personality(_props: Props) -> Claim:
    """Without the random layout of memory, what makes attacks on this process easier."""
    return in_child(lambda: reaches("personality", 0x0040000))


def accounting(_props: Props) -> Claim:
    return reaches("acct", b"/nonexistent")


def quotas(_props: Props) -> Claim:
    return reaches("quotactl", 0x800001 << 8, None, 0, None)


def memory_secret(_props: Props) -> Claim:
    """Memory that nobody can look into, the watch over the job's memory included."""
    return reaches("memfd_secret", 0)


def pages_of_others(_props: Props) -> Claim:
    return each(
        lambda: reaches("move_pages", os.getpid(), 0, None, None, None, 0),
        lambda: reaches("migrate_pages", os.getpid(), 0, None, None),
        lambda: reaches("process_madvise", -1, None, 0, 0, 0),
    )


def filter_of_own(_props: Props) -> Claim:
    """One whose answers another process gives: it could stand in for the kernel."""
    program = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)
    holder = ctypes.create_string_buffer(program)
    header = struct.pack("<HxxxxxxQ", 1, ctypes.addressof(holder))
    return in_child(lambda: reaches("seccomp", 1, 8, header))


def other_architecture(_props: Props) -> Claim:
    """32-bit calls have other numbers: a filter that forgets them lets them all through."""

    def call() -> Claim:
        with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
            page.write(_GETPID_32)
            view = (ctypes.c_char * 4096).from_buffer(page)
            pid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(view))()
            del view
        return escaped(f"32-bit getpid said {pid}") if pid > 0 else refused(spelled(-pid))

    return in_child(call)


def other_numbers(_props: Props) -> Claim:
    """x86-64 takes a second range of numbers."""

    def call() -> Claim:
        answer = int(libc.syscall(ctypes.c_long(_X32 | 39)))
        return escaped(f"x32 getpid said {answer}") if answer > 0 else refused(spelled(ctypes.get_errno()))

    return in_child(call)


def unknown_number(_props: Props) -> Claim:
    """A call that this tilegate does not know: a newer kernel may have it."""
    answer = int(libc.syscall(ctypes.c_long(0x3FF)))
    return escaped(f"it returned {answer}") if answer >= 0 else refused(spelled(ctypes.get_errno()))


def new_mounts(_props: Props) -> Claim:
    return each(
        lambda: reaches("fsopen", b"tmpfs", 0),
        lambda: reaches("open_tree", -100, b".", 1),
        lambda: reaches("fspick", -100, b".", 0),
        lambda: reaches("move_mount", -1, b"", -1, b"", 0),
        lambda: reaches("mount_setattr", -1, b"", 0, _zeros(32), 32),
        lambda: reaches("listmount", _zeros(24), _zeros(64), 8, 0),
    )


def type_for_user(props: Props) -> Claim:
    """Into a terminal of the host's, as if its user had typed it."""
    terminal = os.open(props.terminal, os.O_RDWR | os.O_NOCTTY)

    def push() -> Claim:
        os.setsid()
        libc.ioctl(terminal, ctypes.c_ulong(_TIOCSCTTY), ctypes.c_long(1))
        if libc.ioctl(terminal, ctypes.c_ulong(_TIOCSTI), b"#"):
            raise OSError(ctypes.get_errno(), "TIOCSTI")
        return tried("typed")

    return in_child(push)


def write_to_terminal(props: Props) -> Claim:
    terminal = os.open(props.terminal, os.O_RDWR | os.O_NOCTTY)
    os.write(terminal, b"drill")
    return tried("written")


def console(_props: Props) -> Claim:
    """What is selected on it could be pasted; here only the shift keys are asked for."""
    import fcntl

    opened = os.open("/dev/tty0", os.O_RDWR | os.O_NOCTTY)
    return escaped(f"answered {fcntl.ioctl(opened, _TIOCLINUX, bytes([6]))!r}")


def _opens_device(props: Props, *starts: str) -> Claim:
    def opens(path: str) -> Claim:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
        return escaped(f"opened {path}")

    aimed = [path for path in props.devices if Path(path).name.startswith(starts)]
    return each(*(partial(opens, path) for path in aimed))


def memory_devices(props: Props) -> Claim:
    return _opens_device(props, "mem", "port", "kmem")


def log_device(props: Props) -> Claim:
    return _opens_device(props, "kmsg")


def disks(props: Props) -> Claim:
    return _opens_device(props, "sd", "vd", "nvme", "xvd", "loop", "zram")


def virtual_machines(props: Props) -> Claim:
    return _opens_device(props, "kvm", "vhost", "vsock")


def file_system_device(props: Props) -> Claim:
    return _opens_device(props, "fuse")


def fault_device(props: Props) -> Claim:
    return _opens_device(props, "userfaultfd")


def real_time(_props: Props) -> Claim:
    """Before everything else on a processor, for an instant."""

    def rise() -> Claim:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        return escaped("was before all others")

    return in_child(rise)


def deadline(_props: Props) -> Claim:
    attributes = struct.pack("<IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**8, 10**8)
    return in_child(lambda: after(escaped("has a deadline"), syscall, "sched_setattr", 0, attributes, 0))


def nicer(_props: Props) -> Claim:
    return in_child(lambda: after(escaped("went before others"), os.setpriority, os.PRIO_PROCESS, 0, -5))


def disk_priority(_props: Props) -> Claim:
    return in_child(lambda: reaches("ioprio_set", 1, 0, 1 << 13))


def spared(_props: Props) -> Claim:
    """When memory runs out, others are to be killed first."""
    return in_child(
        lambda: after(escaped("will be spared"), Path("/proc/self/oom_score_adj").write_bytes, b"-500")
    )


def kill_by_alarm(_props: Props) -> Claim:
    """A timer that signals another thread of one's own choice."""
    event = struct.pack("<qiii", 0, signal.SIGURG, 4, 1) + bytes(44)
    return in_child(lambda: reaches("timer_create", time.CLOCK_MONOTONIC, event, _zeros(8)))
