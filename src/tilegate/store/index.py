"""The index: which records a workspace holds, by operator, target and manifest. Derived from the blobs alone."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, get_args

from tilegate.errors import StoreError
from tilegate.records.artifact import Elaboration, Manifest
from tilegate.records.canonical import Document, decode, peek_schema, schema_of
from tilegate.records.closure import Closure
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import Evaluation
from tilegate.records.plan import Plan
from tilegate.records.release import Release
from tilegate.records.target import Target
from tilegate.records.trace import CompilerTrace
from tilegate.store.blobs import Blobs
from tilegate.store.files import TEMPORARY, locked, make_folder, store_error

Indexed = Declaration | Closure | Elaboration | Manifest | Plan | Evaluation | CompilerTrace | Release
"""The documents that queries ask for; every other one is found by its digest, from one of these."""

KINDS: dict[str, type[Document]] = {str(schema_of(kind)): kind for kind in get_args(Indexed)}

VERSION = 2
"""Raise it with every change of `TABLE` or `row_of`: an index of another version is filled anew."""

TABLE = """
CREATE TABLE documents (
    seq        INTEGER PRIMARY KEY,
    digest     TEXT NOT NULL UNIQUE,
    schema     TEXT NOT NULL,
    operator   TEXT,
    kernel     TEXT,
    target     TEXT,
    contract   TEXT,
    manifest   TEXT,
    written_ns INTEGER
)
"""
"""`written_ns` is that of the blob, and the order of every answer. NULL: a writer announced the document and
has not said since that it is there. Then the blob itself is asked.
"""

_INSERT = """
INSERT INTO documents (digest, schema, operator, kernel, target, contract, manifest, written_ns)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ANNOUNCE = f"{_INSERT} ON CONFLICT (digest) DO NOTHING"
_CONFIRM = f"{_INSERT} ON CONFLICT (digest) DO UPDATE SET written_ns = excluded.written_ns"

_FIND = """
SELECT digest, written_ns FROM documents WHERE (:schema IS NULL OR schema = :schema)
AND (:operator IS NULL OR operator = :operator)
AND (:target IS NULL OR target = :target)
AND (:manifest IS NULL OR manifest = :manifest)
"""

_LOG = ("-wal", "-shm")
"""What SQLite keeps beside a database."""


class Row(NamedTuple):
    """One line of the index. A column that the document does not know is None."""

    digest: str
    schema: str
    operator: str | None = None
    kernel: str | None = None
    target: str | None = None
    contract: str | None = None
    manifest: str | None = None


def row_of(digest: str, document: Indexed) -> Row:
    """The row of a document: of nothing but the document, so that a rebuilt index equals the one lost."""
    row = Row(digest, str(schema_of(type(document))))
    match document:
        case Declaration(contract=contract):
            row = row._replace(operator=contract.name, contract=contract.digest)
        case Closure(binding=binding):
            # A binding spells its operator as module:function; the operator's own name is not in it.
            row = row._replace(kernel=binding.kernel)
        case Elaboration():
            row = row._replace(operator=document.operator, kernel=document.kernel, contract=document.contract)
        case Manifest(elaboration=built, target=target):
            row = row._replace(
                operator=built.operator, kernel=built.kernel, target=str(target), contract=built.contract
            )
        case Plan() | Evaluation():
            row = row._replace(contract=document.contract, manifest=document.manifest)
        case CompilerTrace():
            row = row._replace(operator=document.operator, kernel=document.kernel, target=document.target)
        case Release():
            pass
    return row


class Index:
    """The SQLite file `<root>/index.sqlite`. Missing or of another version, it is filled from the blobs.

    Every operation has a connection of its own, so an index may be used after a fork and from threads.
    Answers are in the order in which the documents were first written, as `Blobs` has it: an index that is
    filled anew gives the same ones, whoever wrote at the same time.
    """

    def __init__(self, root: Path, blobs: Blobs, *, wait_s: float = 30.0) -> None:
        self._root = root
        self._path = root / "index.sqlite"
        self._blobs = blobs
        self._wait_s = wait_s

    def announce(self, digest: str, document: Indexed) -> None:
        """Say that a blob is about to be written: it counts from the moment it is there.

        Without it, a process that dies between blob and row would leave a record on disk that no query
        finds, and that a rebuilt index holds.

        Raises:
            StoreError: locked for longer than `wait_s`, corrupt, read-only or full.
        """
        self._change(_ANNOUNCE, [(*row_of(digest, document), None)])

    def insert(self, digest: str, document: Indexed) -> None:
        """Add a document whose blob is stored. Adding it again changes nothing; errors as `announce`."""
        self._change(_CONFIRM, [(*row_of(digest, document), self._blobs.written_ns(digest))])

    def discard(self) -> None:
        """Remove it, which takes no room; the next question fills it anew. Whoever calls this keeps others out.

        Raises:
            StoreError: the folder is read-only.
        """
        for suffix in ("", *_LOG):
            path = self._path.with_name(self._path.name + suffix)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise _unwritable(error, path) from None

    def documents(self) -> list[str]:
        """Digests of every document that counts."""
        return self._find(None)

    def manifests(self, operator: str | None = None, target: Target | None = None) -> list[str]:
        """Digests of manifests, in order of writing; None asks for every operator or target."""
        return self._find(Manifest, operator=operator, target=None if target is None else str(target))

    def evaluations(self, manifest: str) -> list[str]:
        """Digests of the evaluations of one artifact, in order of writing."""
        return self._find(Evaluation, manifest=manifest)

    def traces(self, operator: str | None = None) -> list[str]:
        """Digests of compiler traces, in order of writing; None asks for every operator."""
        return self._find(CompilerTrace, operator=operator)

    def declarations(self) -> list[str]:
        """Digests of declarations, in order of writing."""
        return self._find(Declaration)

    def rebuild(self) -> int:
        """Fill the index anew from the blobs, oldest first; the number of rows.

        One that SQLite cannot read is removed first. Whoever calls this keeps writers out.

        Raises:
            StoreError: as `announce`, or a blob is corrupt: skipping it could hide a failure.
            RecordError: a blob claims a schema of ours and is not a record of it.
        """
        if not self._readable():
            self.discard()
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            rows = self._fill(db)
            db.execute("COMMIT")
        return rows

    def _readable(self) -> bool:
        if not self._path.exists():
            return True
        try:
            with closing(sqlite3.connect(self._path, timeout=self._wait_s)) as db:
                return bool(db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
        except sqlite3.DatabaseError as error:
            return _code(error) not in _CORRUPT

    def _change(self, statement: str, rows: Collection[tuple[str | int | None, ...]]) -> None:
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(statement, rows)
            db.execute("COMMIT")

    def _find(
        self,
        kind: type[Document] | None,
        *,
        operator: str | None = None,
        target: str | None = None,
        manifest: str | None = None,
    ) -> list[str]:
        if not self._path.exists() and next(iter(self._blobs), None) is None:
            return []  # a question creates nothing
        schema = schema_of(kind) if kind else None
        wanted = {"schema": schema, "operator": operator, "target": target, "manifest": manifest}
        with self._open() as db:
            rows = db.execute(_FIND, wanted).fetchall()
        aged = [(self._blobs.written_ns(d) if ns is None else ns, d) for d, ns in rows]
        return [digest for _, digest in sorted((ns, d) for ns, d in aged if ns is not None)]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection to an index that is filled. What is not committed when it closes never was."""
        try:
            self._create()
            with closing(sqlite3.connect(self._path, timeout=self._wait_s, isolation_level=None)) as db:
                # With NORMAL a power cut may take back the last rows while their blobs stay: evidence of a
                # failure would be on disk and found by no query.
                db.execute("PRAGMA synchronous = FULL")
                if _version(db) != VERSION:
                    db.execute("BEGIN IMMEDIATE")
                    if _version(db) != VERSION:  # another process may have filled it while we waited
                        self._fill(db)
                    db.execute("COMMIT")
                yield db
        except sqlite3.Error as error:
            raise _index_error(error, self._path, self._wait_s) from None
        except OSError as error:
            raise _unwritable(error, self._path) from None

    def _create(self) -> None:
        """Put an empty database in place, in WAL mode from its first byte.

        Changing the mode of a database that others have open fails without waiting, so it is done under a
        temporary name. The lock keeps a slow creator from replacing an index that has rows by now.
        """
        if self._path.exists():
            return
        make_folder(self._root)
        with locked(self._root, alone=True):
            if self._path.exists():
                return
            for suffix in _LOG:
                # Of an index that was deleted after a crash: SQLite would replay it into the new one.
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            fresh = self._root / f"{TEMPORARY}{secrets.token_hex(8)}.sqlite"
            with closing(sqlite3.connect(fresh)) as db:
                db.execute("PRAGMA journal_mode = WAL")
            fresh.replace(self._path)

    def _fill(self, db: sqlite3.Connection) -> int:
        db.execute("DROP TABLE IF EXISTS documents")
        db.execute(TABLE)
        rows = db.executemany(_CONFIRM, self._rows()).rowcount
        db.execute(f"PRAGMA user_version = {VERSION}")
        return rows

    def _rows(self) -> Iterator[tuple[str | int | None, ...]]:
        for digest in self._blobs:
            data = self._blobs.get(digest)
            kind = KINDS.get(peek_schema(data) or "")
            if kind is not None:
                document = decode(kind, data, where=str(self._blobs.path(digest)))
                assert isinstance(document, Indexed)  # KINDS holds nothing else
                yield *row_of(digest, document), self._blobs.written_ns(digest)


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


_WRITABLE = "make room there, or make it writable"
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _unwritable(error: OSError, path: Path) -> StoreError:
    what = "cannot write the index of the workspace"
    return store_error(error, what=what, where=path, next_step=_WRITABLE)


def _index_error(error: sqlite3.Error, path: Path, wait_s: float) -> StoreError:
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        what, why = "the index of the workspace is locked", f"another process has held it for {wait_s:g} s"
        next_step = "wait until the other tilegate command on this workspace has ended, then run this again"
    elif code in _CORRUPT:
        what, why = "the index of the workspace is corrupt", str(error)
        next_step = "tilegate store rebuild   (it fills the index anew from the blobs)"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        what, why, next_step = "the index of the workspace is read-only", str(error), _WRITABLE
    else:
        what, next_step = "cannot use the index of the workspace", _WRITABLE
        full = code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
        why = f"the disk is full, or it fails: {error}" if full else str(error)
    return StoreError(what, where=str(path), why=why, next_step=next_step)
