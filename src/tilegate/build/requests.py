"""What the parent asks of a build job, and what a job that failed says. They live as long as the job."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from tilegate.records.artifact import Elaboration
from tilegate.records.canonical import Digest, Document, Record
from tilegate.records.closure import Binding, SourceFile, Specialization
from tilegate.records.contract import Contract
from tilegate.records.device import DeviceKernel
from tilegate.records.target import Target


class DescribeRequest(Document, frozen=True, tag="tilegate.request.describe/1"):
    """Import these operator modules and say what they declare."""

    modules: tuple[str, ...]
    files: tuple[SourceFile, ...]


class ElaborateRequest(Document, frozen=True, tag="tilegate.request.elaborate/1"):
    """Run one kernel's factory for one specialization."""

    contract: Contract
    closure: Digest
    binding: Binding
    files: tuple[SourceFile, ...]
    specialization: Specialization
    lowering: str = "c"
    """`Target.lowering` of the targets that the IR is for."""


class CompileRequest(Document, frozen=True, tag="tilegate.request.compile/1"):
    """Turn IR, which arrives as the input `ir`, into one library. No user Python runs in this job."""

    elaboration: Elaboration
    target: Target
    identity: str
    device_compiler: str | None = None
    """`Toolchain.device_compiler`, which is to be used."""


class Kernels(Document, frozen=True, tag="tilegate.job.kernels/1"):
    """What a compile job says of the device binary in its library."""

    kernels: tuple[DeviceKernel, ...]
    """In the order of the launcher's table."""


class Failure(Record, frozen=True):
    """An exception in a job, raw: it is read by rules.sanitize and goes no further."""

    step: str
    """Which part of the job: import, factory, result, lower, host, device, link; cuda-lower and cuda-device."""
    kind: str
    """Qualified name of the exception class."""
    message: str
    line: int | UnsetType = UNSET
    """Line in the closure's file where the traceback last touched it."""
    template: str = ""
    """Set where the job itself knows the diagnosis: a key of rules.sanitize.TEMPLATES."""
    numbers: dict[str, int] = {}
    words: dict[str, str] = {}
