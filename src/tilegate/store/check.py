"""Everything that a workspace holds, read once: what is there, what is wrong with it, what was left behind.

Whoever calls this holds the workspace alone (`Blobs.held_alone`): what is being written is not missing.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tilegate.errors import RecordError, SchemaError, StoreError
from tilegate.records.bundle import Export
from tilegate.records.canonical import Document, decode, peek_schema, schema_of
from tilegate.records.contract import Contract
from tilegate.records.profile import Profile
from tilegate.records.report import StoreFault
from tilegate.records.toolchain import Toolchain
from tilegate.rules.retention import RAW, Held, held_of
from tilegate.store.files import BLOB_FOLDER, TEMPORARY
from tilegate.store.index import KINDS
from tilegate.store.workspace import Workspace

KNOWN: dict[str, type[Document]] = {
    **KINDS,
    **{str(schema_of(k)): k for k in (Contract, Export, Profile, Toolchain)},
}

_HEX = re.compile(r"[0-9a-f]{64}")

_MADE_ONCE = ("manifest", "plan", "evaluation")
_COPY = "take it from a copy of the workspace"
_BUILD = f"tilegate build, with the source as it was then; or {_COPY}"
_AGAIN = "then tilegate store rebuild, build and evaluate"


@dataclass(slots=True)
class Scan:
    """What `scan` found. Contents are not kept."""

    held: dict[str, Held] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """In bytes."""
    changed_ns: dict[str, int] = field(default_factory=dict)
    """When each blob was last put, in nanoseconds of the epoch."""
    faults: list[StoreFault] = field(default_factory=list)
    """Corrupt and unknown ones."""

    @property
    def documents(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for one in self.held.values():
            if one.schema != RAW:
                counts[one.schema] = counts.get(one.schema, 0) + 1
        return counts


def scan(workspace: Workspace) -> Scan:
    """Read and hash every blob, and decode every record.

    Raises:
        StoreError: the folder cannot be listed.
    """
    found = Scan()
    for digest in workspace.blobs:
        path = workspace.blobs.path(digest)
        try:
            data = workspace.blobs.get(digest)
            found.held[digest] = _held(data, str(path))
        except (StoreError, RecordError) as error:
            found.faults.append(_unreadable(error, digest))
        else:
            found.sizes[digest], found.changed_ns[digest] = len(data), path.lstat().st_ctime_ns
    found.faults += _strangers(workspace.root / BLOB_FOLDER)
    return found


def faults_of(workspace: Workspace, found: Scan) -> Iterator[StoreFault]:
    """Everything that is wrong: corrupt, missing and unknown blobs, and an index that disagrees with them."""
    yield from found.faults
    yield from _missing(found)
    try:
        indexed = set(workspace.index.documents())
    except StoreError as error:
        yield StoreFault(
            kind="index",
            what=error.where,
            why=f"{error.what}: {error.why}",
            next_step=error.next_step,  # a rebuild where it is corrupt; room, or a writable folder, where it is not
        )
        return
    there = {digest for digest, one in found.held.items() if one.schema in KINDS}
    unread = {fault.what for fault in found.faults}
    if there != indexed - unread:
        yield StoreFault(
            kind="index",
            what=str(workspace.root / "index.sqlite"),
            why="; ".join(
                f"{told}: {count}"
                for told, count in (
                    ("documents that it lacks", len(there - indexed)),
                    ("documents that it lists and that are gone", len(indexed - unread - there)),
                )
                if count
            ),
            next_step="tilegate store rebuild",
        )


def leftovers(*folders: Path) -> Iterator[tuple[Path, int, int]]:
    """Files that were being written: path, size in bytes, and when they were last changed (ns of the epoch)."""
    for folder in folders:
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name.startswith(TEMPORARY):
                try:
                    status = path.lstat()
                except FileNotFoundError:
                    continue  # its writer has just given it its name
                if stat.S_ISREG(status.st_mode):
                    yield path, status.st_size, status.st_ctime_ns


def _held(data: bytes, where: str) -> Held:
    schema = peek_schema(data) or ""
    if not schema.startswith("tilegate."):
        return Held()
    if schema not in KNOWN:
        raise SchemaError(f"a record of schema {schema[:64]}", where=where, why="no record of this version")
    return held_of(decode(KNOWN[schema], data, where=where))


def _unreadable(error: StoreError | RecordError, digest: str) -> StoreFault:
    if isinstance(error, RecordError):
        next_step = f"use the tilegate that wrote it; what it says is not counted here ({error.where})"
        return StoreFault(kind="unknown", what=digest, why=f"{error.what}: {error.why}", next_step=next_step)
    next_step = f"{_COPY}; without one, remove {error.where}; {_AGAIN}"
    return StoreFault(kind="corrupt", what=digest, why=error.why, next_step=next_step)


def _strangers(folder: Path) -> Iterator[StoreFault]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not _HEX.fullmatch(path.name) and not path.name.startswith(TEMPORARY):
            yield StoreFault(
                kind="unknown",
                what=str(path),
                why="its name is no digest: no blob of a workspace",
                next_step="move it away",
            )


def _missing(found: Scan) -> Iterator[StoreFault]:
    there = {*found.held, *(one.contract for one in found.held.values()), *(f.what for f in found.faults)}
    named: dict[str, tuple[str, list[str]]] = {}
    for digest, one in found.held.items():
        for role, wanted in one.names:
            if wanted not in there:
                named.setdefault(wanted, (role, []))[1].append(f"{one.schema} {digest}")
    for wanted, (role, namers) in sorted(named.items()):
        others = f" and {len(namers) - 1} more" if len(namers) > 1 else ""
        yield StoreFault(
            kind="missing",
            what=wanted,
            why=f"it is the {role} of {namers[0]}{others}",
            next_step=f"{_COPY}; without one, remove what names it; {_AGAIN}"
            if role in _MADE_ONCE
            else _BUILD,
        )
