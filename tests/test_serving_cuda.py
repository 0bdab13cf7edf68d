"""Serving on GPUs through the same guard: placed right, refused with a reason, and never a wrong launch.

The driver is the stand-in, and so are the tensors: what is under test is all between them.
"""

from __future__ import annotations

import linecache

import pytest
import torch

import tilegate
from tests import world
from tests.driver import hosts
from tests.driver.hosts import host, launch, pointer
from tests.driver.standin import kernel
from tests.gpus import H200, L4, T4, GpuTensor, part
from tilegate.errors import DeviceError, UsageError
from tilegate.records.miss import Miss, MissReason
from tilegate.records.shape import Range, ShapeClass


@tilegate.operator(
    inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="gpu_twice", served=[{"n": 4}]
)
def twice(x):
    return 2 * x


@tilegate.operator(
    inputs={"x": "float32[n]"}, outputs={"x": "float32[n]"}, name="gpu_twice_in_place", in_place=("x",)
)
def twice_(x):
    return x.mul_(2)


@tilegate.operator(
    inputs={"x": "float32[n]", "w": "float32[n]"}, outputs={"y": "float32[n]"}, name="gpu_weighted"
)
def weighted(x, w):
    return 2 * x


IN_PLACE = host(launch(pointer("AT(0)->data"), name="first"), launch(pointer("AT(0)->data"), name="second"))
TWO = (kernel("pointer", name="first"), kernel("pointer", name="second"))
WEIGHTED = host(launch(pointer("AT(0)->data"), pointer("AT(2)->data"), hosts.integer("n")))


@pytest.fixture(autouse=True)
def nothing_in_force():
    tilegate.synchronized()
    yield
    tilegate.use(None)
    tilegate.reference_only(mode=False)
    tilegate.api._force.lost.clear()


def serve(folder, *parts, **kwargs):
    world.write_parts(folder, *parts, **kwargs)
    return tilegate.use(folder, allow_unsigned=True)


def on_cpu(operator=twice, **kwargs):
    return world.part(operator.contract(), world.SCALE, "FACTOR=3", **kwargs)


def counted(name="gpu_twice"):
    found = tilegate.stats()[name]
    return sum(found.hits.values()), found.misses


def served(driver, before=0):
    return [line["device"] for line in driver.launches()[before:]]


def launch_number(driver, call, nth):
    """Which of the driver's functions, in the order in which a call asks them, is its nth launch."""
    call()
    driver.forget()
    call()
    return [i for i, name in enumerate(driver.calls(), 1) if name == "cuLaunchKernel"][nth - 1]


REFERENCE = "reference times 2"


# Where an artifact runs


def test_a_call_launches_on_the_device_of_its_tensor_and_is_counted(tmp_path, machine):
    driver = machine(H200, H200)
    serve(tmp_path, part(twice.contract()))
    for device in (0, 1, 0):
        found = twice(GpuTensor(300, device=device))
        assert (found.shape, found.get_device()) == ((300,), device)
    assert served(driver) == [0, 1, 0]
    assert counted() == (3, {})


def test_tensors_of_processor_and_gpu_are_each_served_by_their_own_artifact(tmp_path, machine):
    driver = machine(H200)
    serve(tmp_path, part(twice.contract()), on_cpu())
    assert twice(torch.ones(4)).tolist() == [3] * 4
    assert driver.launches() == []
    assert twice(GpuTensor(4)).get_device() == 0
    assert served(driver) == [0]
    hits = tilegate.stats()["gpu_twice"].hits
    assert {name.partition(" (")[0]: n for name, n in hits.items()} == {
        "body for cuda:sm_90a": 1,
        "body for cpu:x86-64-v2": 1,
    }
    assert twice.explain(torch.ones(4)).target == "cpu:x86-64-v2"
    assert twice.explain(GpuTensor(4)).target == "cuda:sm_90a"


def test_each_of_several_gpus_is_given_code_for_its_own_architecture(tmp_path, machine):
    """A library for another architecture would fail to load there, at every call."""
    driver = machine(H200, L4, T4)
    told = serve(tmp_path, part(twice.contract()), part(twice.contract(), "sm_89"), on_cpu())
    for device in (0, 1, 2, 0):
        twice(GpuTensor(4, device=device))
    assert served(driver) == [0, 1, 0]
    assert driver.state()["retained"] == [1, 1, 0, 0]
    assert twice(torch.ones(4)).tolist() == [3] * 4
    assert twice(GpuTensor(4, device=2)) == REFERENCE
    assert counted() == (4, {"no artifact for this device (cuda:2)": 2})
    assert twice.explain(GpuTensor(4, device=2)).misses == (
        Miss(reason=MissReason.NO_DEVICE_CLASS, detail="cuda:2"),
    )
    assert [
        line.partition(" (")[0] + line.partition(")")[2]
        for line in sorted(told.served["gpu_twice"], reverse=True)
    ] == [
        "body for cuda:sm_90a on cuda:0",
        "body for cuda:sm_89 on cuda:1",
        "body for cpu:x86-64-v2 on cpu",
    ]
    assert "built for cuda:sm_90a; this is cuda:sm_89 (NVIDIA L4) (on cuda:1)" in told.skipped[0]


def test_of_code_that_a_gpu_can_run_the_best_is_asked_first(tmp_path, machine):
    machine(L4)
    tight = [world.any_shape(("n",), stop=8)]
    serve(tmp_path, part(twice.contract(), "sm_80"), part(twice.contract(), "sm_89", classes=tight))
    assert twice.explain(GpuTensor(4)).target == "cuda:sm_89"
    assert twice.explain(GpuTensor(9)).target == "cuda:sm_80"
    twice(GpuTensor(9))
    assert counted() == (1, {})


def test_gpus_without_an_artifact_are_never_launched_on(tmp_path, machine):
    driver = machine(H200, T4)
    serve(tmp_path, part(twice.contract()))
    assert twice(GpuTensor(4, device=1)) == REFERENCE
    assert twice(torch.ones(4)).tolist() == [2] * 4
    assert driver.calls() == []
    assert counted()[1] == {
        "no artifact for this device (cuda:1)": 2,
    }


def test_on_one_kind_of_gpu_the_text_asks_nothing_of_the_device(tmp_path, machine):
    machine(H200, H200)
    serve(tmp_path / "gpu", part(twice.contract()))
    text = "".join(linecache.getlines("<tilegate call site: gpu_twice>"))
    assert "is_cuda" not in text
    assert "get_device" not in text
    x = torch.ones(4)
    assert twice(x).tolist() == [2] * 4
    assert counted() == (0, {"tensor is on another device (x)": 1})


# What cannot run here is told when the release is loaded


def test_a_missing_driver_is_told_at_load_and_calls_go_to_the_reference(tmp_path, monkeypatch):
    monkeypatch.setattr("tilegate.device.DRIVER", str(tmp_path / "libcuda.so.1"))
    told = serve(
        tmp_path / "release", part(twice.contract()), part(twice_.contract(), host=IN_PLACE, kernels=TWO)
    )
    assert told.references["gpu_twice"] == "no artifact for this device"
    assert told.skipped[0] == (
        "body of gpu_twice: built for cuda:sm_90a; this process sees no GPU: its driver is missing, does not "
        "work, or hides them"
    )
    assert twice(torch.ones(4)).tolist() == [2] * 4
    explained = twice.explain(torch.ones(4))
    assert explained.misses == (Miss(reason=MissReason.NO_DEVICE_CLASS),)
    assert str(explained).endswith(told.skipped[0])
    assert counted() == (0, {"no artifact for this device": 1})


def test_a_driver_that_is_too_old_is_told_at_load_and_never_asked(tmp_path, machine):
    driver = machine(H200, speaks="11.8")
    told = serve(tmp_path, part(twice.contract()), on_cpu())
    assert told.skipped == ("body of gpu_twice: its driver speaks CUDA 11.8, and 12.0 is needed",)
    assert twice(GpuTensor(4)) == REFERENCE
    assert twice(torch.ones(4)).tolist() == [3] * 4
    assert driver.calls() == []


def test_code_for_another_architecture_is_told_at_load(tmp_path, machine):
    driver = machine(T4)
    told = serve(tmp_path, part(twice.contract()))
    assert told.skipped == ("body of gpu_twice: built for cuda:sm_90a; this is cuda:sm_75 (Tesla T4)",)
    assert twice(GpuTensor(4)) == REFERENCE
    assert driver.calls() == []
    text = str(told)
    assert "gpu_twice: the reference (no artifact for this device)" in text
    assert "not here: body of gpu_twice" in text


def test_a_release_without_code_for_gpus_does_not_ask_for_any(tmp_path, monkeypatch):
    def gpus():
        raise AssertionError("the driver was asked")

    monkeypatch.setattr("tilegate.device.gpus", gpus)
    assert serve(tmp_path, on_cpu()).skipped == ()


def test_preflight_speaks_of_the_device_that_is_meant(tmp_path, machine):
    machine(H200, T4)
    small = [world.any_shape(("n",), stop=2)]
    serve(tmp_path, part(twice.contract()), on_cpu(classes=small))

    def answer(device=None):
        (found,) = (p for p in tilegate.preflight(device=device) if p.line.operator == "gpu_twice")
        return found.served_by or found.miss.reason

    assert answer() == answer("cuda") == answer("cuda:0") == "body for cuda:sm_90a"
    assert answer("cpu") is MissReason.SHAPE_CLASS
    assert answer("cuda:1") is MissReason.NO_DEVICE_CLASS
    with pytest.raises(UsageError, match="cuda:7"):
        answer("cuda:7")


# Faults


def test_a_dead_context_raises_once_told_and_runs_no_reference_there(tmp_path, machine):
    driver = machine(H200, H200)
    serve(tmp_path, part(twice.contract()), part(weighted.contract(), host=WEIGHTED, kernels=(hosts.SCALE_KERNEL,)), on_cpu())  # fmt: skip
    weighted(GpuTensor(4), GpuTensor(4))
    tilegate.synchronized()
    twice(GpuTensor(4))
    driver.make_sticky(700)
    with pytest.raises(DeviceError, match="cuda:0 is lost to this process") as caught:
        weighted(GpuTensor(4), GpuTensor(4))
    told = caught.value
    assert (told.device, [s.partition(" (")[0] for s in told.suspects]) == (
        "cuda:0",
        ["body for cuda:sm_90a"] * 2,
    )
    assert "driver error 700: illegal address" in told.why
    assert "restart the process" in told.next_step
    driver.make_sticky(0)
    launched = len(driver.launches())
    with pytest.raises(DeviceError, match="cuda:0 is lost"):
        twice(GpuTensor(4))
    with tilegate.reference_only(), pytest.raises(DeviceError, match="cuda:0 is lost"):
        twice(GpuTensor(4))
    assert len(driver.launches()) == launched
    assert twice.explain(GpuTensor(4)).misses == (Miss(reason=MissReason.STICKY),)
    assert twice(torch.ones(4)).tolist() == [3] * 4
    assert twice(GpuTensor(4, device=1)).get_device() == 1


def test_suspects_are_those_called_since_the_device_was_known_to_be_good(tmp_path, machine):
    machine(H200)
    serve(tmp_path / "a", part(twice.contract()), part(weighted.contract(), host=WEIGHTED, kernels=(hosts.SCALE_KERNEL,), kernel="other"))  # fmt: skip
    twice(GpuTensor(4))
    assert [s.partition(" for")[0] for s in tilegate.suspects()] == ["body"]
    serve(tmp_path / "b", part(twice.contract()))
    assert [s.partition(" for")[0] for s in tilegate.suspects()] == ["body"], (
        "what ran before the new release"
    )
    tilegate.synchronized()
    assert tilegate.suspects() == ()
    twice(GpuTensor(4))
    assert [s.partition(" for")[0] for s in tilegate.suspects()] == ["body"]


@pytest.mark.parametrize(
    ("error", "words"), [(2, "out of memory"), (209, "no code for this GPU"), (999_9, "9999")]
)
def test_a_driver_that_refuses_before_anything_ran_leaves_the_call_to_the_reference(
    tmp_path, machine, error, words
):
    driver = machine(H200)
    serve(tmp_path, part(twice.contract()), part(twice_.contract(), host=IN_PLACE, kernels=TWO))
    driver.fail(1, error)
    assert twice(GpuTensor(4)) == REFERENCE
    assert counted()[1] == {f"the device's driver refused (driver error {error}{'' if words.isdigit() else ': ' + words})": 1}  # fmt: skip
    assert twice(GpuTensor(4)).get_device() == 0
    x = GpuTensor(4)
    twice_(x)
    assert x.touched == 1
    driver.fail(launch_number(driver, lambda: twice_(x), 1), error)
    twice_(x)
    assert x.touched == 2, "the reference, on what was intact"


def test_a_call_that_stops_between_two_kernels_is_not_repeated_on_half_written_inputs(tmp_path, machine):
    driver = machine(H200)
    serve(tmp_path, part(twice_.contract(), host=IN_PLACE, kernels=TWO))
    x = GpuTensor(4)
    second = launch_number(driver, lambda: twice_(x), 2)
    for _ in range(2):
        driver.fail(second, 701)
        with pytest.raises(DeviceError, match="stopped half way") as caught:
            twice_(x)
    assert "too many resources" in caught.value.why
    assert (caught.value.suspects, x.touched) == ((), 2), "neither the reference nor the version counter"
    twice_(x)
    assert counted("gpu_twice_in_place")[1] == {
        "the device's driver refused (driver error 701: too many resources for one launch)": 2
    }


def test_a_call_that_stops_between_two_kernels_into_fresh_outputs_is_the_references(tmp_path, machine):
    driver = machine(H200)
    body = host(launch(pointer("AT(1)->data"), name="first"), launch(pointer("AT(1)->data"), name="second"))
    serve(tmp_path, part(twice.contract(), host=body, kernels=TWO))
    driver.fail(launch_number(driver, lambda: twice(GpuTensor(4)), 2), 701)
    assert twice(GpuTensor(4)) == REFERENCE


def test_behind_a_fault_no_other_artifact_is_tried(tmp_path, machine):
    """The second artifact would start from what the first has half written."""
    driver = machine(H200)
    first = part(twice_.contract(), host=IN_PLACE, kernels=TWO, kernel="first")
    serve(tmp_path, first, part(twice_.contract(), host=IN_PLACE, kernels=TWO, kernel="second"))
    x = GpuTensor(4)
    driver.fail(launch_number(driver, lambda: twice_(x), 2), 701)
    launched = len(driver.launches())
    with pytest.raises(DeviceError, match="stopped half way"):
        twice_(x)
    assert len(driver.launches()) == launched + 1


# Calls that are not as they should be

SMALL = [ShapeClass(axes={"n": Range(start=0, stop=64)}, alignment_bytes=4)]


class Subclass(GpuTensor):
    pass


def with_grad(x):
    x.requires_grad = True
    return x


def shifted(x):
    x.address += 2
    return x


BAD = {
    "another dtype": (lambda: (GpuTensor(4, bits=64), GpuTensor(4)), MissReason.DTYPE),
    "another rank": (lambda: (GpuTensor(4, 1), GpuTensor(4, 1)), MissReason.RANK),
    "tensors on two devices": (lambda: (GpuTensor(4), GpuTensor(4, device=1)), MissReason.DEVICE),
    "a tensor of the processor among them": (lambda: (GpuTensor(4), torch.ones(4)), MissReason.DEVICE),
    "the processor's alone": (lambda: (torch.ones(4), torch.ones(4)), MissReason.DEVICE),
    "a tensor without memory": (lambda: (torch.ones(4, device="meta"), torch.ones(4, device="meta")), None),
    "tensors that disagree": (lambda: (GpuTensor(4), GpuTensor(5)), MissReason.SYMBOL),
    "misaligned": (lambda: (shifted(GpuTensor(4)), GpuTensor(4)), MissReason.ALIGNMENT),
    "beyond evidence": (lambda: (GpuTensor(65), GpuTensor(65)), MissReason.SHAPE_CLASS),
    "a subclass": (lambda: (Subclass(4), GpuTensor(4)), MissReason.TENSOR_TYPE),
    "a wanted gradient": (lambda: (with_grad(GpuTensor(4)), GpuTensor(4)), MissReason.GRAD),
    "a number": (lambda: (GpuTensor(4), 1.0), MissReason.TENSOR_TYPE),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_is_the_references_and_nothing_is_launched(tmp_path, machine, name):
    driver = machine(H200, H200)
    serve(tmp_path, part(weighted.contract(), host=WEIGHTED, kernels=(hosts.SCALE_KERNEL,), classes=SMALL))
    make, reason = BAD[name]
    arguments = make()
    expected = weighted.reference(*arguments)
    found = weighted(*arguments)
    assert found == expected if isinstance(expected, str) else found.shape == expected.shape
    assert driver.calls() == []
    hits, misses = counted("gpu_weighted")
    assert (hits, sum(misses.values())) == (0, 1)
    if reason is not None:
        assert next(iter(misses)).startswith(reason.value)


def test_no_elements_are_served_without_a_launch(tmp_path, machine):
    driver = machine(H200)
    serve(tmp_path, part(weighted.contract(), host=WEIGHTED, kernels=(hosts.SCALE_KERNEL,), classes=SMALL))
    assert weighted(GpuTensor(0), GpuTensor(0)).shape == (0,)
    assert driver.launches() == []
    assert counted("gpu_weighted") == (1, {})


def test_more_elements_than_32_bits_can_count_are_refused_before_memory_is_made(tmp_path, machine):
    """Only metadata says so: the guard must not look further."""
    driver = machine(H200)
    serve(tmp_path, part(weighted.contract(), host=WEIGHTED, kernels=(hosts.SCALE_KERNEL,)))
    x, w = GpuTensor(4), GpuTensor(4)
    for one in (x, w):
        one._shape[0] = 2**31
    assert weighted(x, w) == REFERENCE
    assert counted("gpu_weighted")[1] == {"an extent is beyond int32 (x: n=4)": 1}
    assert driver.calls() == []
