"""Coverage: what a guard may promise, and what it must never."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.artifacts import contract_of, entry_at, evaluated, explained, manifest_of, plan_of, wrong_where
from tilegate.evaluate.plan import make_plan
from tilegate.records.canonical import digest_of, encode
from tilegate.records.evaluation import EntryResult, EntryVerdict, Evaluation
from tilegate.records.plan import STRIDED, Entry, Layout, Origin, Plan, Values, Workload
from tilegate.records.policy import Density, Policy
from tilegate.records.shape import ShapeClass
from tilegate.rules.coverage import Coverage, cover

PASSED, WRONG, HUNG = EntryVerdict.PASSED, EntryVerdict.WRONG, EntryVerdict.HUNG
UNSUPPORTED = EntryVerdict.UNSUPPORTED
EXACT = Policy(density=Density.EXACT)

GEMM = contract_of({"A": ("M", "K"), "B": ("K", "N")}, {"C": ("M", "N")})
TILED = manifest_of(GEMM, {"M": (32,), "N": (32,), "K": (32,)})
ROWS = contract_of({"x": ("K",)}, {"out": ("K",)})
UNTILED = manifest_of(ROWS, {})
BY_EIGHT = manifest_of(ROWS, {"K": (8,)})


def cover_rows(manifest, judge, extents: Iterable[int], policy: Policy = Policy(), **how: object) -> Coverage:
    plan = plan_of(ROWS, manifest, [entry_at({"K": n}, **how) for n in extents])
    return cover(ROWS, manifest, [(plan, evaluated(plan, manifest, judge))], policy)


def cover_gemm(judge, served: Mapping[str, int], policy: Policy = Policy()) -> Coverage:
    workloads = [Workload(axes=dict(served), dtypes={"T": "float32"})]
    plan = make_plan(GEMM, TILED, digest_of(encode(TILED)), workloads, [], policy, "nonce")
    return cover(GEMM, TILED, [(plan, evaluated(plan, TILED, judge))], policy)


# What faults become.


def test_a_dropped_k_tail_becomes_a_guard_not_a_rejection():
    coverage = cover_gemm(wrong_where(lambda axes: axes["K"] % 32 != 0), {"M": 512, "N": 512, "K": 512})
    assert explained(coverage.classes) == ["K % 32 == 0 and 0 <= K <= 512, 0 <= M <= 512, 0 <= N <= 512"]
    assert coverage.notes[0].startswith("K % 32 == 0: ")
    assert coverage.rejected == ()


def test_an_unwritten_row_tail_and_a_k_tail_are_both_guarded():
    faulty = wrong_where(lambda axes: axes["K"] % 32 != 0 or axes["M"] % 16 != 0)
    coverage = cover_gemm(faulty, {"M": 512, "N": 512, "K": 512})
    assert explained(coverage.classes) == [
        "K % 32 == 0 and 0 <= K <= 512, M % 16 == 0 and 0 <= M <= 512, 0 <= N <= 512"
    ]


def test_a_kernel_without_faults_is_served_as_far_as_it_was_tried():
    coverage = cover_gemm(lambda _: PASSED, {"M": 300, "N": 300, "K": 300})
    assert explained(coverage.classes) == ["0 <= K <= 300, 0 <= M <= 300, 0 <= N <= 300"]
    assert coverage.notes == ()


def test_failures_above_a_threshold_cut_the_range():
    coverage = cover_rows(BY_EIGHT, wrong_where(lambda axes: axes["K"] > 40), range(1, 101))
    assert explained(coverage.classes) == ["1 <= K <= 40"]
    assert coverage.notes == ("K <= 40: 60 shapes beyond it failed, the first at 41",)


def test_one_odd_failure_in_the_middle_is_split_around():
    coverage = cover_rows(BY_EIGHT, wrong_where(lambda axes: axes["K"] == 44), range(1, 101))
    assert sorted(explained(coverage.classes)) == ["1 <= K <= 43", "45 <= K <= 100"]


def test_short_rows_are_kept_where_a_half_accumulator_stalls_on_long_ones():
    extents = [1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 2047, 4095, 4096]
    coverage = cover_rows(UNTILED, wrong_where(lambda axes: axes["K"] > 64), extents)
    assert explained(coverage.classes) == ["1 <= K <= 64"]


def test_a_hang_on_zeros_rejects_the_kernel():
    def judge(entry: Entry) -> EntryVerdict:
        return HUNG if entry.values is Values.ZEROS else PASSED

    entries = [entry_at({"K": n}) for n in range(1, 20)]
    plan = plan_of(ROWS, UNTILED, [*entries, entry_at({"K": 4}, values=Values.ZEROS)])
    coverage = cover(ROWS, UNTILED, [(plan, evaluated(plan, UNTILED, judge))], Policy())
    assert coverage.classes == ()
    (reason,) = coverage.rejected
    assert reason.code == "VALUE_DEPENDENT"
    assert reason.message.startswith("K=4 with zeros is HUNG while normal values passed")


def test_values_say_nothing_more_where_the_shape_itself_failed():
    faulty = wrong_where(lambda axes: axes["K"] == 19)
    entries = [entry_at({"K": n}) for n in range(1, 20)]
    plan = plan_of(ROWS, UNTILED, [*entries, entry_at({"K": 19}, values=Values.NAN)])
    coverage = cover(ROWS, UNTILED, [(plan, evaluated(plan, UNTILED, faulty))], Policy())
    assert explained(coverage.classes) == ["1 <= K <= 18"]


def test_passing_with_zeros_does_not_help_a_shape_that_failed():
    def judge(entry: Entry) -> EntryVerdict:
        return WRONG if entry.values is Values.NORMAL and entry.workload.axes["K"] == 19 else PASSED

    entries = [entry_at({"K": n}) for n in range(1, 20)]
    plan = plan_of(ROWS, UNTILED, [*entries, entry_at({"K": 19}, values=Values.ZEROS)])
    coverage = cover(ROWS, UNTILED, [(plan, evaluated(plan, UNTILED, judge))], Policy())
    assert explained(coverage.classes) == ["1 <= K <= 18"]


@pytest.mark.parametrize(
    "verdict", [v for v in EntryVerdict if v not in {PASSED, UNSUPPORTED}], ids=lambda v: v.name
)
def test_every_verdict_but_passed_fails_its_shape(verdict):
    coverage = cover_rows(
        UNTILED, lambda entry: verdict if entry.workload.axes["K"] == 20 else PASSED, range(1, 21)
    )
    assert explained(coverage.classes) == ["1 <= K <= 19"]


def test_a_kernel_that_never_passes_is_rejected_with_its_commonest_verdict():
    coverage = cover_rows(UNTILED, lambda entry: HUNG if entry.workload.axes["K"] > 2 else WRONG, range(1, 9))
    (reason,) = coverage.rejected
    assert (reason.code, reason.message) == ("NOTHING_PASSED", "no shape passed: 6 of 8 are HUNG")


def test_an_entry_that_is_missing_has_not_passed():
    coverage = cover_rows(
        BY_EIGHT, lambda entry: None if entry.workload.axes["K"] == 5 else PASSED, range(1, 25)
    )
    assert explained(coverage.classes) == ["9 <= K <= 24"]
    assert "1 of 24 plan entries are missing" in coverage.notes


def test_no_evaluation_at_all_is_no_pass():
    (reason,) = cover(ROWS, UNTILED, [], Policy()).rejected
    assert reason.code == "NOTHING_PASSED"


def test_unsupported_counts_neither_way():
    coverage = cover_rows(
        UNTILED, lambda entry: UNSUPPORTED if entry.workload.axes["K"] == 9 else PASSED, range(1, 20)
    )
    assert explained(coverage.classes) == ["1 <= K <= 19"]
    assert cover_rows(UNTILED, lambda _: UNSUPPORTED, range(1, 20)).classes == ()


# Layout.


def offset_judge(failing: int) -> Coverage:
    def judge(entry: Entry) -> EntryVerdict:
        offset = entry.layout is Layout.OFFSET and entry.workload.axes["K"] == failing
        return EntryVerdict.CRASHED if offset else PASSED

    entries = [entry_at({"K": n}) for n in range(1, 20)]
    entries += [entry_at({"K": n}, layout=Layout.OFFSET) for n in (8, 16)]
    plan = plan_of(ROWS, UNTILED, entries)
    return cover(ROWS, UNTILED, [(plan, evaluated(plan, UNTILED, judge))], Policy())


def test_offset_data_that_passed_may_be_served():
    (served,) = offset_judge(failing=0).classes
    assert served.alignment_bytes == 4


def test_a_crash_on_offset_data_asks_for_aligned_data_and_keeps_the_shape():
    (served,) = offset_judge(failing=8).classes
    assert (str(served), served.alignment_bytes) == ("1 <= K <= 19", 64)


def test_a_crash_on_offset_data_fails_a_shape_that_never_passed():
    entries = [entry_at({"K": n}) for n in range(1, 17)] + [entry_at({"K": 9}, layout=Layout.OFFSET)]
    plan = plan_of(ROWS, UNTILED, entries)

    def judge(entry: Entry) -> EntryVerdict | None:
        if entry.workload.axes["K"] != 9:
            return PASSED
        return WRONG if entry.layout is Layout.OFFSET else None

    coverage = cover(ROWS, UNTILED, [(plan, evaluated(plan, UNTILED, judge))], Policy(min_passes=5))
    assert explained(coverage.classes) == ["1 <= K <= 8", "10 <= K <= 16"]


def test_offset_data_that_was_never_tried_is_not_served():
    (served,) = cover_rows(UNTILED, lambda _: PASSED, range(1, 20)).classes
    assert served.alignment_bytes == 64


# Density.


def test_a_residue_that_was_never_tried_in_a_bucket_is_not_promised_there():
    tried = [n for n in range(1, 33) if n not in {13, 21}]  # all of 5 modulo 8 in 9..24: two or three trips
    coverage = cover_rows(BY_EIGHT, lambda _: PASSED, tried)
    assert explained(coverage.classes) == ["1 <= K <= 12", "K % 2 == 0 and 14 <= K <= 32"]


def test_a_bucket_of_trips_that_was_never_tried_ends_the_range():
    extents = [*range(1, 17), 100, 101]
    assert explained(cover_rows(UNTILED, lambda _: PASSED, extents).classes) == ["1 <= K <= 16"]


def test_fewer_passes_than_policy_asks_for_are_an_anecdote():
    coverage = cover_rows(UNTILED, lambda _: PASSED, range(1, 8))
    assert [reason.code for reason in coverage.rejected] == ["NO_CLASS"]
    assert "7 of 7 shapes passed" in coverage.rejected[0].message


def test_multiples_that_alone_were_tried_are_alone_inferred():
    coverage = cover_rows(BY_EIGHT, lambda _: PASSED, range(8, 129, 8))
    assert explained(coverage.classes) == ["K % 8 == 0 and 8 <= K <= 128"]


def test_a_step_that_only_thin_evidence_asks_for_is_not_told_as_a_fault():
    coverage = cover_rows(BY_EIGHT, lambda _: PASSED, [*range(8, 129, 8), 99])
    assert explained(coverage.classes) == ["K % 8 == 0 and 8 <= K <= 128"]
    assert coverage.notes[0] == "K % 8 == 0: other shapes were too few to infer from"


# Exact classes.


def test_a_served_shape_outside_every_box_becomes_a_class_of_its_own():
    entries = [entry_at({"K": n}) for n in range(1, 17)]
    entries += [entry_at({"K": n}, origin=Origin.SERVED) for n in (500, 600)] + [entry_at({"K": 700})]
    plan = plan_of(ROWS, UNTILED, entries)
    judge = wrong_where(lambda axes: axes["K"] == 600)
    coverage = cover(ROWS, UNTILED, [(plan, evaluated(plan, UNTILED, judge))], Policy())
    assert [(str(c), c.exact) for c in coverage.classes] == [("1 <= K <= 16", False), ("K == 500", True)]


def test_an_exact_policy_infers_nothing():
    coverage = cover_rows(UNTILED, wrong_where(lambda axes: axes["K"] == 2), range(1, 5), EXACT)
    assert [(str(c), c.exact) for c in coverage.classes] == [
        ("K == 1", True),
        ("K == 3", True),
        ("K == 4", True),
    ]


def test_one_pass_is_enough_where_nothing_varies():
    manifest = manifest_of(ROWS, {}, fixed={"K": 64})
    plan = plan_of(ROWS, manifest, [entry_at({"K": 64})])
    coverage = cover(ROWS, manifest, [(plan, evaluated(plan, manifest, lambda _: PASSED))], Policy())
    assert coverage.classes == (ShapeClass(axes={}, alignment_bytes=64, exact=True),)


# Evidence that is not the artifact's.


@pytest.mark.parametrize("field", ["contract", "manifest", "library", "plan"])
def test_an_evaluation_of_something_else_is_ignored(field):
    plan = plan_of(ROWS, UNTILED, [entry_at({"K": n}) for n in range(1, 20)])
    evaluation = structs.replace(
        evaluated(plan, UNTILED, lambda _: PASSED), **{field: digest_of(b"something else")}
    )
    assert cover(ROWS, UNTILED, [(plan, evaluation)], Policy()).classes == ()


def test_evidence_for_a_contract_that_changed_since_the_build_is_ignored():
    edited = structs.replace(ROWS, reference=digest_of(b"another reference"))
    plan = plan_of(edited, UNTILED, [entry_at({"K": n}) for n in range(1, 20)])
    evaluation = evaluated(plan, UNTILED, lambda _: PASSED)
    assert cover(edited, UNTILED, [(plan, evaluation)], Policy()).classes == ()


def test_results_beyond_the_plan_or_counted_from_its_end_are_no_passes():
    plan = plan_of(ROWS, UNTILED, [entry_at({"K": n}, origin=Origin.SERVED) for n in (5, 6)])
    stray = tuple(EntryResult(index=index, verdict=PASSED) for index in (-1, 2))
    evaluation = structs.replace(evaluated(plan, UNTILED, lambda _: None), results=stray)
    assert cover(ROWS, UNTILED, [(plan, evaluation)], Policy()).classes == ()


def test_a_pass_of_another_specialization_is_no_pass():
    workload = Workload(axes={"K": 5}, dtypes={"T": "float16"})
    entry = structs.replace(entry_at({"K": 5}, origin=Origin.SERVED), workload=workload)
    plan = plan_of(ROWS, UNTILED, [entry])
    evaluation = evaluated(plan, UNTILED, lambda _: PASSED)
    assert cover(ROWS, UNTILED, [(plan, evaluation)], Policy()).classes == ()


# Laws, over small worlds: two axes, few extents, every kind of entry and verdict.

TWO = contract_of({"x": ("M", "K")}, {"out": ("M",)})
SIDE = 10
Recorded = list[tuple[Plan, Evaluation]]

worlds = st.builds(
    lambda m, k: manifest_of(TWO, {"M": m, "K": k}),
    st.sampled_from([(), (2,), (4,), (6, 4)]),
    st.sampled_from([(), (3,), (4,)]),
)
policies = st.builds(Policy, density=st.sampled_from(Density), min_passes=st.integers(1, 6))
mostly_normal = st.sampled_from([Values.NORMAL] * 12 + [Values.ZEROS, Values.NAN])
verdicts = st.sampled_from([PASSED] * 12 + [WRONG, HUNG, UNSUPPORTED, None])
rectangle = [(m, k) for m in range(SIDE) for k in range(SIDE)]


@st.composite
def recorded(draw, manifest) -> Recorded:
    """A few evaluations of one artifact; the first plan may hold a whole rectangle of shapes."""
    evidence: Recorded = []
    for number in range(draw(st.integers(1, 2))):
        points = draw(st.one_of(st.just(rectangle), st.lists(st.sampled_from(rectangle), max_size=40)))
        extra = draw(st.lists(st.sampled_from(rectangle), max_size=6))
        entries = [entry_at({"M": m, "K": k}) for m, k in points]
        entries += [
            entry_at(
                {"M": m, "K": k},
                values=draw(mostly_normal),
                layout=draw(st.sampled_from(Layout)),
                origin=draw(st.sampled_from([Origin.SERVED, Origin.BOUNDARY])),
            )
            for m, k in extra
        ]
        plan = plan_of(TWO, manifest, entries, nonce=str(number))
        odd = draw(st.dictionaries(st.integers(0, max(0, len(entries) - 1)), verdicts, max_size=12))
        judged = iter(range(len(entries)))
        evidence.append((plan, evaluated(plan, manifest, lambda _: odd.get(next(judged), PASSED))))
    return evidence


situations = worlds.flatmap(lambda m: st.tuples(st.just(m), recorded(m), policies))


def failures(evidence: Recorded) -> list[Entry]:
    return [
        plan.entries[result.index]
        for plan, evaluation in evidence
        for result in evaluation.results
        if result.verdict not in {PASSED, UNSUPPORTED}
    ]


def shapes_that_passed(evidence: Recorded) -> set[tuple[int, int]]:
    """Shapes that passed with normal, aligned values and never failed so."""
    seen: dict[tuple[int, int], set[EntryVerdict]] = {}
    for plan, evaluation in evidence:
        for result in evaluation.results:
            entry = plan.entries[result.index]
            if entry.values is Values.NORMAL and entry.layout is Layout.ALIGNED:
                seen.setdefault(_point(entry), set()).add(result.verdict)
    return {point for point, found in seen.items() if PASSED in found and found <= {PASSED, UNSUPPORTED}}


def _point(entry: Entry) -> tuple[int, int]:
    return entry.workload.axes["M"], entry.workload.axes["K"]


def admits_entry(shape_class: ShapeClass, entry: Entry) -> bool:
    """Whether a call like this entry would run the artifact: offset data passes only a guard below 64, a view
    only one that is not dense."""
    offset = entry.layout is Layout.OFFSET and shape_class.alignment_bytes >= 64
    view = entry.layout in STRIDED and shape_class.dense
    return shape_class.admits(entry.workload.axes) and not offset and not view


def are_claimable(classes: Iterable[ShapeClass], manifest, evidence: Recorded, policy: Policy) -> bool:
    failed, passed = failures(evidence), shapes_that_passed(evidence)
    return all(is_claimable(shape_class, manifest, failed, passed, policy) for shape_class in classes)


def is_claimable(
    shape_class: ShapeClass, manifest, failed: list[Entry], passed: set[tuple[int, int]], policy: Policy
) -> bool:
    """The law of a class, spelled out: by brute force, over every extent that it promises."""
    if any(admits_entry(shape_class, entry) for entry in failed):
        return False
    inside = [point for point in passed if shape_class.admits({"M": point[0], "K": point[1]})]
    if shape_class.exact:
        return len(inside) == 1
    if policy.density is Density.EXACT or len(inside) < policy.min_passes:
        return False
    for place, axis in enumerate(("M", "K")):
        tile = max(manifest.elaboration.tiles[axis], default=1)
        promised = [n for n in range(SIDE * 2) if n in shape_class.axes[axis]]
        evidenced = {_tail(point[place], tile) for point in inside}
        if not {_tail(n, tile) for n in promised} <= evidenced:
            return False
    return True


def _tail(extent: int, tile: int) -> tuple[int, int]:
    trips = (extent + tile - 1) // tile
    return len(f"{trips:b}") if trips else 0, extent % tile


@given(situations)
@settings(max_examples=100, deadline=None)
def test_no_recorded_failure_is_ever_admitted(situation):
    """No recorded failure is ever admitted by any class."""
    manifest, evidence, policy = situation
    for shape_class in cover(TWO, manifest, evidence, policy).classes:
        assert not any(admits_entry(shape_class, entry) for entry in failures(evidence))


@given(situations)
@settings(max_examples=100, deadline=None)
def test_every_class_is_a_passing_workload_or_a_dense_box(situation):
    """A class is one workload that itself passed, or a box without failures that holds policy's density."""
    manifest, evidence, policy = situation
    coverage = cover(TWO, manifest, evidence, policy)
    assert bool(coverage.classes) != bool(coverage.rejected)
    assert are_claimable(coverage.classes, manifest, evidence, policy)


@given(situations)
@settings(max_examples=100, deadline=None)
def test_classes_are_disjoint(situation):
    """Classes are disjoint."""
    manifest, evidence, policy = situation
    classes = cover(TWO, manifest, evidence, policy).classes
    for m, k in itertools.product(range(SIDE + 2), repeat=2):
        assert sum(shape_class.admits({"M": m, "K": k}) for shape_class in classes) <= 1


@given(situations)
@settings(max_examples=100, deadline=None)
def test_running_again_until_green_admits_no_failure(situation):
    """Adding a passing evaluation of the same entries never un-fails a point."""
    manifest, evidence, policy = situation
    green = [(plan, evaluated(plan, manifest, lambda _: PASSED)) for plan, _ in evidence]
    for shape_class in cover(TWO, manifest, [*evidence, *green], policy).classes:
        assert not any(admits_entry(shape_class, entry) for entry in failures(evidence))


@given(situations, st.data())
@settings(max_examples=100, deadline=None)
def test_failures_never_widen(situation, data):
    """No class can be claimed with more failures that could not be claimed without them."""
    manifest, evidence, policy = situation
    more = data.draw(recorded(manifest))
    worse = [
        (plan, evaluated(plan, manifest, lambda _: data.draw(st.sampled_from([WRONG, None]))))
        for plan, _ in more
    ]
    before = cover(TWO, manifest, evidence, policy)
    after = cover(TWO, manifest, [*evidence, *worse], policy)
    assert are_claimable(after.classes, manifest, evidence, policy)
    for shape_class in after.classes:
        assert all(shape_class.alignment_bytes >= c.alignment_bytes for c in before.classes)
        if policy.density is Density.EXACT:
            assert shape_class.axes in [c.axes for c in before.classes]
    if {reason.code for reason in before.rejected} & {"VALUE_DEPENDENT", "NOTHING_PASSED"}:
        assert after.rejected


@given(situations, st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_order_in_which_evidence_came_changes_nothing(situation, random):
    """Coverage is a function of the set of evaluations."""
    manifest, evidence, policy = situation
    shuffled = random.sample(evidence, len(evidence))
    assert cover(TWO, manifest, shuffled, policy) == cover(TWO, manifest, evidence, policy)


# Synthetic faults, met by the plans that are really made.

faults = st.one_of(
    st.tuples(st.just("residue"), st.sampled_from([2, 4, 8, 16, 32]), st.integers(0, 31)),
    st.tuples(st.just("threshold"), st.integers(1, 300), st.just(0)),
)


def faulty(fault: tuple[str, int, int], axes: Mapping[str, int]) -> bool:
    kind, number, residue = fault
    if kind == "threshold":
        return axes["K"] > number
    return axes["K"] % number == residue % number


@given(faults, st.sampled_from(list(Density)))
@settings(max_examples=40, deadline=None)
def test_no_synthetic_fault_slips_through_the_plan(fault, density):
    """EXACT admits no workload that did not itself pass. INFERRED admits no recorded failure, and no
    workload at all that fails by its residue modulo a divisor of the tile."""
    policy = Policy(density=density)
    served = [Workload(axes={"M": 64, "N": 64, "K": 200}, dtypes={"T": "float32"})]
    plan = make_plan(GEMM, TILED, digest_of(encode(TILED)), served, [], policy, "nonce")
    judge = wrong_where(lambda axes: faulty(fault, axes))
    classes = cover(GEMM, TILED, [(plan, evaluated(plan, TILED, judge))], policy).classes
    tested = {tuple(e.workload.axes.values()) for e in plan.entries}
    if density is Density.EXACT or fault[0] == "residue":
        asked = [dict(zip("MKN", p, strict=True)) for p in itertools.product((1, 64), range(205), (33, 64))]
    else:
        asked = [entry.workload.axes for entry in plan.entries]
    for axes in asked:
        if any(shape_class.admits(axes) for shape_class in classes):
            assert not faulty(fault, axes)
            assert density is Density.INFERRED or tuple(axes.values()) in tested


def test_failures_without_a_pattern_end_in_bounded_work():
    served = [Workload(axes={"M": 512, "N": 512, "K": 512}, dtypes={"T": "float32"})]
    plan = make_plan(GEMM, TILED, digest_of(encode(TILED)), served, [], Policy(), "nonce")
    scattered = wrong_where(lambda axes: hash(tuple(axes.values())) % 3 == 0)
    evidence = [(plan, evaluated(plan, TILED, scattered))]
    recorded_failures = failures(evidence)
    assert len(recorded_failures) > 100
    for shape_class in cover(GEMM, TILED, evidence, Policy()).classes:
        assert not any(admits_entry(shape_class, entry) for entry in recorded_failures)
