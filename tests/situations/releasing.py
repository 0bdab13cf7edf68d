"""A release that is not what it says it is: nothing of it is opened."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from tests.situations import workspace
from tests.situations.place import Place, Seen, situation
from tilegate.records.canonical import Record, blob_of, decode, encode
from tilegate.records.release import Release
from tilegate.store.layout import Layout, OciIndex, OciManifest

USE = 'tilegate.use("release", allow_unsigned=True)'


def file_of(place: Place, digest: str) -> Path:
    """The file of a blob of the release, made writable."""
    path = place.project / "release/blobs/sha256" / digest.removeprefix("sha256:")
    path.chmod(0o644)
    return path


def library(place: Place) -> Path:
    """The file of the only library of a release."""
    workspace.release(place)
    statement = decode(Release, Layout(place.project / "release").open_statement(), where="release")
    (candidate,) = statement.candidates
    return file_of(place, candidate.library.digest)


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def restate(place: Place, old: bytes, new: bytes) -> None:
    """Change the statement of the release, and every digest on the way to it."""
    root = place.project / "release"
    index = decode(OciIndex, (root / "index.json").read_bytes(), where="index")
    (described,) = index.manifests
    manifest = decode(OciManifest, file_of(place, described.digest).read_bytes(), where="manifest")

    def write(data: bytes) -> dict[str, object]:
        blob = blob_of(data)
        (root / "blobs/sha256" / blob.digest.removeprefix("sha256:")).write_bytes(data)
        return {"digest": blob.digest, "size": blob.size}

    def changed(record: Record, data: bytes) -> Record:
        return structs.replace(record, **write(data))

    config = changed(manifest.config, Layout(root).open_statement().replace(old, new))
    manifest = structs.replace(manifest, config=config)
    index = structs.replace(index, manifests=(changed(described, encode(manifest)),))
    (root / "index.json").chmod(0o644)
    (root / "index.json").write_bytes(encode(index))


@situation("No release to use")
def nothing_to_use(place: Place) -> Seen:
    """A slip in the folder's name."""
    return place.python('tilegate.use("relase", allow_unsigned=True)')


@situation("An unsigned release")
def unsigned(place: Place) -> Seen:
    """Releases are not signed yet, and whoever uses one says that this is known."""
    workspace.release(place)
    return place.python('tilegate.use("release")')


@situation("A flipped bit")
def flipped(place: Place) -> Seen:
    """In the middle of a library."""
    flip(library(place))
    return place.python(USE)


@situation("A flipped bit, seen by a command")
def flipped_status(place: Place) -> Seen:
    """As before."""
    flip(library(place))
    return place.type("tilegate status")


@situation("A truncated file")
def truncated(place: Place) -> Seen:
    """A library lost its second half."""
    path = library(place)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return place.python(USE)


@situation("A missing file")
def missing(place: Place) -> Seen:
    """A library is gone."""
    library(place).unlink()
    return place.python(USE)


@situation("A symbolic link")
def link(place: Place) -> Seen:
    """To the very bytes that the release lists, where a library belongs."""
    path = library(place)
    path.rename(place.root / "elsewhere")
    path.symlink_to(place.root / "elsewhere")
    return place.python(USE)


@situation("An edited index.json")
def edited(place: Place) -> Seen:
    """An editor put spaces into it."""
    workspace.release(place)
    index = place.project / "release/index.json"
    index.chmod(0o644)
    index.write_text(index.read_text().replace(",", ", "))
    return place.python(USE)


@situation("A release of another schema version")
def another_schema(place: Place) -> Seen:
    """Another version of tilegate wrote the statement."""
    workspace.release(place)
    restate(place, b"tilegate.release/1", b"tilegate.release/0")
    return place.python(USE)


@situation("A statement that contradicts itself")
def contradiction(place: Place) -> Seen:
    """Its candidate has no shape class left."""
    workspace.release(place)
    statement = decode(Release, Layout(place.project / "release").open_statement(), where="release")
    (candidate,) = statement.candidates
    bare = structs.replace(statement, candidates=(structs.replace(candidate, classes=()),))
    restate(place, encode(statement), encode(bare))
    return place.python(USE)


@situation("A statement that contradicts an artifact")
def disagreement(place: Place) -> Seen:
    """It has a shape class over an axis that the artifact does not have."""
    workspace.release(place)
    restate(place, b'"axes":{"n"', b'"axes":{"m"')
    return place.python(USE)


@situation("A folder that belongs to something else")
def foreign_folder(place: Place) -> Seen:
    """`site/` holds an index.json of another kind."""
    workspace.evaluate(place)
    (place.project / "site").mkdir()
    (place.project / "site/index.json").write_text("{}")
    return place.type("tilegate promote --release site")
