"""A drill: attacks that are made on purpose, what became of each, and what was expected of it."""

from __future__ import annotations

import enum

from tilegate.records.canonical import Document, Record
from tilegate.records.isolation import Isolation, Level


class Outcome(enum.Enum):
    BLOCKED = "blocked"
    """The attack was made, and failed."""
    ESCAPED = "escaped"
    """The attack worked, or left a trace outside the job."""
    NOT_APPLICABLE = "not applicable"
    """It was not made: this machine lacks what it is aimed at, or it would harm the machine at this level."""
    INCONCLUSIVE = "inconclusive"
    """It was made and nobody can say what became of it. Never as expected."""


class Theme(enum.Enum):
    """What an attack is aimed at."""

    CREDENTIALS = "credentials"
    """Secrets of whoever runs the job."""
    FILES = "files"
    """Files outside the job, and tricks with those inside."""
    NETWORK = "network"
    """Sockets of every family."""
    PROCESSES = "processes"
    """Other processes, those of the job's trusted part included."""
    KERNEL = "kernel"
    """Calls that a build has no use for."""
    PRIVILEGES = "privileges"
    """Ways to become somebody else, or to change the machine."""
    RESOURCES = "resources"
    """Bombs, each with a bound."""
    RESULTS = "results"
    """What comes back from the job."""


class Said(enum.Enum):
    """What an attack says of itself, from inside the job."""

    ESCAPED = "escaped"
    """It worked."""
    REFUSED = "refused"
    """It was made, and something said no."""
    TRIED = "tried"
    """It was made; only the host can see whether it worked."""
    UNABLE = "unable"
    """It could not be made as it is meant."""


class Claim(Record, frozen=True):
    """The one frame that an attack sends."""

    said: Said
    """In one word."""
    detail: str
    """What was seen: an error's name, or a few words."""


class DrillLine(Record, frozen=True):
    """One attack."""

    probe: str
    """Its name, to run it alone."""
    theme: Theme
    """What it is aimed at."""
    tries: str
    """What it does, in one line."""
    outcome: Outcome
    """What became of it."""
    expected: tuple[Outcome, ...]
    """What may become of it at this level, for this caller, on this kernel."""
    why: str
    """The reason for the expectation."""
    detail: str
    """What was seen."""
    wall_s: float
    """From start to end, in seconds."""

    @property
    def as_expected(self) -> bool:
        return self.outcome in self.expected


class DrillReport(Document, frozen=True, tag="tilegate.report.drill/1"):
    """What a drill of the sandbox found on this machine."""

    level: Level
    """What was asked for."""
    caller: int
    """User id of whoever ran the drill."""
    isolation: Isolation
    """What a job without an attack found in force."""
    lines: tuple[DrillLine, ...]
    """In the order of themes."""

    @property
    def accepted(self) -> bool:
        return all(line.as_expected for line in self.lines)
