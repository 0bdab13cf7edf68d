"""Content-addressed blobs: `<root>/blobs/sha256/<hex>`, whole or absent, verified on every read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from tilegate.errors import StoreError
from tilegate.records.canonical import Blob, Record, blob_of, decode, digest_of, encode, peek_schema
from tilegate.store.files import (
    BLOB_FOLDER,
    blob_name,
    ensure_whole,
    locked,
    make_folder,
    read_whole,
    store_error,
)

R = TypeVar("R", bound=Record)

_HEX = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """The content of one workspace, by digest. Nothing is created before the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / BLOB_FOLDER

    def put(self, data: bytes) -> Blob:
        """Store raw content: sources, IR, libraries. Storing it again changes nothing.

        Content that calls itself one of our records is refused: a job's output would otherwise be taken
        for evidence when the index is rebuilt from the blobs. Records come in through `put_record`.

        Raises:
            StoreError: the disk does not take it, or it claims a schema of tilegate.
        """
        claimed = peek_schema(data) or ""
        if claimed.startswith("tilegate."):
            raise StoreError(
                f"raw content that calls itself a {claimed[:64]}",
                where=digest_of(data),
                why="it would be taken for a record of this workspace, which it has not earned",
                next_step="look at where it came from; a record of ours is stored as a record",
            )
        return self._put(data)

    def put_record(self, record: Record) -> Blob:
        """Store a record under the digest of its canonical bytes.

        Raises:
            RecordError: the record cannot be written faithfully.
            StoreError: the disk does not take it.
        """
        return self._put(encode(record))

    def get(self, digest: str) -> bytes:
        """The content under a digest, hashed again.

        Raises:
            StoreError: missing, unreadable, or not the content that the digest names.
        """
        path = self.path(digest)
        try:
            data = read_whole(self._root, blob_name(digest))
        except FileNotFoundError:
            raise StoreError(
                f"the workspace does not hold {digest}",
                where=str(path),
                why="it was never stored here, or somebody removed it",
                next_step="tilegate store check says what names it, and whether tilegate build makes it again",
            ) from None
        except OSError as error:
            raise store_error(
                error,
                what=f"cannot read {digest}",
                where=path,
                next_step="mend the workspace folder (blobs are plain files), then tilegate store check",
            ) from None
        found = digest_of(data)
        if found != digest:
            raise StoreError(
                f"the blob {digest} is corrupt",
                where=str(path),
                why=f"its content has the digest {found}",
                next_step="tilegate store check says what to do about it",
            )
        return data

    def get_record(self, kind: type[R], digest: str) -> R:
        """The record under a digest.

        Raises:
            StoreError: as `get`.
            SchemaError: a record of another schema or version.
            RecordError: not a record of this kind.
        """
        return decode(kind, self.get(digest), where=str(self.path(digest)))

    def has(self, digest: str) -> bool:
        """Whether a file stands under the digest; `get` says whether it is the right one."""
        path = self.path(digest)
        return path.is_file() and not path.is_symlink()

    def path(self, digest: str) -> Path:
        """Where the content of a digest stands, for people and messages.

        Raises:
            StoreError: not a digest.
        """
        try:
            return self._root / blob_name(digest)
        except ValueError as error:
            raise StoreError(
                str(error),
                where=str(self._folder),
                next_step="a digest is sha256: and 64 hexadecimal digits, in lower case",
            ) from None

    def written_ns(self, digest: str) -> int | None:
        """When the content was first written, in nanoseconds of the epoch; None where there is none."""
        try:
            return self.path(digest).lstat().st_mtime_ns
        except FileNotFoundError:
            return None

    def __iter__(self) -> Iterator[str]:
        """Digests, oldest file first. A copy of the workspace without its file times is in order of digest."""
        aged = [(self.written_ns(digest), digest) for digest in self._digests()]
        return iter([digest for ns, digest in sorted((ns, d) for ns, d in aged if ns is not None)])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep `store.gc` out, for a span in which blobs are found and then read.

        Others may do the same meanwhile, and so may the caller again. What is not there needs no holding.
        """
        with locked(self._folder, alone=False) if self._folder.is_dir() else nullcontext():
            yield

    @contextmanager
    def held_to_write(self) -> Iterator[None]:
        """As `held`, for a span in which blobs and the record that names them are written.

        Raises:
            StoreError: the workspace cannot be made.
        """
        try:
            make_folder(self._folder)
        except OSError as error:
            raise _unwritable(error, self._folder) from None
        with self.held():
            yield

    @contextmanager
    def held_alone(self, wait_s: float = 30.0) -> Iterator[None]:
        """Nobody else holds the workspace meanwhile, so nothing is written.

        Raises:
            StoreError: others hold it for longer than `wait_s`.
        """
        with locked(self._folder, alone=True, wait_s=wait_s) if self._folder.is_dir() else nullcontext():
            yield

    def _digests(self) -> list[str]:
        try:
            return [f"sha256:{path.name}" for path in self._folder.iterdir() if _HEX.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise store_error(
                error,
                what="cannot list the blobs of the workspace",
                where=self._folder,
                next_step="move away what stands there, or make it a folder that can be read",
            ) from None

    def _put(self, data: bytes) -> Blob:
        blob = blob_of(data)
        # Content that is there already must not go between our look at it and its being young again.
        with self.held_to_write():
            try:
                ensure_whole(self._root, blob_name(blob.digest), data)
            except OSError as error:
                raise _unwritable(error, self.path(blob.digest)) from None
        return blob


def _unwritable(error: OSError, where: Path) -> StoreError:
    return store_error(
        error,
        what="cannot write to the workspace",
        where=where,
        next_step="make room there, or make it writable",
    )
