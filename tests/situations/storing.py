"""What may be wrong with the workspace, and with what it holds."""

from __future__ import annotations

import contextlib
import sqlite3
from functools import partial, partialmethod
from pathlib import Path
from unittest import mock

from tests.situations import workspace
from tests.situations.place import Place, Seen, situation
from tilegate.records.canonical import digest_of
from tilegate.store import workspace as store
from tilegate.store.blobs import Blobs
from tilegate.store.files import locked as holding
from tilegate.store.index import Index


def manifest_file(place: Place) -> Path:
    """The file of the only manifest of an evaluated project, made writable."""
    opened = workspace.evaluate(place)
    ((digest, _),) = opened.workspace.manifests()
    path = opened.workspace.blobs.path(digest)
    path.chmod(0o644)
    return path


def cut(place: Place) -> None:
    """Take the last byte of a record."""
    path = manifest_file(place)
    path.write_bytes(path.read_bytes()[:-1])


def planted(place: Place, data: bytes) -> None:
    """Put a file under its right digest, past every check."""
    opened = workspace.evaluate(place)
    opened.workspace.blobs.path(digest_of(data)).write_bytes(data)


@situation("A file where the workspace belongs")
def a_file(place: Place) -> Seen:
    """`.tilegate` is one. The build tells it before the work is begun."""
    workspace.declared(place)
    (place.project / ".tilegate").write_text("")
    return place.type("tilegate build")


@situation("A file where the workspace belongs, read")
def a_file_read(place: Place) -> Seen:
    """As before."""
    workspace.declared(place)
    (place.project / ".tilegate").write_text("")
    return place.type("tilegate status")


@situation("An index that another process is changing")
def locked(place: Place) -> Seen:
    """It is in no hurry. The patience is 0.1 s here, and 30 s otherwise."""
    workspace.evaluate(place)
    place.during(mock.patch.object(store, "Index", partial(Index, wait_s=0.1)))
    other = sqlite3.connect(place.project / ".tilegate/index.sqlite", isolation_level=None)
    place.during(contextlib.closing(other))
    other.execute("BEGIN IMMEDIATE")
    return place.type("tilegate store rebuild")


@situation("A workspace that another command is writing to")
def held(place: Place) -> Seen:
    """`store` commands want it for themselves. The patience is 0.1 s here, and 30 s otherwise."""
    workspace.evaluate(place)
    place.during(mock.patch.object(Blobs, "held_alone", partialmethod(Blobs.held_alone, wait_s=0.1)))
    place.during(holding(place.project / ".tilegate/blobs/sha256", alone=False))
    return place.type("tilegate store gc")


@situation("An index that is no database")
def corrupt_index(place: Place) -> Seen:
    """Something was written over it."""
    workspace.evaluate(place)
    (place.project / ".tilegate/index.sqlite").write_text("not a database " * 100)
    return place.type("tilegate status")


@situation("A corrupt record")
def corrupt_blob(place: Place) -> Seen:
    """It lost its last byte."""
    cut(place)
    return place.type("tilegate status")


@situation("A corrupt record, looked into")
def corrupt_blob_check(place: Place) -> Seen:
    """As before."""
    cut(place)
    return place.type("tilegate store check")


@situation("A missing record")
def missing_blob(place: Place) -> Seen:
    """Somebody removed its file."""
    manifest_file(place).unlink()
    return place.type("tilegate promote")


@situation("A missing record, looked into")
def missing_blob_check(place: Place) -> Seen:
    """As before."""
    manifest_file(place).unlink()
    return place.type("tilegate store check")


@situation("A record of another schema version")
def foreign_schema(place: Place) -> Seen:
    """Another version of tilegate worked in the same workspace."""
    planted(place, b'{"schema":"tilegate.evaluation/0"}')
    return place.type("tilegate store check")


@situation("A record that is none")
def damaged(place: Place) -> Seen:
    """It claims a schema of ours, and lacks its fields. The index has to be filled anew."""
    planted(place, b'{"schema":"tilegate.manifest/3"}')
    (place.project / ".tilegate/index.sqlite").unlink()
    return place.type("tilegate status")


@situation("A release to keep that is not there")
def nothing_to_keep(place: Place) -> Seen:
    """A slip behind --keep must not remove what it was to keep."""
    workspace.evaluate(place)
    (place.project / "old").mkdir()
    return place.type("tilegate store gc --keep old")
