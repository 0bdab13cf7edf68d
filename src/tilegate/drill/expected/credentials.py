"""After secrets."""

from tilegate.drill.expected.reasons import (
    ABSENT,
    AS_CALLER,
    CLEAN,
    FILTERED,
    LANDLOCK,
    OPEN,
    OTHER_USER,
    OWN_PIDS,
    SAME_USER,
    UNFILTERED,
)
from tilegate.drill.probe import Probe, blocked, escapes
from tilegate.records.drill import Theme

_T = Theme.CREDENTIALS
_PUBLIC = escapes("everybody on the machine may read it, and the loader's files stand beside it")

CREDENTIALS = (
    Probe("environment", _T, "looks for a secret in its environment", CLEAN, CLEAN, CLEAN),
    Probe(
        "environments-of-processes",
        _T,
        "looks for a secret in the environment of every process it can see",
        OWN_PIDS,
        LANDLOCK,
        SAME_USER,
    ),
    Probe("secret-file", _T, "reads a file that everybody may read", ABSENT, LANDLOCK, OPEN),
    Probe("ssh-key", _T, "reads a key in a home folder", ABSENT, LANDLOCK, OPEN),
    Probe("cloud-file", _T, "reads a cloud's credentials in a home folder", ABSENT, LANDLOCK, OPEN),
    Probe("private-file", _T, "reads a file that only the caller may read", ABSENT, LANDLOCK, OPEN),
    Probe(
        "private-file-in-reach",
        _T,
        "reads root's private file in a folder that the job may read",
        OTHER_USER,
        OTHER_USER,
        OPEN,
        needs=("root",),
    ),
    Probe("inherited-descriptor", _T, "looks for an open file of the caller's", CLEAN, CLEAN, CLEAN),
    Probe(
        "secret-by-handle",
        _T,
        "opens a file by its handle, past every folder",
        FILTERED,
        FILTERED,
        AS_CALLER,
        needs=("handle",),
    ),
    Probe(
        "key-ring", _T, "reads a key of the host's, by number", FILTERED, FILTERED, UNFILTERED, needs=("key",)
    ),
    Probe(
        "key-planted", _T, "leaves a key in the user's ring", FILTERED, FILTERED, UNFILTERED, needs=("key",)
    ),
    Probe(
        "key-requested",
        _T,
        "asks for a key of the host's, by name",
        FILTERED,
        FILTERED,
        UNFILTERED,
        needs=("key",),
    ),
    Probe("accounts", _T, "opens /etc/passwd", ABSENT, LANDLOCK, OPEN),
    Probe("passwords", _T, "opens /etc/shadow", ABSENT, LANDLOCK, AS_CALLER),
    Probe(
        "machine-name",
        _T,
        "compares the machine's name with the host's",
        blocked("the job has a name of its own"),
        escapes("names are a namespace's, and there is none"),
        escapes("names are a namespace's, and there is none"),
    ),
    Probe(
        "canary-root",
        _T,
        "reads a secret through another process's folders in /proc",
        OWN_PIDS,
        LANDLOCK,
        SAME_USER,
    ),
    Probe(
        "canary-descriptor-path",
        _T,
        "reads a secret through another process's descriptor",
        OWN_PIDS,
        LANDLOCK,
        SAME_USER,
    ),
    Probe("agent", _T, "connects to an agent that signs", FILTERED, FILTERED, OPEN),
)
