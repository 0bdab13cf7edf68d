"""The release: one statement that lists every digest a serving machine may open."""

from __future__ import annotations

from tilegate.records.canonical import Blob, Digest, Document, Name, Record
from tilegate.records.policy import Policy
from tilegate.records.shape import ShapeClass
from tilegate.records.target import DeviceClass, Target


class Candidate(Record, frozen=True):
    """One promoted artifact: what it is, where it may run, which calls it may serve."""

    operator: Name
    contract: Digest
    kernel: Name
    target: Target
    manifest: Blob
    library: Blob
    evaluations: tuple[Blob, ...]
    devices: tuple[DeviceClass, ...]
    """Where evidence was taken."""
    classes: tuple[ShapeClass, ...]
    """Disjoint."""


class Release(Document, frozen=True, tag="tilegate.release/1"):
    version: int
    """Grows with every promotion into the same layout."""
    policy: Policy
    contracts: tuple[Blob, ...]
    candidates: tuple[Candidate, ...]
