"""The plan: every workload an artifact must face, made at home, with a nonce."""

from __future__ import annotations

import enum
import hashlib

from tilegate.records.canonical import Digest, Document, Name, Record, digest_of, encode
from tilegate.records.contract import AttributeValue


class Layout(enum.Enum):
    """How the tensors of an entry lie in memory."""

    ALIGNED = "aligned"
    """Contiguous, 64-byte aligned."""
    OFFSET = "offset"
    """Contiguous, aligned to one element only: a view into something larger."""
    PERMUTED = "permuted"
    """Strided inputs lie with their outer dims in another order: a transposed view."""
    GAPPED = "gapped"
    """Strided inputs are slices of something wider; their rows begin anywhere."""
    EXPANDED = "expanded"
    """Strided inputs repeat along the last but one dim: stride 0."""


STRIDED = (Layout.PERMUTED, Layout.GAPPED, Layout.EXPANDED)
"""Layouts that only strided inputs can have."""


class Values(enum.Enum):
    """What the inputs hold. NORMAL stands for the shape; the others look for faults that values trigger."""

    NORMAL = "normal"
    ZEROS = "zeros"
    NEGATIVE = "negative"
    TINY = "tiny"
    HUGE = "huge"
    MIXED = "mixed"
    """Magnitudes over many binades with both signs, so that sums cancel."""
    EXTREMES = "extremes"
    """The largest and smallest integers."""
    NAN = "nan"
    INF = "inf"


class Condition(enum.Enum):
    """What is going on where the artifact is called. But for PLAIN, its answer must be that of a plain call, bit
    for bit.
    """

    PLAIN = "plain"
    """On the default stream, and nothing else runs."""
    SIDE_STREAM = "side_stream"
    """On another stream, behind work that its inputs come from: who launches elsewhere reads what is not there."""
    BUSY = "busy"
    """While kernels of somebody else's run on another stream."""
    GRAPH = "graph"
    """Captured in a CUDA graph, which is replayed twice."""


class Origin(enum.Enum):
    """Why an entry is in the plan."""

    SERVED = "served"
    BOUNDARY = "boundary"
    RESIDUE = "residue"
    VALUES = "values"
    LAYOUT = "layout"
    CONDITION = "condition"
    REGRESSION = "regression"


class Workload(Record, frozen=True):
    """Concrete values for every axis, dtype variable and attribute."""

    axes: dict[Name, int]
    dtypes: dict[Name, Name] = {}
    attributes: dict[Name, AttributeValue] = {}

    def __str__(self) -> str:
        parts = {**self.axes, **self.dtypes, **self.attributes}
        return ", ".join(f"{k}={v}" for k, v in parts.items())


class Entry(Record, frozen=True):
    """One workload to run, with what its tensors hold and how they lie."""

    workload: Workload
    layout: Layout
    values: Values
    origin: Origin
    condition: Condition = Condition.PLAIN


class Plan(Document, frozen=True, tag="tilegate.plan/2"):
    contract: Digest
    manifest: Digest
    nonce: str
    """Random, chosen after the artifact was fixed: nobody can prepare for the inputs."""
    entries: tuple[Entry, ...]

    @property
    def digest(self) -> str:
        return digest_of(encode(self))

    def seed(self, index: int) -> int:
        """Seed of an entry's inputs: 63 bits of sha256 over (nonce, manifest, entry number)."""
        text = f"{self.nonce}\0{self.manifest}\0{index}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1
