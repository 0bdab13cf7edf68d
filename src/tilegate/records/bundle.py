"""What is handed to a machine that can run an artifact: the artifact, the reference, and the plan made at home."""

from __future__ import annotations

from tilegate.records.canonical import Digest, Document, digest_of, encode


class Export(Document, frozen=True, tag="tilegate.export/1"):
    """One artifact with the plan that it must face elsewhere. Home keeps it: evidence for another is refused."""

    manifest: Digest
    """Names the library."""
    plan: Digest
    """Made at home, nonce included."""
    declaration: Digest
    """Holds the contract."""
    closure: Digest
    """Its files are the reference's source."""

    @property
    def digest(self) -> str:
        return digest_of(encode(self))


class Bundle(Document, frozen=True, tag="tilegate.bundle/1"):
    """The first frame of a bundle; behind it stands every blob that the exports name, each once."""

    exports: tuple[Export, ...]
    """One for each artifact."""
