"""At files."""

from tilegate.drill.expected.reasons import (
    ABSENT,
    AS_CALLER,
    FILTERED,
    FILTERED_ARGUMENT,
    LANDLOCK,
    OPEN,
    OTHER_USER,
    READ_ONLY,
    UNFILTERED,
    UNPRIVILEGED,
)
from tilegate.drill.probe import Probe, blocked, escapes, not_made, split
from tilegate.records.drill import Theme

_T = Theme.FILES
_NO_LINKS = blocked("the filter of system calls leaves out making links")
_NOT_FOLLOWED = blocked(
    "what removes the job's folder follows no link, and the folder goes whatever is in it"
)
_OWN_MEMORY = blocked("the job's folder is memory of its own, and goes with it")
_SHM = blocked("the job has a /dev/shm of its own")
_MODES = split(
    root=OTHER_USER,
    user=escapes("Landlock does not look at modes and times, and the job's user is the caller"),
)

FILES = (
    Probe(
        "write-outside",
        _T,
        "makes a file in 11 folders that programs like to write to",
        ABSENT,
        LANDLOCK,
        OPEN,
    ),
    Probe(
        "write-open-folder", _T, "makes a file in a folder that everybody may write", ABSENT, LANDLOCK, OPEN
    ),
    Probe("overwrite-secret", _T, "adds to a file that everybody may write", ABSENT, LANDLOCK, OPEN),
    Probe("truncate-file", _T, "empties a file that everybody may write", ABSENT, LANDLOCK, OPEN),
    Probe("list-outside", _T, "lists a folder of the host's", ABSENT, LANDLOCK, OPEN),
    Probe("poison-package", _T, "changes a package on its search path", READ_ONLY, LANDLOCK, OPEN),
    Probe("poison-bytecode", _T, "changes the bytecode of a package", READ_ONLY, LANDLOCK, OPEN),
    Probe("plant-pth", _T, "plants a file that Python runs whenever it starts", READ_ONLY, LANDLOCK, OPEN),
    Probe("replace-package", _T, "renames or removes a package", READ_ONLY, LANDLOCK, OPEN),
    Probe("change-modes", _T, "lets everybody write files that the caller has", READ_ONLY, _MODES, OPEN),
    Probe("change-times", _T, "makes files that the caller has look old", READ_ONLY, _MODES, OPEN),
    Probe("poison-cache", _T, "changes a library in a compiler's cache", ABSENT, LANDLOCK, OPEN),
    Probe("poison-store", _T, "changes a blob in a store", ABSENT, LANDLOCK, OPEN),
    Probe(
        "poison-closure",
        _T,
        "puts a module where reviewed sources appear to be",
        READ_ONLY,
        LANDLOCK,
        not_made("it would make a folder at the root"),
    ),
    Probe(
        "open-installed",
        _T,
        "opens the interpreter and what is installed for writing",
        READ_ONLY,
        LANDLOCK,
        AS_CALLER,
    ),
    Probe("own-tilegate", _T, "opens tilegate's own files for writing", READ_ONLY, LANDLOCK, AS_CALLER),
    Probe("symlink-to-secret", _T, "reads a secret through a symbolic link", FILTERED, FILTERED, OPEN),
    Probe("hardlink-to-secret", _T, "gives a file of the host's a second name", _NO_LINKS, _NO_LINKS, OPEN),
    Probe(
        "removal-follows-link",
        _T,
        "leaves links for what removes its folder",
        _NO_LINKS,
        _NO_LINKS,
        _NOT_FOLLOWED,
        alone=True,
    ),
    Probe(
        "stubborn-scratch",
        _T,
        "leaves 300 folders in each other, and some that nobody may enter",
        _OWN_MEMORY,
        _NOT_FOLLOWED,
        _NOT_FOLLOWED,
        alone=True,
    ),
    Probe(
        "fifo",
        _T,
        "leaves a pipe that whoever opens it waits at",
        _OWN_MEMORY,
        _NOT_FOLLOWED,
        _NOT_FOLLOWED,
        alone=True,
    ),
    Probe(
        "set-uid-by-chmod",
        _T,
        "marks a program to run with its owner's rights",
        FILTERED_ARGUMENT,
        FILTERED_ARGUMENT,
        UNFILTERED,
    ),
    Probe(
        "set-uid-by-open", _T, "the same, as it makes it", FILTERED_ARGUMENT, FILTERED_ARGUMENT, UNFILTERED
    ),
    Probe(
        "set-uid-by-creat",
        _T,
        "the same, with an old call",
        FILTERED_ARGUMENT,
        FILTERED_ARGUMENT,
        UNFILTERED,
        needs=("call:creat",),
    ),
    Probe(
        "set-uid-by-openat2",
        _T,
        "the same, with a mode that a filter cannot see",
        FILTERED,
        FILTERED,
        UNFILTERED,
    ),
    Probe(
        "set-uid-by-tmpfile",
        _T,
        "the same, with a file without a name",
        FILTERED_ARGUMENT,
        FILTERED_ARGUMENT,
        UNFILTERED,
    ),
    Probe("set-uid-by-mknod", _T, "the same, as a node", FILTERED, FILTERED, UNFILTERED),
    Probe(
        "set-gid-folder",
        _T,
        "makes a folder that hands on its group",
        FILTERED_ARGUMENT,
        FILTERED_ARGUMENT,
        UNFILTERED,
    ),
    Probe("device-node", _T, "makes a device that is the machine's memory", FILTERED, FILTERED, AS_CALLER),
    Probe(
        "whiteout-device",
        _T,
        "leaves a device behind by renaming",
        FILTERED_ARGUMENT,
        FILTERED_ARGUMENT,
        UNFILTERED,
    ),
    Probe("file-capability", _T, "gives a program a capability", UNPRIVILEGED, UNPRIVILEGED, AS_CALLER),
    Probe(
        "shared-memory-file",
        _T,
        "leaves a file in shared memory",
        _SHM,
        LANDLOCK,
        OPEN,
    ),
    Probe(
        "shared-memory-read",
        _T,
        "reads another's file in shared memory",
        _SHM,
        LANDLOCK,
        OPEN,
        needs=("shm",),
    ),
)
