"""A release folder: whatever is done to one byte, file or name of it is noticed, and says where."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegate.errors import StoreError, TrustError, UsageError
from tilegate.records.canonical import Blob, blob_of, digest_of, encode
from tilegate.records.policy import Policy
from tilegate.records.release import Candidate, Release
from tilegate.records.shape import Range, ShapeClass
from tilegate.records.target import DeviceClass, Target
from tilegate.store.files import blob_name
from tilegate.store.layout import Layout, layers_of, write_layout

CONTENTS = {digest_of(data): data for data in (b"the contract", b"the manifest", b"the library", b"evidence")}
CONTRACT, MANIFEST, LIBRARY, EVALUATION = (blob_of(data) for data in CONTENTS.values())


def candidate(**changes):
    fields = {
        "operator": "rms_norm",
        "contract": CONTRACT.digest,
        "kernel": "rms_norm_rows",
        "target": Target(backend="cpu", arch="x86-64-v3"),
        "manifest": MANIFEST,
        "library": LIBRARY,
        "evaluations": (EVALUATION,),
        "devices": (DeviceClass(backend="cpu", arch="x86-64-v3", model="a model"),),
        "classes": (ShapeClass(axes={"tokens": Range(start=1, stop=64)}, alignment_bytes=4),),
    }
    return Candidate(**{**fields, **changes})


def release(version=1, *candidates):
    chosen = candidates or (candidate(),)
    return Release(version=version, policy=Policy(), contracts=(CONTRACT,), candidates=chosen)


def open_all(root):
    """What a serving machine does: the statement, then everything it lists."""
    layout = Layout(root)
    statement = layout.open_statement()
    return statement, [layout.open_blob(layer.blob) for layer in layers_of(release())]


def files(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def replace(path, data):
    path.unlink()
    path.write_bytes(data)


@pytest.fixture
def root(tmp_path):
    write_layout(tmp_path / "release", release(), CONTENTS)
    return tmp_path / "release"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One release for many single flips, each of which is taken back."""
    root = tmp_path_factory.mktemp("flips") / "release"
    write_layout(root, release(), CONTENTS)
    return root


def test_what_was_promoted_is_what_is_opened(root):
    statement, contents = open_all(root)
    assert statement == encode(release())
    assert contents == [b"the contract", b"the manifest", b"the library", b"evidence"]


def test_the_folder_is_what_oci_tools_expect(root):
    assert (root / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'
    index = json.loads((root / "index.json").read_bytes())
    assert index["schemaVersion"] == 2
    (found,) = index["manifests"]
    assert found["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    manifest = json.loads((root / blob_name(found["digest"])).read_bytes())
    assert manifest["artifactType"] == "application/vnd.tilegate.release.v1+json"
    assert manifest["config"] == {
        "digest": digest_of(encode(release())),
        "mediaType": "application/vnd.tilegate.statement.v1+json",
        "size": len(encode(release())),
    }
    assert [(layer["digest"], layer["mediaType"]) for layer in manifest["layers"]] == [
        (CONTRACT.digest, "application/vnd.tilegate.contract.v1+json"),
        (MANIFEST.digest, "application/vnd.tilegate.manifest.v1+json"),
        (LIBRARY.digest, "application/vnd.tilegate.library.v1"),
        (EVALUATION.digest, "application/vnd.tilegate.evaluation.v1+json"),
    ]


def test_the_release_can_be_read_by_others_than_its_maker(root):
    mask = os.umask(0)
    os.umask(mask)
    for name in files(root):
        assert (root / name).stat().st_mode & 0o777 == 0o444 & ~mask


def test_writing_the_same_release_again_changes_no_file(root):
    before = {name: (root / name).stat().st_mtime_ns for name in files(root)}
    write_layout(root, release(), CONTENTS)
    assert {name: (root / name).stat().st_mtime_ns for name in files(root)} == before


@settings(max_examples=300, deadline=None)
@given(data=st.data(), bit=st.integers(0, 7))
def test_any_flipped_bit_in_any_file_is_noticed_and_located(shared, data, bit):
    """Any single flipped bit in any file of a release is a TrustError that names a file of the release."""
    name = data.draw(st.sampled_from(files(shared)))
    content = (shared / name).read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[place] ^= 1 << bit
    replace(shared / name, flipped)
    try:
        with pytest.raises(TrustError) as caught:
            open_all(shared)
    finally:
        replace(shared / name, content)
    if name == "index.json":  # a flipped digest in it names a blob that is not there
        assert re.fullmatch(r"index\.json|blobs/sha256/[0-9a-f]{64}", caught.value.where)
    else:
        assert caught.value.where == name


@pytest.mark.parametrize("name", ["oci-layout", "index.json"])
def test_no_byte_of_the_small_files_is_free(shared, name):
    content = (shared / name).read_bytes()
    for place in range(len(content)):
        replace(shared / name, content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(TrustError):
            Layout(shared).open_statement()
    replace(shared / name, content)
    Layout(shared).open_statement()


def test_a_flipped_byte_names_the_digest_expected_and_the_one_found(root):
    replace(root / blob_name(LIBRARY.digest), b"the librarY")
    with pytest.raises(TrustError) as caught:
        open_all(root)
    assert caught.value.where == blob_name(LIBRARY.digest)
    assert LIBRARY.digest in str(caught.value)
    assert digest_of(b"the librarY") in str(caught.value)


ROLES = {
    "oci-layout": "oci-layout",
    "index.json": "index.json",
    "statement": blob_name(digest_of(encode(release()))),
    "contract": blob_name(CONTRACT.digest),
    "manifest": blob_name(MANIFEST.digest),
    "library": blob_name(LIBRARY.digest),
    "evaluation": blob_name(EVALUATION.digest),
}

roles = pytest.mark.parametrize("name", list(ROLES.values()), ids=list(ROLES))


@roles
def test_a_truncated_file_is_noticed(root, name):
    replace(root / name, (root / name).read_bytes()[:-1])
    with pytest.raises(TrustError) as caught:
        open_all(root)
    assert caught.value.where == name


@roles
def test_an_extended_file_is_noticed(root, name):
    replace(root / name, (root / name).read_bytes() + b"\n")
    with pytest.raises(TrustError) as caught:
        open_all(root)
    assert caught.value.where == name


@roles
def test_a_missing_file_is_noticed(root, name):
    (root / name).unlink()
    with pytest.raises(TrustError) as caught:
        open_all(root)
    assert caught.value.where == name


@roles
def test_a_symbolic_link_to_the_right_bytes_is_refused(root, name):
    elsewhere = root.parent / "elsewhere"
    (root / name).rename(elsewhere)
    (root / name).symlink_to(elsewhere)
    with pytest.raises(TrustError) as caught:
        open_all(root)
    assert caught.value.where == name
    assert "symbolic link" in caught.value.why


@roles
def test_a_fifo_or_folder_in_place_of_a_file_neither_hangs_nor_passes(root, name):
    (root / name).unlink()
    os.mkfifo(root / name)
    with pytest.raises(TrustError, match="not a regular file"):
        open_all(root)
    (root / name).unlink()
    (root / name).mkdir()
    with pytest.raises(TrustError, match="not a regular file"):
        open_all(root)


def test_a_blob_folder_behind_a_link_is_refused(root):
    (root / "blobs").rename(root.parent / "blobs")
    (root / "blobs").symlink_to(root.parent / "blobs")
    with pytest.raises(TrustError):
        open_all(root)


def test_a_release_reached_through_a_link_is_fine(root):
    (root.parent / "current").symlink_to(root)
    open_all(root.parent / "current")


def test_a_blob_listed_with_another_size_is_refused(root):
    for size in (LIBRARY.size - 1, LIBRARY.size + 1, 0, -1, 2**62):
        with pytest.raises(TrustError) as caught:
            Layout(root).open_blob(Blob(digest=LIBRARY.digest, size=size))
        assert caught.value.where == blob_name(LIBRARY.digest)
        assert LIBRARY.digest in caught.value.why


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:../../../../etc/passwd",
        "sha256:" + "a" * 63 + "/",
        "sha256:" + "a" * 64 + "\n",
        "sha256:" + "A" * 64,
        "a" * 64,
        "",
    ],
)
def test_a_digest_never_walks_out_of_the_blob_folder(root, digest):
    with pytest.raises(TrustError, match="not a sha256 digest"):
        Layout(root).open_blob(Blob(digest=digest, size=10))


def canonical(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


@pytest.mark.parametrize(
    "rewrite",
    [
        pytest.param(lambda v: json.dumps(dict(reversed(v.items())), separators=(",", ":")), id="reordered"),
        pytest.param(json.dumps, id="spaces"),
        pytest.param(lambda v: canonical({**v, "manifests": v["manifests"] * 2}), id="extra entry"),
        pytest.param(lambda v: canonical({**v, "manifests": []}), id="no entry"),
        pytest.param(lambda v: canonical({**v, "annotations": {}}), id="annotations"),
        pytest.param(lambda v: canonical(v)[:-1] + ',"schemaVersion":2}', id="duplicate key"),
        pytest.param(lambda v: canonical({**v, "schemaVersion": 3}), id="another schema"),
        pytest.param(lambda v: canonical({**v, "schemaVersion": 2.0}), id="another number"),
        pytest.param(lambda v: canonical({"manifests": v["manifests"]}), id="defaults left out"),
        pytest.param(lambda _: "[" * 100_000, id="deep"),
        pytest.param(lambda _: "", id="empty"),
        pytest.param(lambda _: " " * (5 << 20), id="huge"),
    ],
)
def test_an_index_that_says_it_otherwise_is_refused(root, rewrite):
    content = (root / "index.json").read_bytes()
    value = json.loads(content)
    assert canonical(value).encode() == content
    replace(root / "index.json", rewrite(value).encode())
    with pytest.raises(TrustError) as caught:
        Layout(root).open_statement()
    assert caught.value.where == "index.json"


def test_an_index_that_lists_a_huge_manifest_is_refused_before_it_is_read(root):
    text = (root / "index.json").read_text()
    replace(root / "index.json", re.sub(r'"size":\d+', '"size":99999999999', text).encode())
    with pytest.raises(TrustError, match="more than the 4194304"):
        Layout(root).open_statement()


def test_an_image_that_is_no_release_is_refused(root):
    """Digests all agree, and yet it is somebody's container image."""
    value = json.loads((root / "index.json").read_bytes())
    (found,) = value["manifests"]
    manifest = (root / blob_name(found["digest"])).read_bytes()
    manifest = manifest.replace(b"vnd.tilegate.release.v1", b"vnd.somebody.image.v1")
    name = blob_name(digest_of(manifest))
    (root / name).write_bytes(manifest)
    found.update(digest=digest_of(manifest), size=len(manifest))
    replace(root / "index.json", canonical(value).encode())
    with pytest.raises(TrustError) as caught:
        Layout(root).open_statement()
    assert caught.value.where == name


@pytest.mark.parametrize("make", [lambda _: None, Path.mkdir], ids=["missing", "empty"])
def test_no_release_at_all_asks_for_a_promotion(tmp_path, make):
    make(tmp_path / "release")
    with pytest.raises(UsageError) as caught:
        Layout(tmp_path / "release").open_statement()
    assert caught.value.next_step.startswith("tilegate promote")


KILLED_WHILE_PROMOTING = """
import resource, signal, sys
from pathlib import Path
from test_layout import CONTENTS, blob_of, candidate, digest_of, release, write_layout
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
library = b"x" * 100_001
newer = release(2, candidate(library=blob_of(library)))
write_layout(Path(sys.argv[1]), newer, {**CONTENTS, digest_of(library): library})
"""


def killed_while_promoting(root):
    """A promotion that the kernel kills while it writes a blob."""
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *sys.path])
    command = [sys.executable, "-c", KILLED_WHILE_PROMOTING, root]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == -signal.SIGXFSZ


def test_a_promotion_that_is_killed_leaves_the_release_before_it(root):
    killed_while_promoting(root)
    assert open_all(root)[0] == encode(release())


def test_a_first_promotion_that_is_killed_is_no_release_and_can_be_run_again(tmp_path):
    killed_while_promoting(tmp_path / "release")
    with pytest.raises(TrustError) as caught:
        Layout(tmp_path / "release").open_statement()
    assert caught.value.where == "index.json"
    write_layout(tmp_path / "release", release(), CONTENTS)
    assert open_all(tmp_path / "release")[0] == encode(release())


def test_blobs_of_earlier_releases_stay_for_rollback(root):
    second = b"another library"
    newer = release(2, candidate(library=blob_of(second)))
    write_layout(root, newer, {**CONTENTS, digest_of(second): second})
    assert Layout(root).open_statement() == encode(newer)
    write_layout(
        root, release(), {digest: Layout(root).open_blob(blob_of(d)) for digest, d in CONTENTS.items()}
    )
    assert open_all(root)[0] == encode(release())


def test_a_damaged_blob_is_mended_by_writing_the_release_again(root):
    replace(root / blob_name(LIBRARY.digest), b"the librarY")
    write_layout(root, release(), CONTENTS)
    open_all(root)


@pytest.mark.parametrize("lost", list(CONTENTS))
def test_a_release_without_one_of_its_blobs_is_never_begun(tmp_path, lost):
    contents = {digest: data for digest, data in CONTENTS.items() if digest != lost}
    with pytest.raises(TrustError, match=lost):
        write_layout(tmp_path / "release", release(), contents)
    assert not (tmp_path / "release").exists()


def test_a_release_that_lists_other_bytes_or_sizes_is_never_begun(tmp_path):
    with pytest.raises(TrustError, match=LIBRARY.digest):
        write_layout(tmp_path / "release", release(), {**CONTENTS, LIBRARY.digest: b"something else"})
    short = candidate(library=Blob(digest=LIBRARY.digest, size=LIBRARY.size - 1))
    for broken in (release(1, short), release(1, candidate(), short)):
        with pytest.raises(TrustError, match=LIBRARY.digest):
            write_layout(tmp_path / "release", broken, CONTENTS)
    assert not (tmp_path / "release").exists()


def test_somebody_elses_index_json_is_not_overwritten(tmp_path):
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(UsageError, match="something else"):
        write_layout(tmp_path, release(), CONTENTS)
    assert (tmp_path / "index.json").read_text() == "{}"


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as caught:
        write_layout(tmp_path / "file" / "release", release(), CONTENTS)
    assert str(tmp_path / "file" / "release") in caught.value.where
    assert caught.value.next_step
