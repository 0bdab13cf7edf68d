"""The CUDA launcher over a stand-in driver: what one call asks, in which order, with which bytes."""

from __future__ import annotations

import struct
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import world
from tests.driver import hosts
from tests.driver.hosts import (
    PAIR,
    READY,
    SCALE,
    SCALE_KERNEL,
    TWO_DEEP,
    TWO_KERNELS,
    floating,
    host,
    integer,
    launch,
    pair,
    pointer,
)
from tests.driver.standin import DeviceTensor, driver_error, kernel, opened, reason, standin
from tilegate.records.miss import MissReason

WIDE = world.contract_of({"x": ("n",)}, {"y": ("n",)}, dtype="float64")
# One call.


def test_a_call_pushes_launches_and_pops_and_asks_nothing_else(driver):
    scale = opened(PAIR, SCALE, SCALE_KERNEL)
    x, y = pair()
    assert scale(x, y) == 0
    driver.forget()
    assert scale(x, y) == 0
    assert driver.calls() == READY


def test_a_launch_carries_the_grid_and_the_bytes_of_every_argument(driver):
    x, y = pair(n=300)
    assert opened(PAIR, SCALE, SCALE_KERNEL)(x, y) == 0
    [seen] = driver.launches()
    assert (seen["grid"], seen["block"], seen["shared"]) == ([2, 1, 1], [256, 1, 1], 0)
    packed = [struct.pack("<Q", x.address), struct.pack("<Q", y.address), struct.pack("<i", 300)]
    assert seen["parameters"] == [p.hex() for p in packed]


SCALARS = [
    ("bool", "<?", True), ("int8", "<b", -128), ("int16", "<h", -32768), ("int32", "<i", -(2**31)),
    ("int64", "<q", -(2**63) + 1), ("uint8", "<B", 255), ("uint16", "<H", 65535), ("uint32", "<I", 2**32 - 1),
    ("uint64", "<Q", 2**64 - 2), ("float16", "<e", 0.333251953125), ("float32", "<f", 1 / 3), ("float64", "<d", 1 / 3),
]  # fmt: skip


def test_a_scalar_of_any_width_arrives_with_its_own_bytes(driver):
    values = [floating(v) if "float" in kind else integer(f"{int(v)}ull") for kind, _, v in SCALARS]
    values = [v.replace("-9223372036854775807ull", "-9223372036854775807ll") for v in values]
    scalars = opened(PAIR, host(launch(*values)), kernel(*(kind for kind, _, _ in SCALARS)))
    assert scalars(*pair()) == 0
    [seen] = driver.launches()
    assert seen["parameters"] == [struct.pack(code, v).hex() for _, code, v in SCALARS]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int32", 2**31), ("uint32", -1), ("int8", 128), ("uint8", 256), ("bool", 2), ("uint16", -1)],
)
def test_a_number_that_the_kernel_would_truncate_is_refused(driver, kind, value):
    code = opened(PAIR, host(launch(integer(f"{value}ll"))), kernel(kind))(*pair())
    assert reason(code) is MissReason.HOST
    assert driver.launches() == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int32", floating(1.0)), ("float32", integer(1)), ("pointer", integer(64)), ("tensor_map", pointer("NULL")),
     ("int64", pointer("AT(0)->data"))],
)  # fmt: skip
def test_an_argument_of_another_kind_is_refused(driver, kind, value):
    assert reason(opened(PAIR, host(launch(value)), kernel(kind))(*pair())) is MissReason.HOST
    assert driver.launches() == []


def test_too_few_arguments_are_not_read_past_the_end(driver):
    assert (
        reason(opened(PAIR, host(launch(integer(1))), kernel("int32", "int32"))(*pair())) is MissReason.HOST
    )


def test_a_name_that_the_launcher_does_not_know_is_refused(driver):
    strange = opened(PAIR, host(hosts.packed("__tvm_something_new", integer(1))), SCALE_KERNEL)
    assert reason(strange(*pair())) is MissReason.HOST


@pytest.mark.parametrize(
    "step",
    [
        hosts.packed("__tvm_set_device", integer(2), integer("dev_id + 1")),
        hosts.packed("__tvm_set_device", integer(1), integer("dev_id")),
        hosts.allocate("64").replace("dev_id", "dev_id + 1"),
        hosts.FREE,
    ],
)
def test_host_code_that_means_another_device_or_memory_is_refused(driver, step):
    assert reason(opened(PAIR, host(step, launch()), kernel())(*pair())) is MissReason.HOST
    assert driver.launches() == []


@pytest.fixture(scope="module")
def narrowing():
    body = hosts.launch(floating("*(double*)AT(0)->data"), floating("*(double*)AT(0)->data"))
    standin().fresh()
    return opened(WIDE, host(body), kernel("float16", "bfloat16"))


def nearest(value, exponent_bits, mantissa_bits):
    """Bits of a finite double in a narrower format: to nearest, ties to even, by exact fractions."""
    bias = 2 ** (exponent_bits - 1) - 1
    exact = abs(Fraction(value))
    exponent = 1 - bias
    while exact >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = round(exact / Fraction(2) ** (exponent - mantissa_bits))  # Python rounds ties to even
    bits = steps + ((exponent + bias - 1) << mantissa_bits)
    infinity = (2**exponent_bits - 1) << mantissa_bits
    sign = 1 if struct.pack(">d", value)[0] & 0x80 else 0
    return min(bits, infinity) | sign << (exponent_bits + mantissa_bits)


@settings(deadline=None, max_examples=300)
@given(
    value=st.floats(allow_nan=False, allow_infinity=False) | st.floats(-70000, 70000) | st.floats(-1e-7, 1e-7)
)
@example(value=65519.99999999999)
@example(value=65520.0)
@example(value=2049.0)
@example(value=1.0 + 2**-11 + 2**-40)  # through float32 this would be a tie
@example(value=2.0**-25)
@example(value=2.0**-25 + 2.0**-60)
@example(value=-0.0)
@example(value=5e-324)
def test_a_half_is_the_nearest_to_the_double(narrowing, value):
    """The bits of a float16 or bfloat16 argument are the nearest to the double that the host code passes."""
    driver = standin()
    driver.forget()
    assert narrowing(DeviceTensor(1, values=[value], bits=64), DeviceTensor(1, bits=64)) == 0
    expected = [nearest(value, 5, 10), nearest(value, 8, 7)]
    [seen] = driver.launches()
    assert seen["parameters"] == [struct.pack("<H", bits).hex() for bits in expected]


@pytest.mark.parametrize(
    ("value", "bits"), [(float("inf"), 0x7C00), (float("-inf"), 0xFC00), (float("nan"), 0x7E00)]
)
def test_an_infinity_or_nan_stays_one_in_half(narrowing, value, bits):
    standin().forget()
    assert narrowing(DeviceTensor(1, values=[value], bits=64), DeviceTensor(1, bits=64)) == 0
    [seen] = standin().launches()
    assert seen["parameters"][0] == struct.pack("<H", bits).hex()


# Tensor maps.


def test_a_tensor_map_is_encoded_by_the_driver_and_passed_by_value(driver):
    mapped = opened(PAIR, host(hosts.tiled([128, "n"]), launch(pointer("map"))), kernel("tensor_map"))
    x, y = pair()
    assert mapped(x, y) == 0
    [made] = [line for line in driver.log() if "map" in line]
    assert made == {
        "map": "tiled", "dtype": 6, "address": x.address, "extents": [128, 300], "strides": [256],
        "box": [32, 64], "steps": [1, 1], "format": [0, 2, 3, 0],
    }  # fmt: skip
    [seen] = driver.launches()
    assert seen["parameters"] == [struct.pack("<16Q", *(x.address + i for i in range(16))).hex()]


def test_an_im2col_map_gives_channels_and_pixels_in_the_drivers_order(driver):
    numbers = [64, 7, 9, 2, 2, 128, 896, 8064, 1, 1, 1, 1, -1, -2, -3, -4, 17, 33, 0, 3, 2, 0]
    values = [pointer("map"), integer(6), integer(4), pointer("AT(0)->data"), *map(integer, numbers)]
    mapped = opened(
        PAIR,
        host(hosts.packed("__tvm_tensormap_create_im2col", *values), launch(pointer("map"))),
        kernel("tensor_map"),
    )
    x, y = pair()
    assert mapped(x, y) == 0
    [made] = [line for line in driver.log() if "map" in line]
    assert made == {
        "map": "im2col", "dtype": 6, "address": x.address, "extents": [64, 7, 9, 2], "strides": [128, 896, 8064],
        "lower": [-1, -2], "upper": [-3, -4], "steps": [1, 1, 1, 1], "channels": 33, "pixels": 17,
        "format": [0, 3, 2, 0],
    }  # fmt: skip


@pytest.mark.parametrize("extents", [[128], [128, 1, 1], [128, 1, 7, 7, 7, 7]])
def test_a_tensor_map_of_another_rank_than_it_says_is_refused(driver, extents):
    code = opened(PAIR, host(hosts.tiled(extents), launch(pointer("map"))), kernel("tensor_map"))(*pair())
    assert reason(code) is MissReason.HOST
    assert driver.launches() == []


# Nothing to do, and too much.


def test_an_empty_grid_is_launched_by_doing_nothing(driver):
    assert opened(PAIR, SCALE, SCALE_KERNEL)(*pair(n=0)) == 0
    assert driver.launches() == []


def test_a_map_of_an_empty_tensor_is_no_error_where_the_grid_is_empty(driver):
    mapped = opened(PAIR, host(hosts.tiled([128, "n"]), launch(pointer("map"))), kernel("tensor_map"))
    assert mapped(*pair(n=0)) == 0
    assert "cuTensorMapEncodeTiled" not in driver.calls()


def test_a_kernel_is_not_launched_over_a_map_of_an_empty_tensor(driver):
    body = [hosts.tiled([128, "n"]), launch(pointer("map"), numbers=[1, 256, 1, 1])]
    code = opened(PAIR, host(*body), kernel("tensor_map"))(*pair(n=0))
    assert (reason(code), driver_error(code)) == (MissReason.DRIVER, 1)
    assert driver.launches() == []


GRIDS = "grid_x grid_y grid_z block_x block_y block_z dynamic_shared"


@pytest.mark.parametrize(
    "numbers",
    [
        [2**31, 1, 1, 256, 1, 1, 0], [1, 65536, 1, 256, 1, 1, 0], [1, 1, 65536, 256, 1, 1, 0],
        [-1, 1, 1, 256, 1, 1, 0], [2**32, 1, 1, 256, 1, 1, 0], [1, 1, 1, 0, 1, 1, 0], [1, 1, 1, 1025, 1, 1, 0],
        [1, 1, 1, 1, 1, 65, 0], [1, 1, 1, 32, 33, 1, 0], [1, 1, 1, 2**32 + 1, 1, 1, 0], [1, 1, 1, 256, 1, 1, 65537],
        [1, 1, 1, 256, 1, 1, -1], [1, 1, 1, 256, 1, 1, 2**32],
    ],
)  # fmt: skip
def test_a_launch_beyond_a_limit_is_refused_before_the_driver_is_asked(driver, numbers):
    big = kernel(launch=GRIDS, max_dynamic_shared_bytes=65536)
    code = opened(PAIR, host(launch(numbers=[f"{n}ll" for n in numbers])), big)(*pair())
    assert reason(code) is MissReason.DIMENSIONS
    assert driver.launches() == []


def test_a_second_kernel_that_is_refused_tells_that_the_first_has_run(driver):
    body = host(launch(name="first"), launch(name="second", numbers=["2147483648ll", 256, 1, 1]))
    code = opened(PAIR, body, kernel(name="first"), kernel(name="second"))(*pair())
    assert (reason(code), code >> 8 & 0xFF, code >> 24 & 0xFF) == (MissReason.DIMENSIONS, 1, 1)


# Attributes.


def attributes_of(driver, numbers=(8, 256, 1, 1), launch_order="grid_x block_x block_y block_z", **facts):
    one = opened(PAIR, host(launch(numbers=numbers)), kernel(launch=launch_order, **facts))
    code = one(*pair())
    return code or [(seen["by"], seen["attributes"]) for seen in driver.launches()]


def test_a_kernel_without_attributes_is_launched_the_short_way(driver):
    assert attributes_of(driver) == [("cuLaunchKernel", {})]


@pytest.mark.parametrize(
    ("facts", "attributes"),
    [
        ({"cluster": (2, 1, 1)}, {"cluster": [2, 1, 1]}),
        ({"cooperative": True}, {"cooperative": 1}),
        ({"programmatic": True}, {"programmatic": 1}),
        ({"cluster": (4, 1, 1), "programmatic": True, "cooperative": True},
         {"cluster": [4, 1, 1], "programmatic": 1, "cooperative": 1}),
    ],
)  # fmt: skip
def test_what_stands_in_the_functions_attributes_reaches_the_launch(driver, facts, attributes):
    assert attributes_of(driver, **facts) == [("cuLaunchKernelEx", attributes)]


CLUSTERED = "cluster_x cluster_y cluster_z grid_x block_x block_y block_z"


def test_cluster_dims_before_the_grid_are_not_read_as_the_grid(driver):
    found = attributes_of(driver, (2, 1, 1, 8, 256, 1, 1), CLUSTERED, cluster=(2, 1, 1))
    assert found == [("cuLaunchKernelEx", {"cluster": [2, 1, 1]})]
    assert driver.launches()[0]["grid"] == [8, 1, 1]


def test_cluster_dims_that_contradict_the_functions_are_refused(driver):
    code = attributes_of(driver, (4, 1, 1, 8, 256, 1, 1), CLUSTERED, cluster=(2, 1, 1))
    assert reason(code) is MissReason.DIMENSIONS


def test_a_grid_that_is_no_multiple_of_the_cluster_is_refused(driver):
    assert reason(attributes_of(driver, (7, 256, 1, 1), cluster=(2, 1, 1))) is MissReason.DIMENSIONS


def test_function_attributes_are_set_once_for_each_device(driver):
    large = kernel(cluster=(16, 1, 1), max_dynamic_shared_bytes=200_000)
    one = opened(PAIR, host(launch(numbers=[16, 256, 1, 1])), large)
    for device in (0, 0, 2, 0):
        assert one(*pair(device=device)) == 0
    asked = [(line["attribute"], line["value"]) for line in driver.log() if "attribute" in line]
    assert asked == [(8, 200_000), (14, 1)] * 2


def test_an_access_window_goes_with_the_launches_that_it_encloses(driver):
    window = hosts.packed(
        "__tvm_cuda_stream_set_access_policy_window", pointer("AT(0)->data"), integer(2**21), floating(0.5)
    )
    reset = hosts.packed("__tvm_cuda_stream_reset_access_policy_window")
    x, y = pair()
    assert opened(PAIR, host(window, launch(), reset, launch()), kernel())(x, y) == 0
    inside, outside = driver.launches()
    assert inside["attributes"] == {
        "window": [x.address, 2**20, 0.5, 2, 1]
    }  # no more than the device's largest
    assert outside["attributes"] == {}


# Workspaces.


def test_a_workspace_is_taken_and_given_back_on_the_calls_stream(driver):
    assert opened(PAIR, TWO_DEEP, *TWO_KERNELS)(*pair()) == 0
    first, second = driver.launches()
    assert first["parameters"][1] == second["parameters"][0] == struct.pack("<Q", 0x7000000100).hex()
    order = [c for c in driver.calls() if c.startswith(("cuMem", "cuLaunch"))]
    assert order == ["cuMemAllocAsync", "cuLaunchKernel", "cuLaunchKernel", "cuMemFreeAsync"]


def test_a_workspace_of_no_bytes_is_an_address_all_the_same(driver):
    body = host(hosts.allocate("4 * n"), launch(pointer("workspace")), hosts.FREE)
    assert opened(PAIR, body, kernel("pointer"))(*pair(n=0)) == 0


def test_workspaces_without_end_are_refused_and_given_back(driver):
    body = host("  for (int i = 0; i < 40; ++i) {\n", hosts.allocate("64"), "  }\n", launch())
    assert reason(opened(PAIR, body, kernel())(*pair())) is MissReason.HOST
    assert (driver.launches(), driver.state()["kept"]) == ([], 0)
