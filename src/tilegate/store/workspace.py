"""The workspace `<project>/.tilegate/`: blobs hold the truth, the index finds it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from tilegate.records.artifact import Manifest
from tilegate.records.canonical import Blob, Document, Record, digest_of, encode
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

    Whoever writes a record together with what it names (a library, sources, a plan) does so within one
    `writing()`, what is named first: a kill then leaves at most content that nothing names, and `store.gc`, which
    asks to be alone, sees all of it or nothing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = Blobs(root)
        self.index = Index(root, self.blobs)

    def writing(self) -> AbstractContextManager[None]:
        """A span that `store.gc` does not enter. Spans of several writers overlap, and one may hold another."""
        return self.blobs.held_to_write()

    def record(self, document: Document) -> Blob:
        """Store a document and make it findable. Recording it again changes nothing.

        It is announced to the index, written, and confirmed. A process that dies in between has recorded it
        exactly where its blob is there.

        Raises:
            RecordError: the document cannot be written faithfully.
            StoreError: the disk or the index does not take it.
        """
        if not isinstance(document, Indexed):
            return self.blobs.put_record(document)
        digest = digest_of(encode(document))
        with self.writing():
            self.index.announce(digest, document)
            blob = self.blobs.put_record(document)
            self.index.insert(digest, document)
        return blob

    def rebuild(self) -> int:
        """Fill the index anew while nobody writes; the number of documents. Errors as `Index.rebuild`."""
        with self.blobs.held_alone():
            return self.index.rebuild()

    def load(self, kind: type[R], digest: str) -> R:
        """The record under a digest; errors as `Blobs.get_record`."""
        return self.blobs.get_record(kind, digest)

    def manifests(
        self, operator: str | None = None, target: Target | None = None
    ) -> list[tuple[str, Manifest]]:
        with self.blobs.held():
            return self._load_all(Manifest, self.index.manifests(operator, target))

    def evaluations(self, manifest: str) -> list[tuple[str, Evaluation]]:
        """Every evaluation of one artifact, by the digest of its manifest."""
        with self.blobs.held():
            return self._load_all(Evaluation, self.index.evaluations(manifest))

    def traces(self, operator: str | None = None) -> list[tuple[str, CompilerTrace]]:
        with self.blobs.held():
            return self._load_all(CompilerTrace, self.index.traces(operator))

    def declarations(self) -> list[tuple[str, Declaration]]:
        with self.blobs.held():
            return self._load_all(Declaration, self.index.declarations())

    def _load_all(self, kind: type[R], digests: Iterable[str]) -> list[tuple[str, R]]:
        return [(digest, self.load(kind, digest)) for digest in digests]
