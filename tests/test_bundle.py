"""Evaluation elsewhere: a bundle goes out, evidence comes back, and home believes what it recomputed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec import structs

from tests import test_cli, world
from tests.written import imported
from tilegate import pipeline, processor
from tilegate.errors import RecordError, ToolError, TrustError, UsageError
from tilegate.pipeline.bundle import BUNDLE_LIMITS, open_bundle
from tilegate.pipeline.merge import EVIDENCE_LIMITS
from tilegate.pipeline.opened import open_project
from tilegate.pipeline.parcel import Limits, read_parcel, write_parcel
from tilegate.records.bundle import Bundle, Export
from tilegate.records.canonical import blob_of, digest_of, encode
from tilegate.records.evaluation import EntryVerdict, Evaluation, Vouch
from tilegate.records.evidence import Evidence
from tilegate.records.plan import Plan
from tilegate.sandbox import frames

BARE = """
import sys
for name in ("tilelang", "tvm", "click", "rich"):
    sys.modules[name] = None
from pathlib import Path
from tilegate.pipeline.bundle import evaluate_bundle
report = evaluate_bundle(Path(sys.argv[1]), Path(sys.argv[2]), return_bytes=int(sys.argv[3]))
(line,) = report.lines
print(line.verdicts, line.entries)
"""
"""Where the device is: no TileLang, and no command line either."""


def evaluated(bundle, out, return_bytes=2**20):
    command = [sys.executable, "-c", BARE, str(bundle), str(out), str(return_bytes)]
    done = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project with one artifact, exported; and the evidence of a machine that ran all of it."""
    root = tmp_path_factory.mktemp("home")
    with imported(root, test_cli.FILES, "ops", name="project") as module:
        contract = module.twice.contract()
    project = root / "project"
    (project / "contract.json").write_bytes(encode(contract))
    test_cli.build(project)
    report = pipeline.export(project, root / "bundle", only=["twice"])
    (line,) = report.lines
    said = evaluated(root / "bundle", root / "evidence")
    assert said == f"{{'passed': {line.entries}}} {line.entries}\n"
    return project


@pytest.fixture
def evidence(home):
    return read_parcel(home.parent / "evidence", Evidence, EVIDENCE_LIMITS)


def recorded(project):
    opened = open_project(project)
    ((digest, _),) = opened.current()
    return [e for _, e in opened.workspace.evaluations(digest)]


def merged(home, evidence, blobs, *, sample=4, more=()):
    """Merge a file with this evidence, the blobs that it names, and some more."""
    file = home.parent / "changed"
    named = {blob.digest for one in evidence.returned for ran in one.ran for blob in ran.outputs}
    write_parcel(file, evidence, [*(data for digest, data in blobs.items() if digest in named), *more])
    return pipeline.merge(home, file, sample=sample)


def refused(home, evidence, blobs, why, **how):
    before = recorded(home)
    with pytest.raises(TrustError) as error:
        merged(home, evidence, blobs, sample=10_000, **how)
    assert why in str(error.value)
    assert recorded(home) == before, "what is refused leaves nothing behind"


def changed(evidence, **fields):
    (one,) = evidence.returned
    return Evidence(returned=(structs.replace(one, **fields),))


def with_evaluation(evidence, **fields):
    return changed(evidence, evaluation=structs.replace(evidence.returned[0].evaluation, **fields))


def lied_about(evidence, blobs, verdict, at=0):
    """One result told otherwise."""
    results = list(evidence.returned[0].evaluation.results)
    results[at] = structs.replace(results[at], verdict=verdict, error_log2=5)
    return with_evaluation(evidence, results=tuple(results))


# What comes home


def test_evidence_from_a_machine_without_tilelang_stands_in_the_matrix(home, evidence):
    report = pipeline.merge(home, home.parent / "evidence", sample=5)
    (line,) = report.lines
    assert line.verdicts == {"passed": line.entries}
    (row,) = pipeline.status(home).rows
    assert row.cells["cpu:x86-64-v2"].text == f"{line.entries} of {line.entries} passed"
    (told,) = evidence[0].returned
    assert told.evaluation.vouch is Vouch.SELF_REPORTED
    known = recorded(home)
    assert structs.replace(told.evaluation, vouch=Vouch.RECOMPUTED) in known
    assert pipeline.merge(home, home.parent / "evidence", sample=5).lines == report.lines
    assert recorded(home) == known, "the same evidence twice is the same evidence"


def test_results_whose_outputs_stayed_behind_are_self_reported(home):
    """With room for some outputs only, the rest is evidence of another kind."""
    evaluated(home.parent / "bundle", home.parent / "part", return_bytes=60)
    report = pipeline.merge(home, home.parent / "part")
    (line,) = report.lines
    assert line.verdicts == {"passed": line.entries}
    parts = {e.vouch: {r.index for r in e.results} for e in recorded(home)[-2:]}
    assert set(parts) == {Vouch.RECOMPUTED, Vouch.SELF_REPORTED}
    assert sorted(index for part in parts.values() for index in part) == list(range(line.entries))


def test_without_any_output_nothing_is_recomputed(home, evidence):
    told, _ = evidence
    merged(home, told, {})
    assert told.returned[0].evaluation in recorded(home)
    assert told.returned[0].evaluation.vouch is Vouch.SELF_REPORTED


# Lies, and what the way does to a file


def test_one_changed_byte_of_an_output_is_a_lie(home, evidence):
    told, blobs = evidence
    (one,) = told.returned
    at = next(i for i, ran in enumerate(one.ran) if ran.outputs[0].size)
    data = bytearray(blobs[one.ran[at].outputs[0].digest])
    data[3] ^= 0x40  # the exponent of the first element
    forged = structs.replace(one.ran[at], outputs=(blob_of(bytes(data)),))
    ran = (*one.ran[:at], forged, *one.ran[at + 1 :])
    blobs = {**blobs, digest_of(bytes(data)): bytes(data)}
    refused(
        home, changed(told, ran=ran), blobs, f"entry {one.ran[at].facts.index} was told to be PASSED, and is"
    )


def test_one_flipped_byte_of_the_file_is_not_what_its_name_says(home):
    data = bytearray((home.parent / "evidence").read_bytes())
    data[-60] ^= 1
    (home.parent / "flipped").write_bytes(data)
    with pytest.raises(TrustError):
        pipeline.merge(home, home.parent / "flipped")


@pytest.mark.parametrize(
    "verdict", [EntryVerdict.WRONG, EntryVerdict.NONFINITE, EntryVerdict.UNSUPPORTED, EntryVerdict.UNWRITTEN]
)
def test_a_verdict_that_does_not_follow_from_what_came_with_it_is_a_lie(home, evidence, verdict):
    told, blobs = evidence
    refused(home, lied_about(told, blobs, verdict), blobs, "entry 0")


def test_a_fault_that_was_seen_and_told_as_a_pass_is_a_lie(home, evidence):
    told, blobs = evidence
    (one,) = told.returned
    seen = structs.replace(one.ran[0], facts=structs.replace(one.ran[0].facts, outside=("y",)))
    refused(home, changed(told, ran=(seen, *one.ran[1:])), blobs, "its verdict is not what was seen of it")


def test_other_inputs_than_the_seed_gives_are_a_lie(home, evidence):
    """Who chooses the inputs chooses the answer."""
    told, blobs = evidence
    (one,) = told.returned
    ran = [structs.replace(r, facts=structs.replace(r.facts, inputs=world.NO_DIGEST)) for r in one.ran]
    refused(home, changed(told, ran=tuple(ran)), blobs, "its inputs are not those that its seed gives here")


def test_a_failure_left_out_is_not_merged(home, evidence):
    told, blobs = evidence
    (one,) = told.returned
    results = one.evaluation.results
    for gone in (slice(0, -1), slice(1, None)):
        short = with_evaluation(told, results=results[gone])
        short = Evidence(returned=(structs.replace(short.returned[0], ran=one.ran[gone]),))
        refused(home, short, blobs, "missing" if gone.start == 0 else "one after another")


def test_results_without_what_was_seen_are_not_merged(home, evidence):
    told, blobs = evidence
    refused(home, changed(told, ran=told.returned[0].ran[1:]), blobs, "what was seen of an entry is missing")


def test_a_result_told_twice_is_not_merged(home, evidence):
    told, blobs = evidence
    results = told.returned[0].evaluation.results
    refused(home, with_evaluation(told, results=(results[0], *results)), blobs, "more than one result")


def test_one_artifact_told_twice_is_not_merged(home, evidence):
    told, blobs = evidence
    refused(home, Evidence(returned=told.returned * 2), blobs, "stands in it twice")


def test_evidence_that_vouches_for_itself_is_not_merged(home, evidence):
    told, blobs = evidence
    refused(home, with_evaluation(told, vouch=Vouch.RECOMPUTED), blobs, "which only home can say")


@pytest.mark.parametrize("field", ["contract", "manifest", "library", "plan"])
def test_evidence_for_something_else_is_not_merged(home, evidence, field):
    told, blobs = evidence
    refused(
        home, with_evaluation(told, **{field: world.NO_DIGEST}), blobs, "is not the one that was handed out"
    )


def test_a_plan_with_another_nonce_is_not_merged(home, evidence):
    """Whoever draws the nonce himself knows the inputs before the artifact is fixed."""
    told, blobs = evidence
    opened = open_project(home)
    plan = opened.workspace.load(Plan, told.returned[0].evaluation.plan)
    other = structs.replace(plan, nonce="mine")
    assert other.digest != plan.digest
    refused(home, with_evaluation(told, plan=other.digest), blobs, "the plan, or its nonce, is not the one")


def test_a_foreign_export_is_not_merged(home, evidence):
    told, blobs = evidence
    refused(home, changed(told, export=world.NO_DIGEST), blobs, "was not handed out from here")


def test_evidence_from_a_device_that_cannot_run_the_target_is_not_merged(home, evidence):
    told, blobs = evidence
    device = structs.replace(world.DEVICE, backend="cuda", arch="sm_90", model="NVIDIA H200")
    refused(home, with_evaluation(told, device=device), blobs, "does not run on cuda:sm_90 (NVIDIA H200)")


def test_outputs_of_another_size_are_not_merged(home, evidence):
    told, blobs = evidence
    one = told.returned[0]
    at = next(i for i, ran in enumerate(one.ran) if ran.outputs[0].size > 4)
    blob = structs.replace(one.ran[at].outputs[0], size=4)
    ran = (*one.ran[:at], structs.replace(one.ran[at], outputs=(blob,)), *one.ran[at + 1 :])
    refused(home, changed(told, ran=ran), blobs, "its outputs have other sizes")


def test_a_blob_that_nobody_names_is_not_taken_along(home, evidence):
    told, blobs = evidence
    refused(home, told, blobs, "named by nothing", more=[b"more"])


def test_an_empty_file_of_evidence_says_nothing(home):
    refused(home, Evidence(returned=()), {}, "it holds no evaluation")


# The file


def parcel(*named):
    return b"".join(frames.preamble(name, len(data)) + data for name, data in (*named, (frames.END, b"")))


INDEX = encode(Bundle(exports=()))
LITTLE = Limits(blob_bytes=64, total_bytes=2**20)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the end frame is missing"),
        (b"not a parcel at all, but long enough", "no frame begins here"),
        (parcel(("index", INDEX))[:-3], "the stream ends inside a frame"),
        (parcel(("index", INDEX)) + b"x", "data after the end frame"),
        (parcel(), "it holds nothing"),
        (parcel(("a" * 64, b"a")), "no record in front"),
        (parcel(("index", INDEX), ("index", INDEX)), "does not stand in front, once"),
        (parcel(("index", INDEX), (digest_of(b"a")[7:], b"b")), "is not what its name says"),
        (parcel(("index", INDEX), *[(digest_of(b"a")[7:], b"a")] * 2), "comes twice"),
        (frames.preamble("index", 2**40), "are allowed"),
    ],
)
def test_a_file_that_is_no_parcel_is_refused(tmp_path, content, why):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(TrustError) as error:
        read_parcel(tmp_path / "file", Bundle, LITTLE)
    assert why in error.value.why


def test_a_parcel_that_is_too_large_is_not_read_to_its_end(tmp_path):
    blobs = [bytes([n]) * 2**16 for n in range(40)]
    size = write_parcel(tmp_path / "file", Bundle(exports=()), blobs)
    assert size > LITTLE.total_bytes
    with pytest.raises(TrustError, match="cut short"):
        read_parcel(tmp_path / "file", Bundle, LITTLE)


def test_a_parcel_of_another_kind_is_refused(tmp_path):
    write_parcel(tmp_path / "file", Bundle(exports=()), [])
    with pytest.raises(RecordError):
        read_parcel(tmp_path / "file", Evidence, LITTLE)


def test_what_was_written_is_read_and_nothing_half_written_is_left(tmp_path):
    index = Bundle(exports=())
    write_parcel(tmp_path / "file", index, [b"a", b"", b"a"])
    assert read_parcel(tmp_path / "file", Bundle, LITTLE) == (index, {digest_of(d): d for d in (b"a", b"")})
    with pytest.raises(RecordError):
        write_parcel(tmp_path / "file", structs.replace(index, exports=("no record",)), [])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ToolError, match="cannot be read"):
        read_parcel(tmp_path / "file", Bundle, LITTLE)


# The bundle


def test_a_bundle_holds_everything_and_nothing_else(home):
    (packed,) = open_bundle(home.parent / "bundle")
    assert packed.subject.operator == "ops:twice"
    bundle, blobs = read_parcel(home.parent / "bundle", Bundle, BUNDLE_LIMITS)
    for digest in blobs:
        rest = {d: data for d, data in blobs.items() if d != digest}
        write_parcel(home.parent / "torn", bundle, rest.values())
        with pytest.raises(TrustError, match="not one that tilegate wrote"):
            open_bundle(home.parent / "torn")


def test_a_bundle_whose_parts_do_not_belong_together_is_refused(home):
    bundle, blobs = read_parcel(home.parent / "bundle", Bundle, BUNDLE_LIMITS)
    (one,) = bundle.exports
    plan = structs.replace(open_bundle(home.parent / "bundle")[0].plan, manifest=world.NO_DIGEST)
    blobs = {**blobs, plan.digest: encode(plan)}
    del blobs[one.plan]
    swapped = Bundle(exports=(structs.replace(one, plan=plan.digest),))
    write_parcel(home.parent / "swapped", swapped, blobs.values())
    with pytest.raises(TrustError, match="not one that tilegate wrote"):
        open_bundle(home.parent / "swapped")


def test_what_this_machine_runs_itself_is_not_handed_out_unasked(home):
    with pytest.raises(UsageError, match="nothing to hand out"):
        pipeline.export(home, home.parent / "none")


def test_a_machine_that_can_run_nothing_of_a_bundle_says_so(home, monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("model name : old\nflags : fpu\n")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    with pytest.raises(UsageError, match="nothing in the bundle can run here"):
        pipeline.evaluate_bundle(home.parent / "bundle", tmp_path / "evidence")
    assert not (tmp_path / "evidence").exists()


def test_an_export_is_kept_with_all_that_evidence_for_it_is_held_against(home):
    workspace = open_project(home).workspace
    (export,) = read_parcel(home.parent / "bundle", Bundle, BUNDLE_LIMITS)[0].exports
    pipeline.store.gc(home, grace_s=0)
    assert workspace.load(Export, export.digest) == export
    assert workspace.load(Plan, export.plan).manifest == export.manifest
    assert all(isinstance(one, Evaluation) for one in recorded(home))


# The commands


def test_three_commands_take_an_artifact_there_and_its_evidence_back(home, tmp_path):
    bundle, out = tmp_path / "out.tgb", tmp_path / "in.tge"
    result = test_cli.run("evaluate", "twice", "--export", bundle, "-C", home)
    assert (result.exit_code, "1 artifacts with 21 entries" in result.stderr) == (0, True), result.output
    assert "21 entries handed out" in result.stdout
    result = test_cli.run("evaluate", "--bundle", bundle, "--evidence", out, "-C", tmp_path)
    assert (result.exit_code, "21 of 21" in result.stdout) == (0, True), result.output
    result = test_cli.run("evaluate", "--merge", out, "--sample", 3, "-C", home)
    assert (result.exit_code, "21 of 21" in result.stdout) == (0, True), result.output
    out.write_bytes(out.read_bytes()[:-9])
    result = test_cli.run("evaluate", "--merge", out, "-C", home)
    assert (result.exit_code, "cut short" in result.stderr) == (4, True), result.output


@pytest.mark.parametrize(
    "words",
    [
        ["--export", "a", "--merge", __file__],
        ["--bundle", __file__],
        ["--evidence", "a"],
        ["twice", "--merge", __file__],
    ],
)
def test_steps_that_do_not_belong_together_are_a_usage_error(home, words):
    result = test_cli.run("evaluate", *words, "-C", home)
    assert (result.exit_code, result.stderr.startswith("error: ")) == (2, True)
    assert "next: " in result.stderr
