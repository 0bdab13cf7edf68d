"""What the parent asks of an evaluation job. What the worker claims of an entry: `records.evidence.Facts`."""

from __future__ import annotations

from tilegate.records.canonical import Document, Record
from tilegate.records.closure import SourceFile
from tilegate.records.contract import Contract
from tilegate.records.plan import Entry
from tilegate.records.target import DeviceClass


class Numbered(Record, frozen=True):
    """An entry with its number in the plan and the seed of its inputs."""

    index: int
    seed: int
    entry: Entry


class RunRequest(Document, frozen=True, tag="tilegate.request.run/1"):
    """Open the library, run these entries. The worker has no reference and no expected values."""

    contract: Contract
    identity: str
    symbols: tuple[str, ...]
    entries: tuple[Numbered, ...]
    backend: str = "cpu"
    """Of the target: where tensors lie and calls run."""


class ReferenceRequest(Document, frozen=True, tag="tilegate.request.reference/1"):
    """Run the operator's reference on the same entries. The job has no artifact."""

    contract: Contract
    operator: str
    files: tuple[SourceFile, ...]
    entries: tuple[Numbered, ...]


class TimingRequest(Document, frozen=True, tag="tilegate.request.timing/1"):
    """Time calls of an artifact, or of the reference, on the GPU: one of `identity` and `operator` is empty."""

    contract: Contract
    entries: tuple[Numbered, ...]
    identity: str = ""
    """Of the artifact's library."""
    symbols: tuple[str, ...] = ()
    operator: str = ""
    """`package.module:function` of the reference."""
    files: tuple[SourceFile, ...] = ()


class Measured(Record, frozen=True):
    """What a timing job says of one entry, in nanoseconds."""

    index: int
    runs: int
    device_ns: int
    """Median between two events of the device."""
    wall_ns: int
    """Median of the host's clock over a row of calls, for each."""


class FoundGpu(Document, frozen=True, tag="tilegate.found-gpu/1"):
    """The first GPU that a job gets, as its driver describes it."""

    device: DeviceClass
    versions: dict[str, str]
    """Of the driver, and of the newest CUDA that it speaks."""
    l2_bytes: int
    """Of its second-level cache."""
