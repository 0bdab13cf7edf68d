"""What comes back from a machine that ran a bundle: evaluations, and what home needs to recompute some of it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tilegate.records.canonical import Blob, Digest, Document, Record
from tilegate.records.evaluation import Evaluation

Nanoseconds = Annotated[int, Meta(ge=0, le=2**53)]


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
    """Elements that kept the poison of every run."""
    unstable: dict[str, int] = {}
    """Elements that differ between two runs."""
    failed: str = ""
    """It could not be tried: name of the exception class that the reference, or the device's memory, raised."""


class Ran(Record, frozen=True):
    """One entry that ran to its end."""

    facts: Facts
    """What was seen of it."""
    outputs: tuple[Blob, ...]
    """In the contract's order. The content came back where the file holds blobs of these digests."""


class Timing(Record, frozen=True):
    """How long one served workload takes: a fact for reports, no verdict. Medians over `runs` calls.

    Between two calls more than the second-level cache holds is read, so that inputs come from memory.
    """

    index: int
    """Position in the plan."""
    runs: int
    """Calls that were timed."""
    device_ns: Nanoseconds
    """Between two events of the device, with work queued before: without the host's share."""
    wall_ns: Nanoseconds
    """Of one call in a row of them, by the host's clock: the slower of host and device."""
    reference_device_ns: Nanoseconds | None = None
    """Of the reference in plain PyTorch on the same device, in a process of its own."""
    reference_wall_ns: Nanoseconds | None = None
    """Likewise, by the host's clock."""


class Sanitized(Record, frozen=True):
    """What one tool of compute-sanitizer did. What it found at an entry is part of that entry's facts."""

    tool: str
    """memcheck, racecheck or initcheck."""
    entries: int = 0
    """That ran under it, up to the first at which it found something."""
    errors: int = 0
    """As the tool counts them."""
    kind: str = ""
    """Of the first error, as the tool names it."""
    skipped: str = ""
    """Why it did not run, or came to nothing."""


class Returned(Record, frozen=True):
    """What became of one export."""

    export: Digest
    """Of the export, as home recorded it."""
    evaluation: Evaluation
    """As judged there: `self-reported`."""
    ran: tuple[Ran, ...]
    """In plan order: the results that rest on outputs or on what was seen of memory."""
    timings: tuple[Timing, ...] = ()
    """Of served workloads that passed."""
    sanitized: tuple[Sanitized, ...] = ()
    """One for each tool, where they were asked for."""


class Evidence(Document, frozen=True, tag="tilegate.evidence/1"):
    """The first frame of an evidence file; outputs follow as blobs, each once, as far as there was room."""

    returned: tuple[Returned, ...]
    """One for each export that could run there."""
