"""One file with a record and the blobs that it names: how a bundle travels out and evidence travels back.

    parcel = frames, as jobs send them: `index` with the record, then each blob under its digest, then the end

The reader trusts nothing: sizes are bounded, a blob must be what its name says, and no name comes twice.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from tilegate.errors import ToolError, TrustError
from tilegate.records.canonical import Document, decode, digest_of, encode
from tilegate.sandbox import frames

INDEX = "index"
MAX_INDEX_BYTES = 64 * 2**20
MAX_FRAMES = 200_000
_CHUNK = 1 << 20

D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader takes."""

    blob_bytes: int
    total_bytes: int


def write_parcel(path: Path, index: Document, blobs: Iterable[bytes]) -> int:
    """Write a parcel whole or not at all; its size in bytes. A blob that is given twice stands in it once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    written: set[str] = set()
    try:
        with os.fdopen(descriptor, "wb") as file:
            _frame(file, INDEX, encode(index))
            for data in blobs:
                digest = digest_of(data)
                if digest not in written:
                    written.add(digest)
                    _frame(file, _named(digest), data)
            _frame(file, frames.END, b"")
            size = file.tell()
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return size


def read_parcel(path: Path, kind: type[D], limits: Limits) -> tuple[D, dict[str, bytes]]:
    """The record of a parcel and its blobs by digest.

    Raises:
        ToolError: the file cannot be read.
        TrustError: it is none, or is not whole, or holds what it should not.
        RecordError: its record is of another kind.
    """
    reader = frames.FrameReader(
        frame_bytes=max(limits.blob_bytes, MAX_INDEX_BYTES),
        total_bytes=limits.total_bytes,
        frames=MAX_FRAMES,
    )
    found: dict[str, bytes] = {}
    try:
        with path.open("rb") as file:
            while reader.fault is None and (piece := file.read(_CHUNK)):
                for name, data in reader.feed(piece):
                    _take(found, name, data, path)
    except OSError as error:
        raise ToolError(
            "a file cannot be read", where=str(path), why=error.strerror or type(error).__name__
        ) from None
    fault = reader.close()
    if fault is not None:
        raise _unfit(path, fault.why)
    if INDEX not in found:
        raise _unfit(path, "it holds nothing")
    index = decode(kind, found.pop(INDEX), where=str(path))
    return index, {f"sha256:{name}": data for name, data in found.items()}


def only_named(path: Path, blobs: Mapping[str, bytes], named: Iterable[str]) -> None:
    """Nobody asked for what a parcel's record does not name.

    Raises:
        TrustError: there is such a blob.
    """
    foreign = set(blobs) - set(named)
    if foreign:
        raise _unfit(path, f"{len(foreign)} blobs in it are named by nothing, {min(foreign)[:19]} among them")


def _take(found: dict[str, bytes], name: str, data: bytes, path: Path) -> None:
    if (name == INDEX) == bool(found):
        raise _unfit(
            path, "its record does not stand in front, once" if name == INDEX else "no record in front"
        )
    if name in found:
        raise _unfit(path, f"blob {name[:12]} comes twice")
    if name != INDEX and _named(digest_of(data)) != name:
        raise _unfit(path, f"blob {name[:12]} is not what its name says")
    found[name] = data


def _unfit(path: Path, why: str) -> TrustError:
    return TrustError(
        "the file is not one that tilegate wrote, or it was changed or cut short on its way",
        where=str(path),
        why=why,
        next_step="copy it again from where it was made, or make it again",
    )


def _named(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _frame(file: BinaryIO, name: str, data: bytes) -> None:
    file.write(frames.preamble(name, len(data)))
    file.write(data)
