"""What a strict operator says where no tested binary covers a call."""

from __future__ import annotations

from tilegate.errors import GuardMiss
from tilegate.records.miss import Miss, MissReason

_EVIDENCE = (
    MissReason.NOT_IN_RELEASE,
    MissReason.NO_DEVICE_CLASS,
    MissReason.SPECIALIZATION,
    MissReason.SHAPE_CLASS,
    MissReason.ALIGNMENT,
    MissReason.ELEMENTS,
)


def guard_miss(operator: str, miss: Miss) -> GuardMiss:
    """The error of one call, with what would let it through."""
    if miss.reason is MissReason.CONTRACT_CHANGED:
        mend = "build, evaluate and promote it as it is now"
    elif miss.reason in _EVIDENCE:
        mend = "build, evaluate and promote a kernel that covers the call"
    else:
        mend = "call it as its contract says"
    return GuardMiss(
        f"{operator} is strict, and no tested binary covers this call",
        why=str(miss),
        next_step=f"{mend}, or drop strict=True to let the reference answer",
    )
