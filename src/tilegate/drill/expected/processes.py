"""At other processes."""

from tilegate.drill.expected.reasons import (
    FILTERED,
    FILTERED_ARGUMENT,
    LANDLOCK,
    OPEN,
    OTHER_USER,
    OWN_PIDS,
    SAME_USER,
)
from tilegate.drill.probe import Probe, blocked, escapes, not_made, since, split
from tilegate.records.drill import Theme
from tilegate.sandbox import Ending

_T = Theme.PROCESSES
_SCOPED = since(
    6,
    blocked("Landlock keeps the job's signals inside the job"),
    split(root=OTHER_USER, user=escapes("before ABI 6, Landlock does not keep signals inside")),
)
_DOMAIN = blocked("what Landlock holds may not look into what it does not hold as tightly")
_ENDED = frozenset({Ending.SIGNALLED, Ending.EXITED, Ending.PROTOCOL, Ending.WALL, Ending.SILENT})
_SOON = {"wall_s": 4.0, "silence_s": 2.0}
_ITSELF = blocked("whatever becomes of the job, it is ended with all that it started")


PROCESSES = (
    Probe("see", _T, "looks for a process of the host's in /proc", OWN_PIDS, LANDLOCK, SAME_USER),
    Probe("command-lines", _T, "reads another process's command line", OWN_PIDS, LANDLOCK, SAME_USER),
    Probe("stop-canary", _T, "stops a process of the host's", OWN_PIDS, _SCOPED, SAME_USER),
    Probe("kill-canary", _T, "kills it", OWN_PIDS, _SCOPED, SAME_USER),
    Probe("kill-canary-by-handle", _T, "kills it by a descriptor of it", OWN_PIDS, _SCOPED, SAME_USER),
    Probe("kill-canary-by-thread", _T, "kills its thread, and its group", OWN_PIDS, _SCOPED, SAME_USER),
    Probe(
        "signal-drill",
        _T,
        "signals the process that runs the drill",
        OWN_PIDS,
        _SCOPED,
        SAME_USER,
        needs=("signals",),
    ),
    Probe(
        "signal-everyone",
        _T,
        "signals every process, with a signal that nobody minds",
        OWN_PIDS,
        _SCOPED,
        not_made("it would reach every process of the caller's"),
        alone=True,
    ),
    Probe(
        "descriptor-signal",
        _T,
        "lets a pipe signal another process",
        FILTERED_ARGUMENT,
        FILTERED_ARGUMENT,
        SAME_USER,
    ),
    Probe("memory-of-canary", _T, "reads another process's memory in /proc", OWN_PIDS, LANDLOCK, SAME_USER),
    Probe("memory-of-canary-by-call", _T, "reads and writes it by two calls", OWN_PIDS, FILTERED, SAME_USER),
    Probe("ptrace-canary", _T, "traces another process", OWN_PIDS, FILTERED, SAME_USER),
    Probe("steal-descriptor", _T, "takes another process's open file", OWN_PIDS, FILTERED, SAME_USER),
    Probe("compare-with-canary", _T, "compares itself with another process", OWN_PIDS, FILTERED, SAME_USER),
    Probe(
        "namespaces-of-canary",
        _T,
        "enters another process's namespaces",
        OWN_PIDS,
        LANDLOCK,
        split(root=SAME_USER, user=blocked("it has no capability")),
    ),
    Probe("limits-of-canary", _T, "reads another process's limits", OWN_PIDS, FILTERED_ARGUMENT, SAME_USER),
    Probe("pace-of-canary", _T, "makes another process slower, or moves it", OWN_PIDS, FILTERED, SAME_USER),
    Probe(
        "survivor",
        _T,
        "leaves a program behind that left its session",
        OWN_PIDS,
        _ITSELF,
        _ITSELF,
        alone=True,
    ),
    Probe(
        "stubborn-survivor",
        _T,
        "leaves one that is deaf and forks on",
        OWN_PIDS,
        _ITSELF,
        _ITSELF,
        alone=True,
    ),
    Probe(
        "kill-trusted",
        _T,
        "leaves a program behind, and kills what would end it",
        _ITSELF,
        since(6, _ITSELF, split(root=_ITSELF, user=escapes("before ABI 6, it can kill what ends it"))),
        escapes("it can kill what ends it"),
        ends=_ENDED,
        limits=_SOON,
    ),
    Probe(
        "stop-trusted", _T, "stops what would end it", _ITSELF, _ITSELF, _ITSELF, ends=_ENDED, limits=_SOON
    ),
    Probe(
        "ptrace-trusted", _T, "traces the job's trusted process", FILTERED, FILTERED, SAME_USER, alone=True
    ),
    Probe("memory-of-trusted", _T, "opens its memory", _DOMAIN, _DOMAIN, SAME_USER, alone=True),
    Probe("descriptors-of-trusted", _T, "opens its pipes anew", _DOMAIN, _DOMAIN, SAME_USER, alone=True),
    Probe("handles-of-trusted", _T, "takes its open files", FILTERED, FILTERED, SAME_USER, alone=True),
    Probe(
        "shared-segment",
        _T,
        "writes into shared memory of the host's",
        FILTERED,
        FILTERED,
        OPEN,
        needs=("segment",),
    ),
    Probe("message-queue", _T, "opens a queue of the host's", FILTERED, FILTERED, OPEN, needs=("queue",)),
)
