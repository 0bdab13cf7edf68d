"""What a job may do, and what it was kept from: policy as data, and facts for provenance."""

from __future__ import annotations

import enum

import msgspec

from tilegate.records.canonical import Record


class Level(enum.Enum):
    """How far a job is kept apart. Asked for by name; what is missing stops the job and is told."""

    FULL = "full"
    """Namespaces of every kind, a file system of its own, filtered system calls, Landlock, limits."""
    REDUCED = "reduced"
    """For containers that forbid namespaces: another user where one is to be had, filtered system calls,
    Landlock, limits. Services that listen on a path of the file system can be reached."""
    GPU = "gpu"
    """As `reduced`, with the driver's device nodes and requests inside. A driver is millions of lines that a job
    may talk to: on a host that runs foreign kernels there are no keys."""
    NONE = "none"
    """For tests of tilegate itself: a process of its own, clean environment, limits."""


class Reads(enum.Enum):
    """What a kind of job sees of the file system, always read-only."""

    PYTHON = "python"
    """The interpreter, its packages, and the system's shared libraries."""
    DRIVER = "driver"
    """A GPU's driver: its libraries, its device nodes, and what it reads of the machine."""
    COMPILERS = "compilers"
    """Programs and headers: gcc, g++, ld, and nvcc where it is installed."""


class Isolation(Record, frozen=True):
    """The isolation that was in force for one job, measured inside it before anything foreign ran.

    `level` is the word for people and policy; the rest are the facts behind it.
    """

    level: Level
    network: bool
    """True where the job could reach a network."""
    own_pids: bool
    """True where the job and all it started die together, whatever they did, and see nobody else."""
    own_files: bool
    """True where it saw a file system made for it."""
    filtered: bool
    """True where system calls outside the list were refused."""
    landlock: int
    """ABI version of the Landlock rules in force; 0 without."""
    cgroup: bool
    """True where the kernel bounded memory and processes of all together; the parent counts in any case."""
    uid: int
    """As the host counts it."""

    def __str__(self) -> str:
        facts = [
            "network reachable" if self.network else "no network",
            "files of its own"
            if self.own_files
            else f"Landlock {self.landlock}"
            if self.landlock
            else "host's files",
            "filtered system calls" if self.filtered else "any system call",
            f"uid {self.uid}",
        ]
        return f"{self.level.value} ({', '.join(facts)})"


class Limits(Record, frozen=True):
    """What one job may take. A limit that is reached ends the job and is told by name."""

    wall_s: float
    silence_s: float
    """No frame for this long, and the job is taken to hang."""
    memory_bytes: int
    """Address space of each process of the job."""
    job_bytes: int
    """Memory that all processes of the job hold together, looked at ten times a second."""
    processes: int
    """At once, threads counted by the kernel and processes by the parent."""
    open_files: int
    file_bytes: int
    """Largest file it may write."""
    scratch_bytes: int
    """All temporary files together, under `full`: they live in memory."""
    files: int
    """Temporary files at once, under `full`."""
    frame_bytes: int
    """Largest single result."""
    total_bytes: int
    """All results together."""
    frames: int
    output_bytes: int
    """Kept of what it prints; the rest is counted and dropped."""
    start_s: float = 0.0
    """More patience for the first frame: imports are not the silence of what is run."""


class JobPolicy(Record, frozen=True):
    """What one kind of job may see and take."""

    kind: str
    reads: tuple[Reads, ...]
    limits: Limits
    level: Level = Level.FULL
    memory_files: bool = False
    """True where it opens libraries from memory. What such files hold is counted for nobody but a cgroup."""

    def at(self, level: Level) -> JobPolicy:
        return msgspec.structs.replace(self, level=level)

    def within(self, **limits: float) -> JobPolicy:
        """The same with some limits set anew, by name."""
        return msgspec.structs.replace(self, limits=msgspec.structs.replace(self.limits, **limits))
