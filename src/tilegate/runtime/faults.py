"""What a refusal says of the device: may the reference answer this call, or is more lost than one call?

A decision over one number. The launch journal and quarantine will start from the same place: `Site` asks here
before anything else runs, and hands on what is lost (`dispatch.Site.on_fault`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegate.errors import DeviceError
from tilegate.records.faults import FaultClass
from tilegate.records.miss import GUARD_CODES, MissReason
from tilegate.runtime.callsite import FAULTS, Refusal

DRIVER_ERRORS = {
    1: "invalid value", 2: "out of memory", 3: "not initialized, as in a forked process", 35: "the driver is too old",
    100: "no device", 101: "no such device", 200: "invalid image", 209: "no code for this GPU", 214: "uncorrectable ECC error",
    218: "invalid PTX", 222: "unsupported PTX version", 220: "uncorrectable NVLink error", 302: "the driver lacks a function: it is too old",
    303: "libcuda.so.1 is missing", 304: "operating system", 700: "illegal address", 701: "too many resources for one launch",
    702: "launch timeout", 709: "context is destroyed", 710: "device assert", 714: "hardware stack error",
    715: "illegal instruction", 716: "misaligned address", 717: "invalid address space",
    718: "invalid program counter", 719: "launch failed", 720: "too many blocks for a cooperative launch", 721: "tensor memory leak",
    900: "not permitted while a stream is captured", 901: "the capture is invalid", 999: "unknown",
}  # fmt: skip
"""CUresult, where a number alone would send people to a search engine."""

OUT_OF_MEMORY = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """More than a call outside of every class: the driver refused, or the call stopped half way."""

    kind: FaultClass
    launched: int
    """Kernels of the call that were in the stream already."""
    error: int
    """The driver's number; 0 where it was not the driver."""

    def reference_may_answer(self, *, in_place: bool) -> bool:
        """Not on a dead device, and not from inputs that a kernel may have overwritten."""
        return self.kind.reference_may_answer and not (in_place and self.launched)

    def __str__(self) -> str:
        return driver_error(self.error) if self.error else "the launcher stopped between two kernels"


def fault_of(refusal: Refusal) -> Fault | None:
    """What a refusal says of the device; None where it is a call that the guard did not admit."""
    if isinstance(refusal, type) or refusal < FAULTS:
        return None
    reason, launched, error = GUARD_CODES[refusal & 0xFF], refusal >> 24 & 0xFF, refusal >> 32
    if reason is MissReason.STICKY:
        kind = FaultClass.STICKY
    elif error == OUT_OF_MEMORY:
        kind = FaultClass.RESOURCES
    else:
        kind = FaultClass.LAUNCH
    return Fault(kind, launched, error)


def driver_error(number: int) -> str:
    """`driver error 700: illegal address`."""
    words = DRIVER_ERRORS.get(number)
    return f"driver error {number}: {words}" if words else f"driver error {number}"


def device_lost(operator: str, device: str, why: str, suspects: tuple[str, ...]) -> DeviceError:
    """The error of every call on a device whose context is dead."""
    told = f"; launched since the device was last known to be good: {', '.join(suspects)}" if suspects else ""
    return DeviceError(
        f"{device} is lost to this process",
        where=f"met by a call of {operator}, which need not be the cause{told}",
        why=f"{why}; the device's context is dead, and nothing runs on it any more, not even a reference",
        next_step="restart the process; run it with tilegate.reference_only() on if that happens again",
        device=device,
        suspects=suspects,
    )


def half_written(operator: str, device: str, tensors: tuple[str, ...], why: str) -> DeviceError:
    """The error of one call whose in-place tensors are neither what they were nor what they should be."""
    return DeviceError(
        f"a call of {operator} stopped half way, and has overwritten some of its input",
        where=f"{', '.join(tensors)}, on {device}",
        why=f"{why}; the reference would compute from a half-written tensor",
        next_step=f"discard {', '.join(tensors)} and what was made from it; the device itself is usable",
        device=device,
    )
