"""Towards another user, or another state of the machine."""

from tilegate.drill.expected.reasons import (
    ABSENT,
    AS_CALLER,
    AS_MACHINE,
    EVERYWHERE,
    FILTERED,
    FILTERED_ARGUMENT,
    HARMFUL,
    LANDLOCK,
    UNPRIVILEGED,
)
from tilegate.drill.probe import Probe, blocked, depends, split
from tilegate.records.drill import Theme

_T = Theme.PRIVILEGES
_READ_ONLY = blocked(
    "/proc and /sys cannot be written: by their modes, by Landlock, or because they are not there"
)
_FOR_GOOD = blocked("new privileges are given up for good, at every level")

PRIVILEGES = (
    Probe("become-root", _T, "becomes root", UNPRIVILEGED, UNPRIVILEGED, AS_CALLER),
    Probe("become-group", _T, "joins root's group", UNPRIVILEGED, UNPRIVILEGED, AS_CALLER),
    Probe(
        "set-uid-program",
        _T,
        "runs a program that would run as root",
        ABSENT,
        LANDLOCK,
        AS_CALLER,
        needs=("root", "program"),
    ),
    Probe("capabilities", _T, "looks for capabilities, and takes one", UNPRIVILEGED, UNPRIVILEGED, AS_CALLER),
    Probe(
        "new-privileges", _T, "asks whether programs could still give any", _FOR_GOOD, _FOR_GOOD, _FOR_GOOD
    ),
    Probe("user-namespace", _T, "makes a namespace in which it is root", FILTERED, FILTERED, AS_MACHINE),
    Probe("other-namespaces", _T, "makes seven other kinds", FILTERED, FILTERED, AS_CALLER),
    Probe(
        "clone-user-namespace",
        _T,
        "makes one with a child in it",
        FILTERED_ARGUMENT,
        FILTERED_ARGUMENT,
        AS_MACHINE,
    ),
    Probe(
        "clone3-user-namespace",
        _T,
        "the same, with flags that a filter cannot see",
        FILTERED,
        FILTERED,
        AS_MACHINE,
    ),
    Probe("mount", _T, "mounts a file system", FILTERED, FILTERED, AS_MACHINE),
    Probe("remount", _T, "mounts what is read-only for writing", FILTERED, FILTERED, HARMFUL),
    Probe("unmount", _T, "takes away what lies over something", FILTERED, FILTERED, HARMFUL),
    Probe("change-root", _T, "takes another root folder", FILTERED, FILTERED, AS_CALLER),
    Probe("host-name", _T, "renames the machine, to what it is called", FILTERED, FILTERED, AS_CALLER),
    Probe("clock", _T, "sets the clock, to what it says", FILTERED, FILTERED, HARMFUL),
    Probe("reboot", _T, "reboots, with a word that no kernel takes", FILTERED, FILTERED, HARMFUL),
    Probe("swap", _T, "swaps to a file that is not there", FILTERED, FILTERED, HARMFUL),
    Probe("kernel-settings", _T, "opens settings of the kernel for writing", _READ_ONLY, _READ_ONLY, HARMFUL),
    Probe("core-pattern", _T, "opens what names a program for crashes", _READ_ONLY, _READ_ONLY, HARMFUL),
    Probe("magic-keys", _T, "opens what takes emergency keys", _READ_ONLY, _READ_ONLY, HARMFUL),
    Probe("device-settings", _T, "opens settings in /sys for writing", _READ_ONLY, _READ_ONLY, HARMFUL),
    Probe("control-groups", _T, "opens a control group's files for writing", _READ_ONLY, _READ_ONLY, HARMFUL),
    Probe(
        "raise-limits",
        _T,
        "raises its own limits",
        UNPRIVILEGED,
        UNPRIVILEGED,
        split(root=depends("where root has all its capabilities"), user=blocked("the caller may not either")),
    ),
    Probe("core-dump", _T, "crashes, for a dump on the disk", EVERYWHERE, EVERYWHERE, EVERYWHERE),
)
