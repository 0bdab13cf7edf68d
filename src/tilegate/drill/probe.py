"""What a probe is, what is expected of it, and the judgement. Pure: no clock, file or process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilegate.records.drill import Claim, Outcome, Said, Theme
from tilegate.records.isolation import Level
from tilegate.sandbox import Ending

LEVELS = (Level.FULL, Level.REDUCED, Level.NONE)
"""Those that there are expectations for, from the strongest."""

BLOCKED, ESCAPED, NOT_APPLICABLE = Outcome.BLOCKED, Outcome.ESCAPED, Outcome.NOT_APPLICABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What an expectation may depend on, beside the level."""

    root: bool
    """The caller is root."""
    landlock: int
    """ABI of this kernel; 0 without."""
    cgroup: bool
    """The kernel bounds the memory and the processes of a job together."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What may become of a probe, and why. More than one outcome: the machine's own settings decide."""

    outcomes: tuple[Outcome, ...]
    why: str
    user: Expected | None = None
    """Instead, where the caller is not root."""
    before: tuple[int, Expected] | None = None
    """Instead, where the kernel's Landlock is older than this ABI."""

    grouped: Expected | None = None
    """Instead, where the kernel bounds the memory and the processes of a job together."""

    def here(self, situation: Situation) -> Expected:
        if self.grouped is not None and situation.cgroup:
            return self.grouped.here(situation)
        if self.before is not None and situation.landlock < self.before[0]:
            return self.before[1].here(situation)
        if self.user is not None and not situation.root:
            return self.user.here(situation)
        return self


@dataclass(frozen=True, slots=True)
class Probe:
    """One attack: the function of its name in the module of its theme."""

    name: str
    theme: Theme
    tries: str
    full: Expected
    reduced: Expected
    none: Expected
    needs: tuple[str, ...] = ()
    """Props that the host may be unable to plant."""
    ends: frozenset[Ending] = frozenset()
    """Endings that are what should become of it: a limit that was reached, a stream that was refused."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """In place of the drill's own."""
    alone: bool = False
    """It may disturb others, or is about how a sandbox ends: it gets one of its own."""

    def expected(self, level: Level, situation: Situation) -> Expected:
        by_level = {Level.FULL: self.full, Level.REDUCED: self.reduced, Level.NONE: self.none}
        return by_level[level].here(situation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of one attempt: first what the host saw, last what the job says."""

    traces: Sequence[str]
    """What the host found changed, reached or alive."""
    ending: Ending
    claim: Claim | None


def judge(probe: Probe, facts: Facts) -> tuple[Outcome, str]:
    """The outcome of one attempt, and what was seen.

    1. A trace on the host is an escape, whatever the job says.
    2. So is a success that the job reports, and an ending that passes for a success without any report.
    3. A limit that ended it as it should, a refusal, and an attempt of which the host sees nothing are blocked.
    4. Anything else proves nothing.
    """
    claim, said = facts.claim, facts.claim.detail if facts.claim is not None else ""
    if facts.traces:  # (1)
        return Outcome.ESCAPED, ", ".join(facts.traces)
    if claim is not None and claim.said is Said.ESCAPED:  # (2)
        return Outcome.ESCAPED, said
    if facts.ending in probe.ends:  # (3)
        return Outcome.BLOCKED, "; ".join(filter(None, (f"ended as {facts.ending.value}", said)))
    if claim is None:
        return _without_word(facts.ending)
    told = {  # (3, 4)
        Said.REFUSED: (Outcome.BLOCKED, said),
        Said.TRIED: (Outcome.BLOCKED, f"{said}; nothing of it outside"),
        Said.UNABLE: (Outcome.INCONCLUSIVE, said),
    }
    return told[claim.said]


def _without_word(ending: Ending) -> tuple[Outcome, str]:
    if ending is Ending.FINISHED:  # (2)
        return Outcome.ESCAPED, "passed for finished, with nothing to show"
    return Outcome.INCONCLUSIVE, f"no word from it: {ending.value}"  # (4)


def blocked(why: str) -> Expected:
    return Expected((BLOCKED,), why)


def escapes(why: str) -> Expected:
    return Expected((ESCAPED,), why)


def depends(why: str) -> Expected:
    """On settings of the machine that have nothing to do with the job."""
    return Expected((BLOCKED, ESCAPED), why)


def not_made(why: str) -> Expected:
    return Expected((NOT_APPLICABLE,), why)


def split(*, root: Expected, user: Expected) -> Expected:
    """By who calls."""
    return replace(root, user=user)


def since(abi: int, now: Expected, before: Expected) -> Expected:
    """By the kernel's Landlock."""
    return replace(now, before=(abi, before))


def in_group(now: Expected, without: Expected) -> Expected:
    """By whether an administrator has delegated a control group."""
    return replace(without, grouped=now)
