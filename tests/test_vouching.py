"""What home believes of evidence from elsewhere, decided from records alone; and conditions as evidence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.artifacts import contract_of, entry_at, evaluated, manifest_digest, manifest_of, plan_of
from tests.world import ISOLATION
from tilegate.evaluate.plan import make_plan
from tilegate.evaluate.requests import Numbered
from tilegate.evaluate.run import _lost_entry, _Run, _sort_frames
from tilegate.evaluate.sanitizer import Finding, chosen, read, with_findings
from tilegate.records.bundle import Export
from tilegate.records.canonical import blob_of, encode
from tilegate.records.evaluation import EntryResult, EntryVerdict, Vouch
from tilegate.records.evidence import Facts, Ran, Returned
from tilegate.records.plan import Condition, Layout, Origin, Values
from tilegate.records.policy import Policy
from tilegate.records.target import Target
from tilegate.rules.coverage import cover
from tilegate.rules.promotion import Promotable, promote
from tilegate.rules.vouching import FAVOURS, Claim, agree, claims, faults, vouched
from tilegate.sandbox import Ending, JobResult

CONTRACT = contract_of({"x": ("n",)}, {"y": ("n",)})
MANIFEST = manifest_of(CONTRACT, {"n": (1,)})
PASSED, WRONG, CRASHED = EntryVerdict.PASSED, EntryVerdict.WRONG, EntryVerdict.CRASHED


def returned_of(verdicts, *, entries=None):
    """What an honest machine would return: one entry for each verdict, or as many as are asked for."""
    plan = plan_of(CONTRACT, MANIFEST, [entry_at({"n": n}) for n in range(entries or len(verdicts))])
    evaluation = evaluated(plan, MANIFEST, lambda entry: None)
    results = tuple(EntryResult(index=i, verdict=v) for i, v in enumerate(verdicts))
    evaluation = structs.replace(evaluation, results=results, vouch=Vouch.SELF_REPORTED)
    export = Export(
        manifest=plan.manifest, plan=plan.digest, declaration=plan.manifest, closure=plan.manifest
    )
    ran = tuple(
        Ran(facts=Facts(index=i, inputs=""), outputs=(blob_of(str(i).encode()),))
        for i, verdict in enumerate(verdicts)
        if verdict not in (CRASHED, EntryVerdict.HUNG)
    )
    return export, plan, Returned(export=export.digest, evaluation=evaluation, ran=ran)


def faults_of(export, plan, returned, lost_workers=2):
    library = MANIFEST.library.digest
    return list(faults(export, plan, CONTRACT.digest, library, returned, lost_workers=lost_workers))


def test_an_evaluation_that_lost_its_workers_may_stop_early_and_no_other():
    assert faults_of(*returned_of([PASSED, CRASHED, PASSED, CRASHED], entries=9)) == []
    assert faults_of(*returned_of([PASSED, CRASHED, PASSED, PASSED], entries=9)) == [
        "5 of 9 entries are missing"
    ]
    assert faults_of(*returned_of([PASSED, CRASHED, PASSED, PASSED])) == []


@given(
    st.lists(st.sampled_from(EntryVerdict), min_size=1, max_size=12), st.sets(st.integers(0, 11)), st.data()
)
def test_a_pass_counts_as_recomputed_only_where_its_outputs_came_back(verdicts, there, data):
    """What is recorded is what was told, each result once; a result in the artifact's favour is RECOMPUTED only
    where it could have been drawn; nothing is where nothing was."""
    _, _, returned = returned_of(verdicts)
    present = {blob.digest for one in returned.ran if one.facts.index in there for blob in one.outputs}
    claimed = claims(returned, present)
    drawn = (
        data.draw(st.lists(st.sampled_from(claimed), unique_by=lambda c: c.result.index)) if claimed else []
    )
    parts = vouched(returned.evaluation, [c.result.index for c in claimed], [c.result for c in drawn])
    told = sorted((r for part in parts for r in part.results), key=lambda r: r.index)
    assert told == list(returned.evaluation.results)
    for part in parts:
        for result in part.results:
            if part.vouch is Vouch.RECOMPUTED and result.verdict in FAVOURS:
                assert result.index in there
    assert drawn or [part.vouch for part in parts] == [Vouch.SELF_REPORTED]
    assert all(isinstance(claim, Claim) for claim in claimed)


def result(verdict, error=None):
    return EntryResult(index=0, verdict=verdict, error_log2=error)


@pytest.mark.parametrize(
    ("theirs", "ours", "alike"),
    [
        (result(PASSED, -9), result(PASSED, -3), True),
        (result(PASSED, -1), result(WRONG, 0), True),
        (result(WRONG, 0), result(PASSED, -1), True),
        (result(PASSED, -2), result(WRONG, 0), False),
        (result(PASSED, -1), result(WRONG, 1), False),
        (result(PASSED), result(WRONG, 0), False),
        (result(PASSED, -1), result(EntryVerdict.NONFINITE, 0), False),
        (result(EntryVerdict.UNSUPPORTED), result(WRONG, 12), False),
    ],
)
def test_verdicts_may_differ_at_the_edge_of_what_is_allowed_and_nowhere_else(theirs, ours, alike):
    assert agree(theirs, ours) is alike


# What a worker says of its device


def job_result(*frames, ending=Ending.EXITED, code=1):
    return JobResult(
        ending=ending,
        code=code,
        why="",
        frames=frames,
        output=b"",
        output_total=0,
        isolation=ISOLATION,
        wall_s=1.0,
    )


@pytest.mark.parametrize(
    ("frames", "detail"),
    [
        ([("begin", b"3"), ("fault", b"illegal address")], "illegal address"),
        ([("begin", b"3"), ("fault", b"\x1b[2Jmy own words")], "device fault"),
        ([("begin", b"3")], "exit 1"),
    ],
)
def test_a_device_that_failed_is_told_by_a_word_of_ours(frames, detail):
    run = _Run({}, {}, {}, ISOLATION)
    done = job_result(*frames)
    lost = _lost_entry(done, _sort_frames(done, run), "p:f", run.fault)
    assert lost == EntryResult(index=3, verdict=CRASHED, detail=detail)


# Conditions


def conditions_of(backend, arch):
    manifest = manifest_of(CONTRACT, {"n": (32,)})
    manifest = structs.replace(manifest, target=Target(backend=backend, arch=arch))
    plan = make_plan(CONTRACT, manifest, manifest_digest(manifest), [], [], Policy(), "nonce")
    return manifest, plan, [entry for entry in plan.entries if entry.condition is not Condition.PLAIN]


def test_a_gpu_faces_every_condition_at_two_shapes_and_a_processor_none():
    _, _, found = conditions_of("cuda", "sm_90a")
    assert {entry.origin for entry in found} == {Origin.CONDITION}
    shapes = {entry.workload.axes["n"] for entry in found}
    assert len(found) == 2 * 3 == len(shapes) * len({entry.condition for entry in found})
    assert conditions_of("cpu", "x86-64-v3")[2] == []


def test_a_condition_that_failed_is_faced_again_on_a_gpu_alone():
    entry = entry_at({"n": 5}, origin=Origin.SERVED)
    entry = structs.replace(entry, condition=Condition.GRAPH)
    for backend, arch, again in (("cuda", "sm_90a", 1), ("cpu", "x86-64-v3", 0)):
        manifest = structs.replace(MANIFEST, target=Target(backend=backend, arch=arch))
        plan = make_plan(CONTRACT, manifest, manifest_digest(manifest), [], [entry], Policy(), "nonce")
        faced = [e for e in plan.entries if e.origin is Origin.REGRESSION]
        assert [(e.workload.axes, e.condition) for e in faced] == [({"n": 5}, Condition.GRAPH)] * again


def test_a_kernel_that_fails_in_a_graph_is_not_promoted_for_plain_calls():
    """No guard sees a graph being captured."""
    manifest, plan, _ = conditions_of("cuda", "sm_90a")

    def judge(entry):
        return EntryVerdict.NONDETERMINISTIC if entry.condition is Condition.GRAPH else PASSED

    evaluation = evaluated(plan, manifest, judge)
    coverage = cover(CONTRACT, manifest, [(plan, evaluation)], Policy())
    assert [reason.code for reason in coverage.rejected] == ["CONDITION_DEPENDENT"]
    assert "captured in a graph is NONDETERMINISTIC while a plain call passed" in coverage.rejected[0].message
    assert cover(CONTRACT, manifest, [(plan, evaluated(plan, manifest, lambda _: PASSED))], Policy()).classes


def test_a_pass_in_a_graph_alone_stands_for_no_shape():
    entry = structs.replace(entry_at({"n": 5}, origin=Origin.SERVED), condition=Condition.GRAPH)
    plan = plan_of(CONTRACT, MANIFEST, [entry])
    coverage = cover(CONTRACT, MANIFEST, [(plan, evaluated(plan, MANIFEST, lambda _: PASSED))], Policy())
    assert [reason.code for reason in coverage.rejected] == ["NOTHING_PASSED"]


def test_two_parts_of_one_plan_miss_nothing_together():
    plan = plan_of(CONTRACT, MANIFEST, [entry_at({"n": n}, origin=Origin.SERVED) for n in range(40)])
    whole = evaluated(plan, MANIFEST, lambda _: PASSED)
    parts = [structs.replace(whole, results=whole.results[half]) for half in (slice(0, 15), slice(15, None))]
    coverage = cover(CONTRACT, MANIFEST, [(plan, part) for part in parts], Policy())
    assert coverage == cover(CONTRACT, MANIFEST, [(plan, whole)], Policy())
    assert not any("missing" in note for note in coverage.notes)


def promoted(*evaluations, policy=None):
    plan = plan_of(CONTRACT, MANIFEST, [entry_at({"n": n}, origin=Origin.SERVED) for n in range(40)])
    judged = [structs.replace(evaluated(plan, MANIFEST, judge), vouch=vouch) for judge, vouch in evaluations]
    item = Promotable(
        contract=CONTRACT, contract_blob=blob_of(encode(CONTRACT)), manifest=MANIFEST,
        manifest_blob=blob_of(encode(MANIFEST)),
        evidence=tuple((blob_of(encode(e)), plan, e) for e in judged),
    )  # fmt: skip
    decided = promote([item], policy or Policy(), 1)
    return decided.release, [reason.code for one in decided.rejected for reason in one.reasons]


def test_what_nobody_recomputed_passes_nothing_and_can_still_fail():
    def all_pass(_):
        return PASSED

    def small_wrong(entry):
        return WRONG if entry.workload.axes["n"] < 20 else None

    assert promoted((all_pass, Vouch.SELF_REPORTED)) == (None, ["VOUCH"])
    accepting = Policy(vouch=tuple(Vouch))
    assert promoted((all_pass, Vouch.SELF_REPORTED), policy=accepting)[0] is not None
    whole, _ = promoted((all_pass, Vouch.RECOMPUTED))
    part, _ = promoted((all_pass, Vouch.RECOMPUTED), (small_wrong, Vouch.SELF_REPORTED))
    assert [str(c) for c in whole.candidates[0].classes] == ["0 <= n <= 39"]
    assert [str(c) for c in part.candidates[0].classes] == ["20 <= n <= 39"]


# The sanitizer's words

MEMCHECK = b"""tilegate entry 3
tilegate entry 8
========= Invalid __global__ read of size 4 bytes
=========     at k+0x40
=========     Address 0x7f is out of bounds
tilegate never entry 9
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""
RACE = b"""========= COMPUTE-SANITIZER
tilegate entry 3
========= Error: Race reported between Write access at k+0x90
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = (
    b"========= COMPUTE-SANITIZER\ntilegate entry 3\ntilegate entry 8\n========= ERROR SUMMARY: 0 errors\n"
)
ENTRIES = [Numbered(index=i, seed=0, entry=entry_at({"n": i})) for i in (3, 8, 9)]


def test_what_a_sanitizer_says_is_laid_to_the_entry_that_it_said_it_in():
    told, finding = read("memcheck", MEMCHECK, 99, ENTRIES)
    assert (told.entries, told.errors, told.kind) == (2, 2, "Invalid __global__ read of size 4 bytes")
    assert finding == Finding(8, "memcheck", 2)
    told, finding = read("racecheck", RACE, 99, ENTRIES)
    assert (told.errors, finding) == (1, Finding(3, "racecheck", 1))
    told, finding = read("memcheck", CLEAN, 0, ENTRIES)
    assert (told.entries, told.errors, told.skipped, finding) == (2, 0, "", None)


def test_a_sanitizer_that_failed_has_not_found_everything_clean():
    told, finding = read("memcheck", b"========= Error: Device not supported\n", 1, ENTRIES)
    assert (told.skipped, finding) == ("exit status 1, with nothing that it names", None)
    assert read("memcheck", CLEAN.replace(b"0 errors", b"3 errors"), 99, ENTRIES)[0].skipped


def test_what_a_sanitizer_found_becomes_a_fact_of_its_entry():
    facts = Facts(index=8, inputs="")
    both = [Finding(8, "memcheck", 2), Finding(8, "racecheck", 1), Finding(3, "memcheck", 1)]
    found = with_findings(facts, both)
    assert (found.outside, found.unstable) == (("memcheck",), {"racecheck": 1})
    assert with_findings(structs.replace(facts, refusal=5), both).outside == ()


def test_a_sanitizer_gets_plain_entries_from_all_over_the_plan():
    entries = [entry_at({"n": n}) for n in range(100)]
    entries += [entry_at({"n": 1}, values=Values.HUGE), entry_at({"n": 1}, layout=Layout.OFFSET)]
    plan = plan_of(CONTRACT, MANIFEST, entries)
    taken = chosen(plan)
    assert [one.index for one in taken] == list(range(0, 100, 5))
    assert all(one.seed == plan.seed(one.index) for one in taken)
