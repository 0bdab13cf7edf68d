"""One encoding and one decoder for every record: canonical JSON, strict types, schema versions.

Laws (proved in tests/test_records.py):

1. Round trip: `decode(type(r), encode(r)) == r`.
2. Injective: two records that differ have bytes that differ.
3. Canonical: `decode` accepts only the bytes that `encode` writes. Duplicate keys, white space, another
   key order, another spelling of a number and unknown fields are all refused.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from tilegate.errors import RecordError, SchemaError

Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
"""`sha256:` and 64 hexadecimal digits, as OCI writes it."""

Name = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,63}\Z")]
"""An identifier: operators, kernels, tensors, axes, attributes."""


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen value. Equality is by content; nothing in it is ever pickled."""

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} is not pickled: encode it with tilegate.records.canonical")


class Document(Record, frozen=True, tag_field="schema"):
    """A record that reaches disk or wire on its own: it names its schema and version."""


class Blob(Record, frozen=True):
    """A piece of content by digest. `size` is in bytes."""

    digest: Digest
    size: int


R = TypeVar("R", bound=Record)


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def blob_of(data: bytes) -> Blob:
    return Blob(digest=digest_of(data), size=len(data))


def encode(record: Record) -> bytes:
    """The canonical bytes of a record.

    Raises:
        RecordError: a field holds what its type does not allow (Struct constructors do not look), or a
            number that JSON cannot carry (NaN, infinity).
    """
    first = _write(record)
    back = _read(type(record), first, where=f"a {type(record).__name__} about to be written")
    if back != record:
        raise RecordError(
            f"a {type(record).__name__} would not survive being written",
            why="a field holds a NaN, an infinity, or a value of another type than declared",
        )
    return _write(back)


def decode(kind: type[R], data: bytes, *, where: str) -> R:
    """The record that these bytes are, and no other reading of them.

    Args:
        kind: the record type expected.
        data: the whole content.
        where: named in the error: a path or a digest.

    Raises:
        SchemaError: another schema or version.
        RecordError: not canonical, or not of this type.
    """
    record = _read(kind, data, where=where)
    if _write(record) != data:
        raise RecordError(
            f"the content is not a canonical {kind.__name__}",
            where=where,
            why="the bytes decode, but are not the ones that tilegate writes: an edited or foreign record",
            next_step="take the record from where it was made again; records are never edited by hand",
        )
    return record


def schema_of(kind: type[Record]) -> str | None:
    """`tilegate.release/1` for a document, None for a record without a schema of its own."""
    tag = kind.__struct_config__.tag
    return tag if isinstance(tag, str) else None


def peek_schema(data: bytes) -> str | None:
    """The schema that some bytes claim, or None where they claim none."""
    try:
        return msgspec.json.decode(data, type=_Peek).schema
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class _Peek(Struct):
    schema: str | None = None


def _write(record: Record) -> bytes:
    try:
        return msgspec.json.encode(record, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RecordError(f"a {type(record).__name__} cannot be written", why=str(error)) from None


def _read(kind: type[R], data: bytes, *, where: str) -> R:
    expected = schema_of(kind)
    claimed = peek_schema(data) if expected else None
    if expected and claimed and claimed != expected:
        raise SchemaError(
            f"a record of schema {claimed[:64]}, where {expected} is read",
            where=where,
            why="it was written by another version of tilegate, or is another record",
            next_step="use the tilegate that wrote it, or build and evaluate again with this one",
        )
    try:
        return msgspec.json.decode(data, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"the content is not a {kind.__name__}",
            where=where,
            why=str(error),
            next_step="take the record from where it was made again; records are never edited by hand",
        ) from None
