"""A decision is a value: accepted, or rejected with every reason."""

from __future__ import annotations

from tilegate.records.canonical import Record


class Reason(Record, frozen=True):
    """One reason of a rejection: a stable code, a sentence, and what to do about it."""

    code: str
    message: str
    next_step: str = ""


class Accepted(Record, frozen=True, tag="accepted"):
    notes: tuple[str, ...] = ()


class Rejected(Record, frozen=True, tag="rejected"):
    subject: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        lines = [f"rejected: {self.subject}", *(f"  {r.message}" for r in self.reasons)]
        steps = dict.fromkeys(r.next_step for r in self.reasons if r.next_step)
        return "\n".join([*lines, *(f"next: {step}" for step in steps)])


Verdict = Accepted | Rejected
