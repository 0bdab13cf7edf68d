"""A release of which one byte was changed, or one part exchanged, is not opened; what was in force stays so.

What was exchanged is also tried with every digest made to fit, as somebody would who may write the folder:
releases are not signed yet, so what an artifact says of itself is all that is left to contradict.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner

import tilegate
from tests import world
from tilegate.cli import commands
from tilegate.errors import TrustError
from tilegate.records.canonical import blob_of, digest_of, encode
from tilegate.records.shape import Range
from tilegate.store.files import blob_name
from tilegate.store.layout import write_layout


@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="tampering_twice")
def twice(x):
    return 2 * x


X = torch.ones(4)


@pytest.fixture(scope="module")
def parts():
    return [world.part(twice.contract(), world.SCALE, f"FACTOR={factor}") for factor in (3, 5)]


@pytest.fixture(scope="module")
def good(parts, tmp_path_factory):
    root = tmp_path_factory.mktemp("good")
    world.write_parts(root, parts[0])
    return root


@pytest.fixture(params=["another release", "the references"])
def in_force(request, tmp_path, parts):
    """What answers before the tampered release is tried, and the factor that it gives."""
    if request.param == "another release":
        world.write_parts(tmp_path / "in-force", parts[1])
        tilegate.use(tmp_path / "in-force", allow_unsigned=True)
        yield 5
    else:
        yield 2
    tilegate.use(None)


def pieces(root):
    """The files of a release by what they are."""
    index = json.loads((root / "index.json").read_bytes())
    manifest = index["manifests"][0]["digest"]
    oci = json.loads((root / blob_name(manifest)).read_bytes())
    layers = {layer["mediaType"].split(".")[2]: layer["digest"] for layer in oci["layers"]}
    blobs = {"OCI manifest": manifest, "statement": oci["config"]["digest"], **layers}
    return {
        "index.json": "index.json",
        "oci-layout": "oci-layout",
        **{name: blob_name(digest) for name, digest in blobs.items()},
    }


def refused(root, factor):
    """The error of using a release that must not be used, and that the calls are answered as before."""
    with pytest.raises(TrustError) as caught:
        tilegate.use(root, allow_unsigned=True)
    assert twice(X).tolist() == [factor] * 4
    assert caught.value.next_step
    return caught.value


PIECES = ["index.json", "oci-layout", "OCI manifest", "statement", "contract", "manifest", "library"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_flipped_bit_anywhere_is_refused_with_the_place(piece, good, tmp_path, in_force):
    root = tmp_path / "copy"
    shutil.copytree(good, root)
    file = root / pieces(good)[piece]
    content = file.read_bytes()
    for at in sorted({0, 1, len(content) // 3, len(content) // 2, len(content) - 2, len(content) - 1}):
        for bit in (0, 5, 7):
            file.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            error = refused(root, in_force)
            assert (root / error.where).name == file.name or file.name == "index.json"
            assert not error.where.startswith("/"), "a place in the release, not on this machine"
    file.write_bytes(content)
    tilegate.use(root, allow_unsigned=True)
    assert twice(X).tolist() == [3] * 4


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "missing", "linked"])
def test_a_piece_that_is_cut_added_to_missing_or_a_link_is_refused(piece, damage, good, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(good, root)
    file = root / pieces(good)[piece]
    content = file.read_bytes()
    file.unlink()
    if damage == "linked":
        file.symlink_to(good / pieces(good)[piece])
    elif damage != "missing":
        changed = {"cut": content[:-1], "longer": content + b"\n", "empty": b""}
        file.write_bytes(changed[damage])
    refused(root, 2)


def exchanged(root, parts, **changes):
    """A release in which every digest and size fits, and one candidate is not what it says."""
    candidate = msgspec.structs.replace(parts[0].candidate, **changes)
    release = world.release_of([parts[0].contract], [candidate])
    contents = [encode(parts[0].contract)]
    for part in parts:
        contents += [encode(part.manifest), part.library]
    write_layout(root, release, {digest_of(data): data for data in contents})
    return root


def test_the_manifest_of_another_artifact_is_refused(parts, tmp_path, in_force):
    error = refused(exchanged(tmp_path / "x", parts, manifest=parts[1].candidate.manifest), in_force)
    assert parts[1].candidate.manifest.digest.partition(":")[2] in error.where


def test_the_library_of_another_artifact_is_refused(parts, tmp_path, in_force):
    error = refused(exchanged(tmp_path / "x", parts, library=parts[1].candidate.library), in_force)
    assert "disagree" in error.what


def test_a_library_that_its_manifest_was_made_to_name_is_found_by_its_identity(parts, tmp_path, in_force):
    """Manifest, statement and layout all agree on a library that was built as another artifact."""
    forged = msgspec.structs.replace(parts[0].manifest, library=parts[1].manifest.library)
    candidate = msgspec.structs.replace(
        parts[0].candidate, manifest=blob_of(encode(forged)), library=forged.library
    )
    contents = [encode(twice.contract()), encode(forged), parts[1].library]
    blobs = {digest_of(data): data for data in contents}
    write_layout(tmp_path / "x", world.release_of([twice.contract()], [candidate]), blobs)
    error = refused(tmp_path / "x", in_force)
    assert parts[0].manifest.identity in error.where
    assert parts[1].manifest.identity in error.why


def test_a_library_listed_as_a_manifest_is_refused(parts, tmp_path, in_force):
    library = parts[0].candidate.library
    assert "not a Manifest" in refused(exchanged(tmp_path / "x", parts, manifest=library), in_force).why


def test_a_manifest_listed_as_a_contract_is_refused(parts, tmp_path, in_force):
    manifest = parts[0].candidate.manifest
    release = world.release_of([parts[0].contract], [parts[0].candidate])
    release = msgspec.structs.replace(release, contracts=(*release.contracts, manifest))
    contents = [encode(parts[0].contract), encode(parts[0].manifest), parts[0].library]
    write_layout(tmp_path / "x", release, {digest_of(data): data for data in contents})
    assert "tilegate.manifest/3" in refused(tmp_path / "x", in_force).why


def test_evidence_for_another_contract_of_the_operator_never_answers(parts, tmp_path, in_force):
    """A contract of the same name, say with a looser tolerance, listed beside or in place of the live one."""
    loose = msgspec.structs.replace(twice.contract(), tolerance=tilegate.Tolerance(factor=1e6))
    evidenced = world.part(loose, world.SCALE, "FACTOR=7")
    world.write_parts(tmp_path / "both", evidenced, contracts=[twice.contract()])
    assert "two contracts" in refused(tmp_path / "both", in_force).why
    other = world.contract_of({"x": ("n",)}, {"y": ("n",)}, name="tampering_other")
    manifest = msgspec.structs.replace(
        evidenced.manifest,
        elaboration=msgspec.structs.replace(evidenced.manifest.elaboration, contract=other.digest),
    )
    mixed = msgspec.structs.replace(
        evidenced.candidate, contract=other.digest, manifest=blob_of(encode(manifest))
    )
    world.write_parts(
        tmp_path / "mixed",
        evidenced._replace(contract=other, manifest=manifest, candidate=mixed),
        contracts=[twice.contract()],
    )
    assert "its contract is not that of tampering_twice" in refused(tmp_path / "mixed", in_force).why


@pytest.mark.parametrize(
    "changes",
    [
        {"axes": {"n": Range(start=0, stop=64, step=0)}},
        {"axes": {"n": Range(start=0, stop=64, step=-1)}},
        {"axes": {"n": Range(start=0, stop=2**63)}},
        {"axes": {}},
        {"axes": {"m": Range(start=0, stop=64)}},
        {"axes": {"n": Range(start=0, stop=64), "m": Range(start=0, stop=64)}},
        {"alignment_bytes": 0},
        {"alignment_bytes": 3},
    ],
    ids=str,
)
def test_a_class_that_the_guard_cannot_read_is_refused_not_divided_by(changes, parts, tmp_path):
    broken = msgspec.structs.replace(world.any_shape(("n",)), **changes)
    assert "no shape class" in refused(exchanged(tmp_path / "x", parts, classes=(broken,)), 2).why


def test_a_blob_put_in_place_of_another_is_refused(parts, good, tmp_path, in_force):
    root = tmp_path / "copy"
    shutil.copytree(good, root)
    (root / pieces(good)["library"]).write_bytes(parts[1].library)
    assert parts[0].manifest.library.digest in refused(root, in_force).why


@pytest.fixture
def project(tmp_path, good):
    """A project whose release stands, with nothing built: trust is asked first."""
    (tmp_path / "tilegate.toml").write_text('operators = ["ops"]\n')
    (tmp_path / "ops.py").write_text("import tilegate\n")
    shutil.copytree(good, tmp_path / "release")
    return tmp_path


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(
    "words", [["status"], ["explain", "tampering_twice", "n=4"], ["promote"]], ids=lambda w: w[0]
)
def test_the_commands_leave_with_exit_code_4_and_print_no_data(piece, words, project):
    file = Path(project, "release", pieces(project / "release")[piece])
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    result = CliRunner().invoke(commands, [*words, "-C", str(project), "--json"])
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("error: the release")
    assert "next: " in result.stderr
    assert file.read_bytes() == content, "what was released is never touched"
