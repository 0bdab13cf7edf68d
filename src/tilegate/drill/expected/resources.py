"""Bombs. Their limits are small, so that one that works costs little; each says its bound."""

from tilegate.drill.expected.reasons import EVERYWHERE, FILTERED
from tilegate.drill.probe import Probe, blocked, escapes, in_group, split
from tilegate.records.drill import Theme
from tilegate.sandbox import Ending

_T = Theme.RESOURCES
_MIB = 1 << 20
_PROCESSES = {"processes": 48}
_MEMORY = {"memory_bytes": 512 * _MIB, "job_bytes": 512 * _MIB}
_DISK = {"scratch_bytes": 32 * _MIB}
_CLOCK = {"wall_s": 2.0, "silence_s": 1.5}
_COUNTED = blocked("the kernel counts processes of the job's own user; the parent counts at every level")
_WATCHED = blocked("the parent adds up what all processes of a job hold")
_GROUPED = blocked("a control group counts all that a job takes")
_UNSEEN = escapes("what nobody maps is counted for nobody; open files and their size bound it")
_SIZED = blocked("temporary files are memory of the job's own, of a fixed size")
_NAMES = blocked("the parent counts the files of the job's own file system")
_UNSIZED = escapes("there is no limit for all of its files together: they are in a folder of the host's")
_TIMED = blocked("the parent has two clocks")
_OUT_OF_TIME = frozenset({Ending.WALL, Ending.SILENT})

RESOURCES = (
    Probe(
        "fork-bomb",
        _T,
        "200 children for 3 s",
        _COUNTED,
        _COUNTED,
        _COUNTED,
        ends=frozenset({Ending.PROCESSES, Ending.MEMORY}),
        limits=_PROCESSES,
    ),
    Probe(
        "thread-bomb",
        _T,
        "200 threads for 3 s",
        _COUNTED,
        in_group(
            _GROUPED,
            split(
                root=_COUNTED,
                user=escapes("the caller's user runs other programs too, so the kernel may not count"),
            ),
        ),
        escapes("the parent counts processes, not threads"),
        ends=frozenset({Ending.PROCESSES}),
        limits=_PROCESSES,
    ),
    Probe(
        "memory-of-one",
        _T,
        "1 GiB in one process",
        EVERYWHERE,
        EVERYWHERE,
        EVERYWHERE,
        ends=frozenset({Ending.MEMORY}),
        limits=_MEMORY,
    ),
    Probe(
        "memory-of-many",
        _T,
        "1 GiB in 4 processes for 1.5 s",
        _WATCHED,
        _WATCHED,
        _WATCHED,
        ends=frozenset({Ending.MEMORY}),
        limits=_MEMORY,
    ),
    Probe(
        "memory-at-once",
        _T,
        "1.1 GiB in 3 processes, filled in one go, for 1.5 s",
        _WATCHED,
        _WATCHED,
        _WATCHED,
        ends=frozenset({Ending.MEMORY}),
        limits=_MEMORY,
    ),
    Probe(
        "memory-in-files",
        _T,
        "1 GiB in files without a name, for 1.5 s",
        FILTERED,
        FILTERED,
        _UNSEEN,
        ends=frozenset({Ending.MEMORY}),
        limits=_MEMORY,
    ),
    Probe(
        "memory-in-pipes",
        _T,
        "256 MiB in pipes that nobody reads, for 1.5 s",
        EVERYWHERE,
        EVERYWHERE,
        split(root=escapes("root may fill pipes"), user=EVERYWHERE),
        ends=frozenset({Ending.MEMORY}),
        limits=_MEMORY,
    ),
    Probe("disk-in-one-file", _T, "64 MiB in one file", EVERYWHERE, EVERYWHERE, EVERYWHERE),
    Probe("disk-in-many-files", _T, "96 MiB in 12 files", _SIZED, _UNSIZED, _UNSIZED, limits=_DISK),
    Probe(
        "disk-elsewhere",
        _T,
        "96 MiB in each other folder that can be written",
        _SIZED,
        blocked("Landlock: no other folder can be written"),
        escapes("folders of the host's"),
        limits=_DISK,
    ),
    Probe(
        "many-names",
        _T,
        "60,000 empty files, for 1.5 s",
        _NAMES,
        _UNSIZED,
        _UNSIZED,
        ends=frozenset({Ending.FILES}),
        limits=_DISK,
    ),
    Probe("descriptors", _T, "400 open files", EVERYWHERE, EVERYWHERE, EVERYWHERE),
    Probe(
        "spin", _T, "3 processes that count for 6 s", _TIMED, _TIMED, _TIMED, ends=_OUT_OF_TIME, limits=_CLOCK
    ),
    Probe("sleep", _T, "6 s of silence", _TIMED, _TIMED, _TIMED, ends=_OUT_OF_TIME, limits=_CLOCK),
    Probe(
        "sleep-deaf",
        _T,
        "6 s of silence, deaf to signals",
        _TIMED,
        _TIMED,
        _TIMED,
        ends=_OUT_OF_TIME,
        limits=_CLOCK,
    ),
    Probe(
        "stop-itself",
        _T,
        "stops itself until somebody wakes it",
        _TIMED,
        _TIMED,
        _TIMED,
        ends=_OUT_OF_TIME,
        limits=_CLOCK,
    ),
    Probe(
        "locked-memory",
        _T,
        "64 MiB that cannot be swapped out",
        EVERYWHERE,
        EVERYWHERE,
        split(root=escapes("root may lock any"), user=EVERYWHERE),
    ),
)
