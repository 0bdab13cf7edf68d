"""The release on disk: an OCI image layout that holds the statement and every blob it lists.

    oci-layout            exactly `OCI_LAYOUT`
    index.json            one descriptor, of the OCI manifest; replaced last and atomically: the switch
    blobs/sha256/<hex>    the OCI manifest; its config, the release statement; its layers, all other blobs

All JSON here is canonical and has no annotations, so there is no byte that may change unnoticed. Blobs of
earlier releases stay: rolling back is writing an earlier statement again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from tilegate.errors import RecordError, TrustError, UsageError
from tilegate.records.canonical import Blob, Digest, Record, blob_of, decode, digest_of, encode
from tilegate.records.release import Release
from tilegate.store.files import blob_name, ensure_whole, read_whole, store_error

OCI_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'

LayerType = Literal[
    "application/vnd.tilegate.contract.v1+json",
    "application/vnd.tilegate.manifest.v1+json",
    "application/vnd.tilegate.library.v1",
    "application/vnd.tilegate.evaluation.v1+json",
]

MAX_JSON_BYTES = 4 << 20
"""Of index.json and the OCI manifest: about 20,000 layers. They are read before anything is trusted."""

MAX_STATEMENT_BYTES = 64 << 20
"""Of the statement, likewise: shape classes make it larger than the OCI manifest."""

R = TypeVar("R", bound=Record)
D = TypeVar("D", "ManifestDescriptor", "StatementDescriptor")


class Descriptor(Record, frozen=True, rename="camel"):
    """An OCI content descriptor; `size` in bytes."""

    digest: Digest
    size: int

    @property
    def blob(self) -> Blob:
        return Blob(digest=self.digest, size=self.size)


class ManifestDescriptor(Descriptor, frozen=True):
    media_type: Literal["application/vnd.oci.image.manifest.v1+json"] = (
        "application/vnd.oci.image.manifest.v1+json"
    )


class StatementDescriptor(Descriptor, frozen=True):
    media_type: Literal["application/vnd.tilegate.statement.v1+json"] = (
        "application/vnd.tilegate.statement.v1+json"
    )


class Layer(Descriptor, frozen=True):
    media_type: LayerType


class OciIndex(Record, frozen=True, rename="camel"):
    """index.json: exactly one manifest."""

    manifests: tuple[ManifestDescriptor]
    media_type: Literal["application/vnd.oci.image.index.v1+json"] = "application/vnd.oci.image.index.v1+json"
    schema_version: Literal[2] = 2


class OciManifest(Record, frozen=True, rename="camel"):
    config: StatementDescriptor
    layers: tuple[Layer, ...]
    artifact_type: Literal["application/vnd.tilegate.release.v1+json"] = (
        "application/vnd.tilegate.release.v1+json"
    )
    media_type: Literal["application/vnd.oci.image.manifest.v1+json"] = (
        "application/vnd.oci.image.manifest.v1+json"
    )
    schema_version: Literal[2] = 2


def layers_of(release: Release) -> tuple[Layer, ...]:
    """Every blob that a release lists, once, in order of first mention."""
    layers: dict[str, Layer] = {}
    for layer in _mentions(release):
        layers.setdefault(layer.digest, layer)
    return tuple(layers.values())


def write_layout(root: Path, statement: Release, blobs: Mapping[str, bytes]) -> None:
    """Make a release the current one of a layout folder, which is created if it is not there.

    Args:
        root: the layout folder.
        statement: the release.
        blobs: content by digest; may hold more than the release lists.

    Raises:
        TrustError: a listed blob is missing from `blobs`, or is not the listed bytes. Nothing is written.
        UsageError: the folder has an index.json that belongs to something else.
        StoreError: the disk does not take it. The current release is as it was.
    """
    contents = {layer.digest: _content(layer.blob, blobs) for layer in _mentions(statement)}
    if (root / "index.json").exists() and not (root / "oci-layout").exists():
        raise UsageError(
            "the folder for the release belongs to something else",
            where=str(root.absolute()),
            why="it holds an index.json and no oci-layout",
            next_step="name a folder of its own for the release",
        )
    config = encode(statement)
    manifest = encode(
        OciManifest(config=_described(StatementDescriptor, config), layers=layers_of(statement))
    )
    index = encode(OciIndex(manifests=(_described(ManifestDescriptor, manifest),)))
    files = {
        "oci-layout": OCI_LAYOUT,
        **{blob_name(digest): content for digest, content in contents.items()},
        blob_name(digest_of(config)): config,
        blob_name(digest_of(manifest)): manifest,
        "index.json": index,
    }
    for name, content in files.items():
        _write(root, name, content)


class Layout:
    """A release folder as found: every byte that leaves here was read once and agrees with its digest."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open_statement(self) -> bytes:
        """The bytes of the release statement, for `trust.verify`: whole, but not yet believed.

        1. The folder is there and is meant to be a layout.
        2. oci-layout holds the only bytes it may hold.
        3. index.json is canonical and names one OCI manifest.
        4. That manifest has the digest and size named, is canonical, and is of a tilegate release.
        5. Its config, the statement, has the digest and size named there.

        Raises:
            UsageError: there is no release.
            TrustError: something is missing, damaged, replaced by a link or not canonical.
        """
        if not any((self._root / name).exists() for name in ("oci-layout", "index.json", "blobs")):  # (1)
            raise UsageError(
                "there is no release",
                where=str(self._root.absolute()),
                why="the folder is missing or holds nothing of a release",
                next_step="tilegate promote, or name the folder that it wrote",
            )
        if self._read("oci-layout", len(OCI_LAYOUT)) != OCI_LAYOUT:  # (2)
            raise _broken("oci-layout", f"it is not exactly {OCI_LAYOUT.decode()}")
        index = _decode(OciIndex, self._read("index.json", MAX_JSON_BYTES), "index.json")  # (3)
        (found,) = index.manifests
        manifest = _decode(OciManifest, self._open(found.blob, MAX_JSON_BYTES), _name(found.digest))  # (4)
        return self._open(manifest.config.blob, MAX_STATEMENT_BYTES)  # (5)

    def open_blob(self, blob: Blob) -> bytes:
        """The content of a blob that a verified release lists.

        Raises:
            TrustError: missing, of another size or digest, or no regular file.
        """
        return self._open(blob, blob.size)

    def _open(self, blob: Blob, max_bytes: int) -> bytes:
        name = _name(blob.digest)
        expected = f"expected {blob.digest} with {blob.size} bytes"
        if blob.size > max_bytes:
            raise _broken(name, f"{expected}, which is more than the {max_bytes} that may be read")
        data = self._read(name, blob.size, expected)
        found = blob_of(data)
        if found != blob:
            raise _broken(name, f"{expected}, found {found.digest} with {found.size} bytes")
        return data

    def _read(self, name: str, max_bytes: int, expected: str = "expected a file") -> bytes:
        try:
            return read_whole(self._root, name, max_bytes)
        except FileNotFoundError:
            raise _broken(name, f"{expected}, found nothing") from None
        except OSError as error:
            raise _broken(name, f"{expected}: {error.strerror or error}") from None


def _mentions(release: Release) -> Iterator[Layer]:
    for blob in release.contracts:
        yield _layer(blob, "application/vnd.tilegate.contract.v1+json")
    for candidate in release.candidates:
        yield _layer(candidate.manifest, "application/vnd.tilegate.manifest.v1+json")
        yield _layer(candidate.library, "application/vnd.tilegate.library.v1")
        for blob in candidate.evaluations:
            yield _layer(blob, "application/vnd.tilegate.evaluation.v1+json")


def _layer(blob: Blob, media_type: LayerType) -> Layer:
    return Layer(digest=blob.digest, size=blob.size, media_type=media_type)


def _described(kind: type[D], data: bytes) -> D:
    return kind(digest=digest_of(data), size=len(data))


def _content(blob: Blob, blobs: Mapping[str, bytes]) -> bytes:
    name = _name(blob.digest)
    data = blobs.get(blob.digest)
    if data is None:
        raise _broken(name, f"the release lists {blob.digest}, and its content was not given")
    found = blob_of(data)
    if found != blob:
        raise _broken(
            name,
            f"the release lists {blob.digest} with {blob.size} bytes, "
            f"and was given {found.digest} with {found.size} bytes",
        )
    return data


def _write(root: Path, name: str, data: bytes) -> None:
    try:
        ensure_whole(root, name, data)
    except OSError as error:
        raise store_error(
            error,
            what="cannot write the release",
            where=root / name,
            next_step="make room there, make it writable, or name another folder for the release",
        ) from None


def _decode(kind: type[R], data: bytes, name: str) -> R:
    try:
        return decode(kind, data, where=name)
    except RecordError as error:
        raise _broken(name, f"{error.what}: {error.why}") from None


def _name(digest: str) -> str:
    try:
        return blob_name(digest)
    except ValueError as error:
        raise _broken("blobs/sha256", str(error)) from None


def _broken(name: str, why: str) -> TrustError:
    return TrustError(
        "the release is damaged",
        where=name,
        why=why,
        next_step="take the release again from where it was promoted, or run tilegate promote",
    )
