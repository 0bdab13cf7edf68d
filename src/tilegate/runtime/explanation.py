"""The answer to "who would answer this call?"."""

from __future__ import annotations

from dataclasses import dataclass

from tilegate.records.miss import Miss


@dataclass(frozen=True, slots=True)
class Explanation:
    """One decision: who answers a call, and why nobody nearer did."""

    operator: str
    kernel: str | None
    """The kernel whose binary answers; None where the reference does."""
    target: str | None = None
    manifest: str | None = None
    shape_class: str | None = None
    misses: tuple[Miss, ...] = ()
    """Why each candidate, in the order asked, would not."""
    skipped: tuple[str, ...] = ()
    """Candidates of the release that this machine does not serve at all, or not on all its devices, and why."""

    def __str__(self) -> str:
        if self.kernel is not None:
            text = f"{self.operator}: {self.kernel} for {self.target}, inside {self.shape_class}"
        else:
            text = f"{self.operator}: the reference"
        missed = (f"  not a binary: {miss}" for miss in self.misses)
        return "\n".join([text, *missed, *(f"  not here: {why}" for why in self.skipped)])
