"""What a job was kept from, as facts: printed at build and recorded in provenance."""

from __future__ import annotations

from tilegate.records.canonical import Record


class Isolation(Record, frozen=True):
    """The isolation that was in force for one job.

    `level` is the word for people and policy; the rest are the facts behind it.
    """

    level: str
    """`process`: own process, clean environment, limits. `namespaces`: its own network and pids as well."""
    network: bool
    """True where the job could reach a network."""
    own_pids: bool
    """True where the job and all it started die together, whatever they did."""
    uid: int

    def __str__(self) -> str:
        network = "network reachable" if self.network else "no network"
        return f"{self.level} ({network}, uid {self.uid})"


class Limits(Record, frozen=True):
    """What one job may take. A limit that is reached ends the job and is told by name."""

    wall_s: float
    silence_s: float
    """No frame for this long, and the job is taken to hang."""
    memory_bytes: int
    """Address space of each process of the job."""
    file_bytes: int
    """Largest file it may write."""
    frame_bytes: int
    """Largest single result."""
    total_bytes: int
    """All results together."""
    frames: int
    output_bytes: int
    """Kept of what it prints; the rest is counted and dropped."""
    start_s: float = 0.0
    """More patience for the first frame: imports are not the silence of what is run."""
