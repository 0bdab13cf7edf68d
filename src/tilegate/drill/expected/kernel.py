"""At the kernel."""

from tilegate.drill.expected.reasons import (
    ABSENT,
    AS_CALLER,
    AS_MACHINE,
    FILTERED,
    FILTERED_ARGUMENT,
    LANDLOCK,
    UNFILTERED,
    UNPRIVILEGED,
)
from tilegate.drill.probe import Expected, Probe, blocked, depends, escapes, not_made, split
from tilegate.records.drill import Theme

_T = Theme.KERNEL
_RISKY = not_made("granted, it would touch the running kernel")
_X86 = ("call:arch_prctl",)


def _surface(
    name: str,
    tries: str,
    none: Expected = AS_MACHINE,
    *,
    by: Expected = FILTERED,
    needs: tuple[str, ...] = (),
) -> Probe:
    """A call that is refused by the filter wherever there is one."""
    return Probe(name, _T, tries, by, by, none, needs=needs)


def _device(name: str, tries: str, need: str) -> Probe:
    return Probe(
        name,
        _T,
        tries,
        ABSENT,
        LANDLOCK,
        split(root=depends("as the device is"), user=depends("as its mode is")),
        needs=(need,),
    )


KERNEL = (
    _surface("io-uring", "asks for a ring that makes calls on one's behalf"),
    _surface("io-uring-others", "uses one that is not there"),
    _surface("perf", "asks to count what a processor does"),
    _surface("bpf", "asks for a map in the kernel"),
    _surface("userfaultfd", "asks to answer page faults"),
    _surface("key-control", "asks for a key ring's number"),
    _surface("file-notices", "asks to be told of others' files"),
    _surface("file-handle", "asks for a handle of a file", UNFILTERED),
    _surface("kernel-log", "asks how long the kernel's log is"),
    _surface("module-loading", "loads a module, of no bytes", _RISKY),
    _surface("another-kernel", "starts another kernel, of no pieces", _RISKY),
    _surface("ports", "asks for the machine's ports", needs=("call:iopl",)),
    _surface("segment-table", "reads a table of segments", needs=("call:modify_ldt",)),
    _surface("personality", "asks for memory without a random layout", UNFILTERED, by=FILTERED_ARGUMENT),
    _surface("accounting", "keeps accounts of processes in a file that is not there", AS_CALLER),
    _surface("quotas", "asks for a quota"),
    _surface("memory-secret", "asks for memory that nobody can look into"),
    _surface("pages-of-others", "asks where pages of memory lie"),
    _surface("filter-of-own", "puts a filter of its own in front", UNFILTERED),
    _surface("other-architecture", "makes a 32-bit call", needs=_X86),
    _surface("other-numbers", "makes a call by a second range of numbers", needs=_X86),
    _surface("unknown-number", "makes a call that tilegate does not know", blocked("no kernel has it yet")),
    _surface("new-mounts", "makes six newer calls that mount"),
    Probe(
        "type-for-user",
        _T,
        "types into a terminal of the host's",
        ABSENT,
        LANDLOCK,
        split(root=escapes("the job is root"), user=depends("as dev.tty.legacy_tiocsti is")),
        needs=("terminal",),
    ),
    Probe(
        "write-to-terminal",
        _T,
        "writes on it",
        ABSENT,
        LANDLOCK,
        escapes("its mode lets everybody"),
        needs=("terminal",),
    ),
    Probe(
        "console",
        _T,
        "opens the console, from which text could be pasted",
        ABSENT,
        LANDLOCK,
        AS_MACHINE,
        needs=("tty0",),
    ),
    _device("memory-devices", "opens the machine's memory or ports", "memory devices"),
    _device("log-device", "opens the kernel's log", "kmsg"),
    _device("disks", "opens a disk", "disks"),
    _device("virtual-machines", "opens /dev/kvm", "kvm"),
    _device("file-system-device", "opens /dev/fuse", "fuse"),
    _device("fault-device", "opens /dev/userfaultfd", "userfaultfd"),
    Probe(
        "real-time", _T, "goes before everything else on a processor", UNPRIVILEGED, UNPRIVILEGED, AS_MACHINE
    ),
    Probe("deadline", _T, "asks for a deadline", UNPRIVILEGED, UNPRIVILEGED, AS_MACHINE),
    Probe("nicer", _T, "goes before others", UNPRIVILEGED, UNPRIVILEGED, AS_CALLER),
    _surface("disk-priority", "goes before others at the disk"),
    Probe(
        "spared", _T, "lets others be killed first when memory runs out", UNPRIVILEGED, LANDLOCK, AS_MACHINE
    ),
    _surface("kill-by-alarm", "asks for a timer that signals another thread"),
)
