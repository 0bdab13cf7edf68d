"""Why a call went to the reference."""

from __future__ import annotations

import enum

from tilegate.records.canonical import Record


class MissReason(enum.Enum):
    # The table has nothing for the operator.
    NO_RELEASE = "no release attached"
    NOT_IN_RELEASE = "operator is not in the release"
    CONTRACT_CHANGED = "contract or reference changed since evaluation"
    NO_DEVICE_CLASS = "no artifact for this device"
    REFERENCE_ONLY = "reference_only() is on"
    # Seen in Python, before the artifact is asked.
    TENSOR_TYPE = "argument is not a plain torch.Tensor or nn.Parameter"
    GRAD = "a gradient would be recorded"
    NEGATIVE_BIT = "tensor has its negative or conjugate bit set"
    SPECIALIZATION = "no artifact for this dtype, fixed extent or attribute"
    TRACING = "called while torch traces, transforms or casts"
    UNREADABLE = "an argument could not be handed over"
    # Seen by the guard in C. The order is part of the ABI: code n is GUARD_CODES[n].
    NOT_A_TENSOR = "argument is not a tensor"
    DEVICE = "tensor is on another device"
    DTYPE = "tensor has another dtype"
    RANK = "tensor has another rank"
    EXTENT = "a fixed extent differs"
    SYMBOL = "tensors disagree on an axis"
    NARROW = "an extent is beyond int32"
    STRIDES = "tensor is not contiguous"
    ALIAS = "an output overlaps another tensor"
    SHAPE_CLASS = "no evidence for this shape"
    ALIGNMENT = "data is not aligned as evaluated"
    ELEMENTS = "more elements than evaluated"
    HOST = "the generated host code refused the call"
    ARGUMENTS = "wrong number of arguments"
    DIMENSIONS = "the launch is beyond what the device or the kernel allows"
    DRIVER = "the device's driver refused"
    STICKY = "the device's context is lost"


GUARD_CODES: tuple[MissReason, ...] = (
    MissReason.NO_RELEASE,  # 0 means launched; this place is never read
    MissReason.NOT_A_TENSOR,
    MissReason.DEVICE,
    MissReason.DTYPE,
    MissReason.RANK,
    MissReason.EXTENT,
    MissReason.SYMBOL,
    MissReason.NARROW,
    MissReason.STRIDES,
    MissReason.ALIAS,
    MissReason.SHAPE_CLASS,
    MissReason.ALIGNMENT,
    MissReason.ELEMENTS,
    MissReason.HOST,
    MissReason.ARGUMENTS,
    MissReason.DIMENSIONS,
    MissReason.DRIVER,
    MissReason.STICKY,
)
"""Refusals of the guard in C by number: build/launchers/guard.h carries the same list."""


class Miss(Record, frozen=True):
    """One call that the reference answered. `detail` names tensors, axes and extents, never values."""

    reason: MissReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value} ({self.detail})" if self.detail else self.reason.value
