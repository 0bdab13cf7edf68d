"""The evaluation: one plan run on one device, a verdict for every entry that ran."""

from __future__ import annotations

import enum

from tilegate.records.canonical import Digest, Document, Record, digest_of, encode
from tilegate.records.isolation import Isolation
from tilegate.records.target import DeviceClass


class EntryVerdict(enum.Enum):
    PASSED = "passed"
    WRONG = "wrong"
    NONFINITE = "nonfinite"
    """NaN or infinity where the reference has none, or the other way round."""
    UNWRITTEN = "unwritten"
    OUT_OF_BOUNDS = "out_of_bounds"
    INPUT_MODIFIED = "input_modified"
    NONDETERMINISTIC = "nondeterministic"
    CRASHED = "crashed"
    HUNG = "hung"
    REFUSED = "refused"
    """The artifact's own argument checks declined the call."""
    UNSUPPORTED = "unsupported"
    """The device or the reference cannot do this entry; it counts neither way."""


class Vouch(enum.Enum):
    """Who stands for the outputs that were judged."""

    OBSERVED = "observed"
    """This machine ran the artifact itself, in a worker of its own."""
    RECOMPUTED = "recomputed"
    """Another machine ran it; home recomputed a random sample of what it returned."""
    SELF_REPORTED = "self-reported"


class EntryResult(Record, frozen=True):
    """The verdict of one entry, with numbers that hold no data."""

    index: int
    """Position in the plan."""
    verdict: EntryVerdict
    error_log2: int | None = None
    """Magnitude class of the worst error in units of what the tolerance allows: floor(log2(ratio))."""
    worst: tuple[int, ...] = ()
    """Index of the worst element."""
    count: int = 0
    """Elements concerned (wrong, unwritten, non-finite)."""
    detail: str = ""
    """A name, never data: the tensor concerned, a signal, a miss reason."""


class Evaluation(Document, frozen=True, tag="tilegate.evaluation/2"):
    contract: Digest
    manifest: Digest
    library: Digest
    plan: Digest
    device: DeviceClass
    versions: dict[str, str]
    """Of torch, apache-tvm-ffi, tilegate, Python and the system's kernel: recorded, not yet judged."""
    isolation: Isolation
    vouch: Vouch
    results: tuple[EntryResult, ...]
    """In plan order. An entry that is missing here has not passed."""

    @property
    def digest(self) -> str:
        return digest_of(encode(self))
