"""What the parent asks of an evaluation job, and what the worker claims of one entry."""

from __future__ import annotations

from tilegate.records.canonical import Document, Record
from tilegate.records.closure import SourceFile
from tilegate.records.contract import Contract
from tilegate.records.plan import Entry


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


class ReferenceRequest(Document, frozen=True, tag="tilegate.request.reference/1"):
    """Run the operator's reference on the same entries. The job has no artifact."""

    contract: Contract
    operator: str
    files: tuple[SourceFile, ...]
    entries: tuple[Numbered, ...]


class Facts(Record, frozen=True):
    """What was seen of one entry, in names and counts. The outputs follow as raw bytes."""

    index: int
    inputs: str
    """Digest over all inputs: both jobs must have made the same."""
    refusal: int = 0
    """The guard's code; nonzero means that nothing ran."""
    outside: tuple[str, ...] = ()
    """Tensors beside which a canary died."""
    modified: tuple[str, ...] = ()
    """Inputs that are not outputs and changed."""
    unwritten: dict[str, int] = {}
    """Elements that kept the poison of both runs."""
    unstable: dict[str, int] = {}
    """Elements that differ between the two runs."""
    failed: str = ""
    """The reference raised: name of the exception class."""
