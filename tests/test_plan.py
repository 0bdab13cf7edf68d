"""The plan: what every artifact must face."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.artifacts import contract_of, entry_at, evaluated, explained, manifest_digest, manifest_of
from tilegate.evaluate.plan import MAX_ENTRIES, make_plan
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import decode, encode
from tilegate.records.contract import Attribute, Contract, NonFinite, ValueRange
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.plan import Entry, Layout, Origin, Plan, Values, Workload
from tilegate.records.policy import Density, Policy
from tilegate.rules.coverage import cover

GEMM = contract_of({"A": ("M", "K"), "B": ("K", "N")}, {"C": ("M", "N")})
TILED = manifest_of(GEMM, {"M": (32,), "N": (16,), "K": (64, 8)})
ROWS = contract_of({"x": ("n",)}, {"out": ("n",)})


def plan_for(
    contract: Contract,
    manifest: Manifest,
    served: Sequence[dict[str, int]] = (),
    regressions: Sequence[Entry] = (),
    policy: Policy = Policy(),
) -> Plan:
    workloads = [Workload(axes=axes, dtypes={"T": "float32"}) for axes in served]
    return make_plan(contract, manifest, manifest_digest(manifest), workloads, regressions, policy, "nonce")


def shapes(plan: Plan, origin: Origin) -> list[dict[str, int]]:
    return [entry.workload.axes for entry in plan.entries if entry.origin is origin]


def values_at(plan: Plan) -> list[Values]:
    found = [entry.values for entry in plan.entries if entry.origin is Origin.VALUES]
    return list(dict.fromkeys(found))


def all_passed(contract: Contract, manifest: Manifest, plan: Plan) -> list[str]:
    evaluation = evaluated(plan, manifest, lambda _: EntryVerdict.PASSED)
    return explained(cover(contract, manifest, [(plan, evaluation)], Policy()).classes)


@given(
    tile=st.sampled_from([1, 2, 3, 16, 48, 128, 1024]),
    largest=st.integers(1, 100_000),
    min_passes=st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_a_kernel_without_faults_is_covered_up_to_what_is_served(tile, largest, min_passes):
    """When every entry passes, the largest served extent and every whole tile below it are admitted; where
    residues had room in the plan, so is every extent, in one box."""
    manifest, policy = manifest_of(ROWS, {"n": (tile,)}), Policy(min_passes=min_passes)
    plan = plan_for(ROWS, manifest, [{"n": largest}], policy=policy)
    evaluation = evaluated(plan, manifest, lambda _: EntryVerdict.PASSED)
    classes = cover(ROWS, manifest, [(plan, evaluation)], policy).classes
    for extent in (*range(0, largest + 1, tile), largest):
        assert any(shape_class.admits({"n": extent}) for shape_class in classes)
    if len(plan.entries) < MAX_ENTRIES // 2:
        (box,) = classes
        assert (box.axes["n"].start, box.axes["n"].step) == (0, 1)
        assert box.axes["n"].stop >= largest


def test_three_axes_are_inferred_from_one_at_a_time():
    plan = plan_for(GEMM, TILED, [{"M": 100, "K": 700, "N": 50}])
    assert all_passed(GEMM, TILED, plan) == ["0 <= K <= 700, 0 <= M <= 100, 0 <= N <= 50"]


def test_nothing_served_still_gives_four_trips():
    plan = plan_for(GEMM, TILED)
    assert all_passed(GEMM, TILED, plan) == ["0 <= K <= 256, 0 <= M <= 128, 0 <= N <= 64"]


def test_a_small_untiled_axis_still_reaches_the_passes_policy_asks_for():
    manifest = manifest_of(ROWS, {})
    assert all_passed(ROWS, manifest, plan_for(ROWS, manifest, [{"n": 3}])) == ["0 <= n <= 8"]


def test_a_lost_tail_of_one_axis_cannot_fail_the_residues_of_another():
    plan = plan_for(GEMM, TILED, [{"M": 100, "K": 700, "N": 50}])
    tiles = {"M": 32, "N": 16, "K": 64}
    for axes in shapes(plan, Origin.RESIDUE):
        ragged = [axis for axis, tile in tiles.items() if axes[axis] % tile]
        moved = [axis for axis, tile in tiles.items() if axes[axis] != 2 * tile]
        assert len(ragged) <= len(moved) <= 1


def test_every_axis_dtype_and_attribute_of_the_artifact_is_fixed_in_every_workload():
    contract = structs.replace(GEMM, attributes=(Attribute(name="eps", kind="float", default=0.5),))
    manifest = manifest_of(contract, {"M": (32,)}, fixed={"K": 48, "N": 20})
    spec = structs.replace(manifest.elaboration.specialization, attributes={"eps": 0.25})
    manifest = structs.replace(
        manifest, elaboration=structs.replace(manifest.elaboration, specialization=spec)
    )
    plan = plan_for(contract, manifest)
    assert {entry.workload.axes["K"] for entry in plan.entries} == {48}
    assert {entry.workload.axes["N"] for entry in plan.entries} == {20}
    assert all(list(entry.workload.axes) == ["M", "K", "N"] for entry in plan.entries)
    assert all(entry.workload.dtypes == {"T": "float32"} for entry in plan.entries)
    assert all(entry.workload.attributes == {"eps": 0.25} for entry in plan.entries)


def test_served_shapes_of_another_specialization_are_left_out():
    contract = structs.replace(GEMM, attributes=(Attribute(name="eps", kind="float", default=0.5),))
    manifest = manifest_of(contract, {"M": (32,)}, fixed={"K": 48})
    served = [
        Workload(axes={"M": 3, "K": 48, "N": 5}, dtypes={"T": "float32"}, attributes={"eps": 0.5}),
        Workload(axes={"M": 4, "K": 64, "N": 5}, dtypes={"T": "float32"}),
        Workload(axes={"M": 5, "K": 48, "N": 5}, dtypes={"T": "float16"}),
        Workload(axes={"M": 6, "K": 48, "N": 5}, dtypes={"T": "float32"}, attributes={"eps": 0.1}),
        Workload(axes={"K": 48, "N": 5}, dtypes={"T": "float32"}),
    ]
    plan = make_plan(contract, manifest, manifest_digest(manifest), served, [], Policy(), "nonce")
    assert shapes(plan, Origin.SERVED) == [{"M": 3, "K": 48, "N": 5}]


def test_empty_single_and_almost_whole_tiles_are_faced():
    plan = plan_for(ROWS, manifest_of(ROWS, {"n": (32,)}), [{"n": 1000}])
    tried = {e.workload.axes["n"] for e in plan.entries if e.values is Values.NORMAL}
    assert {0, 1, 31, 32, 33, 64, 7, 127, 999, 1000} <= tried
    assert max(tried) == 1000


def test_tails_of_all_axes_at_once_are_faced():
    boundaries = shapes(plan_for(GEMM, TILED), Origin.BOUNDARY)
    assert {"M": 33, "N": 17, "K": 65} in boundaries
    assert {"M": 1, "N": 1, "K": 1} in boundaries
    assert {"M": 32, "N": 17, "K": 1} in boundaries


def test_values_and_layouts_are_tried_where_normal_values_are_too():
    plan = plan_for(GEMM, TILED, [{"M": 40, "K": 100, "N": 20}])
    normal = [e.workload for e in plan.entries if e.values is Values.NORMAL and e.layout is Layout.ALIGNED]
    for origin in (Origin.VALUES, Origin.LAYOUT):
        others = [entry.workload for entry in plan.entries if entry.origin is origin]
        assert {tuple(w.axes.values()) for w in others} == {(64, 128, 32), (40, 100, 20)}
        assert all(workload in normal for workload in others)


@pytest.mark.parametrize(
    ("dtype", "declared", "non_finite", "expected"),
    [
        ("float32", None, NonFinite.EXCLUDED, "zeros negative tiny huge mixed"),
        ("float16", None, NonFinite.PROPAGATED, "zeros negative tiny huge mixed nan inf"),
        ("int32", None, NonFinite.PROPAGATED, "zeros negative extremes"),
        ("uint8", None, NonFinite.EXCLUDED, "zeros extremes"),
        ("bool", None, NonFinite.PROPAGATED, ""),
        ("float32", (1.0, 2.0), NonFinite.EXCLUDED, "tiny huge mixed"),
        ("float32", (0.0, 2.0), NonFinite.PROPAGATED, "zeros tiny huge mixed"),
        ("int64", (-5.0, -1.0), NonFinite.EXCLUDED, "negative extremes"),
    ],
)
def test_value_classes_are_those_that_the_inputs_can_hold(dtype, declared, non_finite, expected):
    values = {"x": ValueRange(low=declared[0], high=declared[1])} if declared else {}
    contract = contract_of(
        {"x": ("n",)}, {"out": ("n",)}, dtypes={"x": dtype}, values=values, non_finite=non_finite
    )
    plan = plan_for(contract, manifest_of(contract, {"n": (8,)}))
    assert " ".join(values.value for values in values_at(plan)) == expected


def test_one_input_that_may_be_zero_is_enough_to_try_zeros():
    values = {"x": ValueRange(low=1.0, high=2.0)}
    contract = contract_of({"x": ("n",), "y": ("n",)}, {"out": ("n",)}, values=values)
    assert Values.ZEROS in values_at(plan_for(contract, manifest_of(contract, {})))


def test_a_regression_is_faced_again_and_only_by_artifacts_that_it_fits():
    failed = entry_at({"n": 5_000}, values=Values.HUGE, layout=Layout.OFFSET)
    foreign = structs.replace(failed, workload=Workload(axes={"n": 9}, dtypes={"T": "float16"}))
    plan = plan_for(ROWS, manifest_of(ROWS, {"n": (8,)}), regressions=[failed, foreign, failed])
    again = [entry for entry in plan.entries if entry.origin is Origin.REGRESSION]
    assert again == [structs.replace(failed, origin=Origin.REGRESSION)]


def test_a_failure_with_values_that_the_contract_excludes_by_now_is_not_held_against_it():
    failed = [entry_at({"n": 5}, values=Values.NAN), entry_at({"n": 5}, values=Values.HUGE)]
    plan = plan_for(ROWS, manifest_of(ROWS, {"n": (8,)}), regressions=failed)
    again = [entry.values for entry in plan.entries if entry.origin is Origin.REGRESSION]
    assert (ROWS.non_finite, again) == (NonFinite.EXCLUDED, [Values.HUGE])


def test_a_regression_is_never_thinned_away():
    failed = [entry_at({"n": n}) for n in range(100_000, 100_000 + MAX_ENTRIES)]
    plan = plan_for(ROWS, manifest_of(ROWS, {}), regressions=failed)
    assert len(shapes(plan, Origin.REGRESSION)) == MAX_ENTRIES


def test_large_tiles_are_thinned_to_fit_and_their_multiples_still_inferred():
    manifest = manifest_of(ROWS, {"n": (1024,)})
    plan = plan_for(ROWS, manifest, [{"n": 1_000_000}])
    assert len(plan.entries) <= MAX_ENTRIES
    assert all_passed(ROWS, manifest, plan)[0] == "n % 4 == 0 and 0 <= n <= 1000000"


def test_many_served_shapes_leave_the_plan_within_its_size():
    served = [{"M": m, "K": k, "N": 16} for m in range(1, 101) for k in range(1, 51)]
    plan = plan_for(GEMM, TILED, served)
    assert len(plan.entries) <= MAX_ENTRIES
    assert shapes(plan, Origin.SERVED)[:2] == [{"M": 1, "K": 1, "N": 16}, {"M": 1, "K": 2, "N": 16}]


def test_an_exact_policy_tries_no_residues():
    plan = plan_for(GEMM, TILED, [{"M": 40, "K": 100, "N": 20}], policy=Policy(density=Density.EXACT))
    assert shapes(plan, Origin.RESIDUE) == []
    assert shapes(plan, Origin.SERVED) == [{"M": 40, "K": 100, "N": 20}]


def test_an_artifact_without_symbols_faces_its_one_shape():
    manifest = manifest_of(ROWS, {}, fixed={"n": 64})
    plan = plan_for(ROWS, manifest, [{"n": 64}])
    assert {entry.workload.axes["n"] for entry in plan.entries} == {64}
    assert [entry.origin for entry in plan.entries if entry.values is Values.NORMAL] == [
        Origin.SERVED,
        Origin.LAYOUT,
    ]


@given(
    tiles=st.dictionaries(st.sampled_from("MNK"), st.tuples(st.sampled_from([1, 8, 24, 64])), max_size=3),
    served=st.lists(
        st.fixed_dictionaries({axis: st.integers(0, 300) for axis in "MNK"}), max_size=4, unique_by=str
    ),
)
@settings(max_examples=40, deadline=None)
def test_a_plan_is_a_function_of_its_arguments_and_a_record(tiles, served):
    """The same arguments give the same plan, every entry once, served first, in bytes that decode to it."""
    manifest = manifest_of(GEMM, tiles)
    plan = plan_for(GEMM, manifest, served)
    assert plan == plan_for(GEMM, manifest, served)
    assert decode(Plan, encode(plan), where="the test") == plan
    keys = [(tuple(e.workload.axes.items()), e.layout, e.values) for e in plan.entries]
    assert len(set(keys)) == len(keys) <= MAX_ENTRIES
    assert [e.workload.axes for e in plan.entries[: len(served)]] == served
    assert (plan.contract, plan.manifest) == (GEMM.digest, manifest_digest(manifest))
