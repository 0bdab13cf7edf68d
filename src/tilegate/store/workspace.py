"""The workspace `<project>/.tilegate/`: blobs hold the truth, the index finds it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from tilegate.records.artifact import Manifest
from tilegate.records.canonical import Blob, Document, Record
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import Evaluation
from tilegate.records.target import Target
from tilegate.records.trace import CompilerTrace
from tilegate.store.blobs import Blobs
from tilegate.store.index import Index, Indexed

R = TypeVar("R", bound=Record)


class Workspace:
    """Blobs and index of one project. Opening and asking create nothing; a missing one is an empty one.

    Queries give records with their digests, in the order in which they were first recorded. Their errors are
    those of `Blobs.get_record` and of the index: a record that is named but unreadable is never left out.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = Blobs(root)
        self.index = Index(root, self.blobs)

    def record(self, document: Document) -> Blob:
        """Store a document and make it findable. Recording it again changes nothing.

        Blob before index: a process that dies in between leaves no row without its record.

        Raises:
            RecordError: the document cannot be written faithfully.
            StoreError: the disk or the index does not take it.
        """
        blob = self.blobs.put_record(document)
        if isinstance(document, Indexed):
            self.index.insert(blob.digest, document)
        return blob

    def load(self, kind: type[R], digest: str) -> R:
        """The record under a digest; errors as `Blobs.get_record`."""
        return self.blobs.get_record(kind, digest)

    def manifests(
        self, operator: str | None = None, target: Target | None = None
    ) -> list[tuple[str, Manifest]]:
        return self._load_all(Manifest, self.index.manifests(operator, target))

    def evaluations(self, manifest: str) -> list[tuple[str, Evaluation]]:
        """Every evaluation of one artifact, by the digest of its manifest."""
        return self._load_all(Evaluation, self.index.evaluations(manifest))

    def traces(self, operator: str | None = None) -> list[tuple[str, CompilerTrace]]:
        return self._load_all(CompilerTrace, self.index.traces(operator))

    def declarations(self) -> list[tuple[str, Declaration]]:
        return self._load_all(Declaration, self.index.declarations())

    def _load_all(self, kind: type[R], digests: Iterable[str]) -> list[tuple[str, R]]:
        return [(digest, self.load(kind, digest)) for digest in digests]
