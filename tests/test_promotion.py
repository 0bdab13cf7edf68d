"""Promotion: which artifacts may serve, and why the others may not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.artifacts import (
    ISOLATED,
    XEON,
    Judge,
    contract_of,
    entry_at,
    evaluated,
    explained,
    manifest_of,
    plan_of,
    wrong_where,
)
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import blob_of, decode, digest_of, encode
from tilegate.records.contract import Contract
from tilegate.records.evaluation import EntryVerdict, Evaluation
from tilegate.records.isolation import Level
from tilegate.records.plan import Entry, Plan, Values
from tilegate.records.policy import Policy
from tilegate.records.release import Release
from tilegate.records.target import DeviceClass
from tilegate.rules.promotion import Promotable, Promotion, promote

ROWS = contract_of({"x": ("n",)}, {"out": ("n",)})
KERNEL = manifest_of(ROWS, {})
LOOSE = structs.replace(ISOLATED, level=Level.REDUCED, own_pids=False, own_files=False)
EPYC = DeviceClass(backend="cpu", arch="x86-64-v3", model="EPYC")


def passes(_: Entry) -> EntryVerdict:
    return EntryVerdict.PASSED


def evaluation_of(manifest: Manifest, judge: Judge, **how) -> tuple[Plan, Evaluation]:
    plan = plan_of(ROWS, manifest, [entry_at({"n": n}) for n in range(1, 17)])
    return plan, evaluated(plan, manifest, judge, **how)


def promotable(
    *evidence: tuple[Plan, Evaluation], manifest: Manifest = KERNEL, contract: Contract = ROWS
) -> Promotable:
    return Promotable(
        contract=contract,
        contract_blob=blob_of(encode(contract)),
        manifest=manifest,
        manifest_blob=blob_of(encode(manifest)),
        evidence=tuple((blob_of(encode(e)), plan, e) for plan, e in evidence),
    )


def codes(promotion: Promotion) -> list[str]:
    assert promotion.release is None
    return [reason.code for rejected in promotion.rejected for reason in rejected.reasons]


def test_what_passed_is_released_with_every_digest_that_stands_for_it():
    item = promotable(evaluation_of(KERNEL, passes))
    promotion = promote([item], Policy(), version=7)
    assert promotion.rejected == ()
    assert promotion.release is not None
    assert (promotion.release.version, promotion.release.policy) == (7, Policy())
    assert promotion.release.contracts == (item.contract_blob,)
    (candidate,) = promotion.release.candidates
    assert (candidate.manifest, candidate.library) == (item.manifest_blob, KERNEL.library)
    assert candidate.evaluations == (item.evidence[0][0],)
    assert candidate.devices == (XEON,)
    assert explained(candidate.classes) == ["1 <= n <= 16"]
    assert decode(Release, encode(promotion.release), where="the test") == promotion.release


def test_one_bad_kernel_does_not_hold_up_the_others_and_is_told():
    other = manifest_of(ROWS, {}, kernel="broken")
    promotion = promote(
        [
            promotable(evaluation_of(other, wrong_where(lambda _: True)), manifest=other),
            promotable(evaluation_of(KERNEL, passes)),
        ],
        Policy(),
        version=1,
    )
    assert promotion.release is not None
    assert [candidate.kernel for candidate in promotion.release.candidates] == ["tiled"]
    (rejected,) = promotion.rejected
    assert str(rejected) == (
        "rejected: made_up for cpu:x86-64-v3, kernel broken (T=float32)\n"
        "  no shape passed: 16 of 16 are WRONG\n"
        "next: compare the kernel with its reference at one small shape, then build and evaluate again"
    )


def test_an_artifact_that_was_never_evaluated_is_rejected_with_what_to_type():
    promotion = promote([promotable()], Policy(), version=1)
    assert codes(promotion) == ["NO_EVIDENCE"]
    assert str(promotion.rejected[0]).endswith("next: tilegate evaluate made_up")


def test_an_edited_reference_makes_old_evidence_worthless():
    edited = structs.replace(ROWS, reference=digest_of(b"edited"))
    item = promotable(evaluation_of(KERNEL, passes), contract=edited)
    assert codes(promote([item], Policy(), version=1)) == ["CONTRACT_CHANGED", "NO_EVIDENCE"]


def test_bytes_that_are_not_their_digest_reject_the_artifact():
    item = promotable(evaluation_of(KERNEL, passes))
    other = blob_of(b"other bytes")
    for swapped in (
        structs.replace(item, contract_blob=other),
        structs.replace(item, manifest_blob=other),
        structs.replace(item, evidence=((other, *item.evidence[0][1:]),)),
    ):
        assert codes(promote([swapped], Policy(), version=1)) == ["DIGEST"]


def test_a_build_outside_the_isolation_of_policy_is_rejected():
    loose = manifest_of(ROWS, {}, isolation=(ISOLATED, LOOSE))
    unknown = manifest_of(ROWS, {}, isolation=())
    for manifest in (loose, unknown):
        item = promotable(evaluation_of(manifest, passes), manifest=manifest)
        assert codes(promote([item], Policy(), version=1)) == ["ISOLATION"]
    item = promotable(evaluation_of(loose, passes), manifest=loose)
    assert promote([item], Policy(isolation=(Level.FULL, Level.REDUCED)), version=1).release is not None


def test_passes_outside_the_isolation_of_policy_count_for_nothing():
    item = promotable(evaluation_of(KERNEL, passes, isolation=LOOSE))
    assert codes(promote([item], Policy(), version=1)) == ["ISOLATION"]


def test_passes_outside_the_isolation_of_policy_do_not_widen_what_others_support():
    partly = evaluation_of(KERNEL, lambda entry: passes(entry) if entry.workload.axes["n"] <= 12 else None)
    item = promotable(partly, evaluation_of(KERNEL, passes, isolation=LOOSE))
    release = promote([item], Policy(), version=1).release
    assert release is not None
    assert explained(release.candidates[0].classes) == ["1 <= n <= 12"]


def test_failures_outside_the_isolation_of_policy_still_count():
    loose = evaluation_of(KERNEL, wrong_where(lambda axes: axes["n"] == 16), isolation=LOOSE, device=EPYC)
    item = promotable(evaluation_of(KERNEL, passes), loose)
    release = promote([item], Policy(), version=1).release
    assert release is not None
    assert explained(release.candidates[0].classes) == ["1 <= n <= 15"]
    assert release.candidates[0].devices == (XEON,)
    assert len(release.candidates[0].evaluations) == 2


def test_a_failure_on_one_device_counts_on_all():
    judge = wrong_where(lambda axes: axes["n"] > 12)
    item = promotable(evaluation_of(KERNEL, passes), evaluation_of(KERNEL, judge, device=EPYC))
    release = promote([item], Policy(), version=1).release
    assert release is not None
    (candidate,) = release.candidates
    assert explained(candidate.classes) == ["1 <= n <= 12"]
    assert candidate.devices == (XEON, EPYC)


def test_a_device_on_which_nothing_passed_is_not_listed():
    unable = evaluation_of(KERNEL, lambda _: EntryVerdict.UNSUPPORTED, device=EPYC)
    release = promote([promotable(evaluation_of(KERNEL, passes), unable)], Policy(), version=1).release
    assert release is not None
    assert release.candidates[0].devices == (XEON,)


def test_a_hang_on_zeros_names_the_shape_and_the_values():
    def judge(entry: Entry) -> EntryVerdict:
        return EntryVerdict.HUNG if entry.values is Values.ZEROS else EntryVerdict.PASSED

    entries = [*(entry_at({"n": n}) for n in range(1, 17)), entry_at({"n": 4}, values=Values.ZEROS)]
    plan = plan_of(ROWS, KERNEL, entries)
    promotion = promote([promotable((plan, evaluated(plan, KERNEL, judge)))], Policy(), version=1)
    assert codes(promotion) == ["VALUE_DEPENDENT"]
    assert "n=4 with zeros is HUNG while normal values passed" in str(promotion.rejected[0])


def test_a_failure_cannot_hide_in_a_second_mention_of_the_artifact():
    good = promotable(evaluation_of(KERNEL, passes))
    bad = promotable(evaluation_of(KERNEL, wrong_where(lambda axes: axes["n"] == 16), device=EPYC))
    for mentions in ([good, bad], [bad, good]):
        release = promote(mentions, Policy(), version=1).release
        assert release is not None
        (candidate,) = release.candidates
        assert explained(candidate.classes) == ["1 <= n <= 15"]
        assert set(candidate.devices) == {XEON, EPYC}


def test_evaluations_of_another_artifact_are_not_listed_as_evidence():
    other = manifest_of(ROWS, {}, kernel="other")
    item = promotable(evaluation_of(KERNEL, passes), evaluation_of(other, passes))
    release = promote([item], Policy(), version=1).release
    assert release is not None
    assert release.candidates[0].evaluations == (item.evidence[0][0],)


def test_nothing_to_promote_is_no_release():
    assert promote([], Policy(), version=1) == Promotion(release=None, rejected=())


def test_what_a_class_leaves_out_is_told_for_its_artifact():
    item = promotable(evaluation_of(KERNEL, wrong_where(lambda axes: axes["n"] > 12)))
    told = ("n <= 12: 4 shapes beyond it failed, the first at 13",)
    assert promote([item], Policy(), version=1).notes == {item.manifest_blob.digest: told}


@given(st.lists(st.sets(st.integers(1, 16)), min_size=1, max_size=5), st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_artifact_is_either_a_candidate_or_rejected(wrong_sets, reverse):
    """Every input is answered for, once: as a candidate in the order given, or with its reasons."""
    items = []
    for number, wrong in enumerate(wrong_sets):
        manifest = manifest_of(ROWS, {}, kernel=f"k{number}")
        judge = wrong_where(lambda axes, wrong=wrong: axes["n"] in wrong)
        items.append(promotable(evaluation_of(manifest, judge), manifest=manifest))
    if reverse:
        items.reverse()
    promotion = promote(items, Policy(), version=1)
    promoted = [c.kernel for c in promotion.release.candidates] if promotion.release else []
    names = [item.manifest.elaboration.kernel for item in items]
    assert promoted == [name for name in names if name in promoted]
    assert len(promoted) + len(promotion.rejected) == len(items)
    for candidate in promotion.release.candidates if promotion.release else ():
        wrong = wrong_sets[int(candidate.kernel[1:])]
        assert not any(c.admits({"n": n}) for c in candidate.classes for n in wrong)
