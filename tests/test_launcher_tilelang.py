"""The CUDA launcher behind TileLang's own host code, and against NVIDIA's header."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import world
from tests.driver.hosts import PAIR, TWO_DEEP, TWO_KERNELS, pair
from tests.driver.standin import DeviceTensor, driver_error, library_bytes, opened, reason
from tilegate.build.elf import objections
from tilegate.build.kernel_table import seam_faults
from tilegate.records.canonical import decode
from tilegate.records.device import DeviceKernel
from tilegate.records.miss import MissReason

ROOT = Path(__file__).parent.parent
GEMM = world.contract_of({"A": ("m", 128), "B": (128, 128)}, {"C": ("m", 128)}, name="gemm", dtype="float16")
FIXED = world.contract_of({"x": (1024,)}, {"y": (1024,)})
pytestmark = pytest.mark.compiler


def tilelang_folder():
    spec = find_spec("tilelang")
    assert spec
    return Path(spec.origin).parent


@pytest.fixture(scope="module")
def printed():
    """Host code and kernels of TileLang, by kind."""
    command = [sys.executable, "-m", "tests.driver.real"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: (one["host"], [kernel_of(k) for k in one["kernels"]]) for name, one in told.items()}


def kernel_of(fields):
    return decode(DeviceKernel, json.dumps(fields, separators=(",", ":")).encode(), where="a kernel")


def built(printed, name, contract):
    host, kernels = printed[name]
    include = [str(tilelang_folder() / "3rdparty" / "tvm" / "include")]
    return opened(contract, host, *kernels, include=include)


def gemm_tensors(m):
    return [DeviceTensor(*shape, bits=16) for shape in ((m, 128), (128, 128), (m, 128))]


def test_the_launcher_supplies_all_that_tilelang_asks_for(printed):
    assert {name: seam_faults(*one) for name, one in printed.items()} == dict.fromkeys(printed, ())


def test_a_gemm_over_tensor_maps_is_launched(driver, printed):
    a, b, c = gemm_tensors(100)
    assert built(printed, "gemm", GEMM)(a, b, c) == 0
    maps = [(line["address"], line["extents"], line["strides"]) for line in driver.log() if "map" in line]
    assert maps == [(a.address, [128, 100], [256]), (b.address, [128, 128], [256])]
    [seen] = driver.launches()
    assert (seen["grid"], seen["shared"]) == ([2, 2, 1], 16384)
    assert [len(p) // 2 for p in seen["parameters"]] == [128, 128, 8, 4]
    assert int.from_bytes(bytes.fromhex(seen["parameters"][2]), "little") == c.address
    assert int.from_bytes(bytes.fromhex(seen["parameters"][3]), "little") == 100


def test_a_gemm_of_no_rows_does_nothing_and_is_no_error(driver, printed):
    assert built(printed, "gemm", GEMM)(*gemm_tensors(0)) == 0
    assert driver.launches() == []


def test_the_launches_of_tilelangs_kernels_have_their_attributes(driver, printed):
    seen = {}
    for name in ("cluster", "window", "cooperative", "programmatic"):
        driver.fresh()
        tensors = pair(1024)
        contract = PAIR if name == "cluster" else FIXED
        assert built(printed, name, contract)(*tensors) == 0
        [launch] = driver.launches()
        seen[name] = (launch["grid"], launch["attributes"])
        if name == "window":
            assert launch["attributes"]["window"].pop(0) == tensors[0].address
    assert seen == {
        "cluster": ([4, 1, 1], {"cluster": [2, 1, 1]}),
        "window": ([4, 1, 1], {"window": [4096, 0.5, 2, 1]}),
        "cooperative": ([4, 1, 1], {"cooperative": 1}),
        "programmatic": ([4, 1, 1], {"programmatic": 1}),
    }


def test_an_odd_grid_of_pairs_of_blocks_is_refused(driver, printed):
    assert reason(built(printed, "cluster", PAIR)(*pair(257 * 2))) is MissReason.DIMENSIONS
    assert driver.launches() == []


def test_host_code_that_fails_half_way_leaves_no_workspace(driver, printed):
    """TileLang's host code returns at the first error, and frees nothing: the launcher does."""
    both = built(printed, "workspace", PAIR)
    assert both(*pair()) == 0
    assert [seen["launch"] for seen in driver.launches()] == ["body_kernel", "body_kernel_1"]
    asked = len(driver.calls())
    driver.forget()
    assert both(*pair()) == 0
    each = len(driver.calls())
    assert each == 6 < asked
    for nth in range(1, each + 1):
        driver.forget()
        driver.fail(nth, 719)
        code = both(*pair())
        assert (reason(code), driver_error(code)) == (MissReason.STICKY, 719)
        assert driver.state()["kept"] == 0
        assert driver.state()["depth"] == 0


def test_the_library_needs_libc_alone_and_nothing_runs_when_it_is_opened():
    _, data = library_bytes(PAIR, TWO_DEEP, TWO_KERNELS)
    assert objections(data) == ()


def test_the_library_can_neither_allocate_nor_format_nor_wait(tmp_path):
    """What it may call at all: of libtvm_ffi the stream, of libc what opens the driver and keeps its state."""
    _, data = library_bytes(PAIR, TWO_DEEP, TWO_KERNELS)
    (tmp_path / "kernel.so").write_bytes(data)
    command = ["nm", "-D", "--undefined-only", "--without-symbol-versions", str(tmp_path / "kernel.so")]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in listed.splitlines()} <= {
        "TVMFFIEnvGetStream", "dlopen", "dlsym", "getpid", "madvise", "memcpy", "memset", "mmap", "munmap",
        "pthread_mutex_lock", "pthread_mutex_unlock", "strcmp",
    }  # fmt: skip


CHECKED = """
#define _TILELANG_CUDA_STUB_INCLUDE_GUARD
#include <cuda.h>
enum tg_code { TG_LAUNCHED, TG_DRIVER, TG_STICKY };
#define TG_REFUSE(code, a, b) (code)
#include "driver.h"
#define SAME(a, b) _Static_assert((a) == (b), #a)
#define SIZE(a, b) SAME(sizeof(a), sizeof(b))
#define PLACE(a, f, b, g) SAME(offsetof(a, f), offsetof(b, g))
SIZE(tg_launch_config, CUlaunchConfig);
PLACE(tg_launch_config, block, CUlaunchConfig, blockDimX);
PLACE(tg_launch_config, dynamic_shared, CUlaunchConfig, sharedMemBytes);
PLACE(tg_launch_config, stream, CUlaunchConfig, hStream);
PLACE(tg_launch_config, attributes, CUlaunchConfig, attrs);
PLACE(tg_launch_config, num_attributes, CUlaunchConfig, numAttrs);
SIZE(tg_attribute, CUlaunchAttribute);
PLACE(tg_attribute, value, CUlaunchAttribute, value);
PLACE(tg_attribute, value.cluster, CUlaunchAttribute, value.clusterDim.x);
PLACE(tg_attribute, value.on, CUlaunchAttribute, value.cooperative);
PLACE(tg_attribute, value.on, CUlaunchAttribute, value.programmaticStreamSerializationAllowed);
SIZE(tg_window, CUaccessPolicyWindow);
PLACE(tg_window, bytes, CUaccessPolicyWindow, num_bytes);
PLACE(tg_window, hit_ratio, CUaccessPolicyWindow, hitRatio);
PLACE(tg_window, hit, CUaccessPolicyWindow, hitProp);
PLACE(tg_window, miss, CUaccessPolicyWindow, missProp);
SIZE(tg_address, CUdeviceptr);
SIZE(CUtensorMap, char[128]);
SAME(TG_ATTRIBUTE_WINDOW, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW);
SAME(TG_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(TG_ATTRIBUTE_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(TG_ATTRIBUTE_PROGRAMMATIC, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(TG_STREAMING, CU_ACCESS_PROPERTY_STREAMING);
SAME(TG_PERSISTING, CU_ACCESS_PROPERTY_PERSISTING);
SAME(TG_LIMIT_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(TG_LIMIT_BLOCK_X + 2, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
SAME(TG_LIMIT_GRID_X + 2, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
SAME(TG_LIMIT_WINDOW, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE);
SAME(TG_FUNCTION_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(TG_FUNCTION_LARGE_CLUSTER, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME(TG_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(TG_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(TG_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(TG_SYMBOL_NOT_FOUND, CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND);
SAME(TG_LIBRARY_NOT_FOUND, CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
"""


def test_our_types_and_numbers_are_those_of_cuda_h(tmp_path):
    vendor = tilelang_folder() / "src" / "cuda" / "stubs" / "vendor"
    launchers = ROOT / "src" / "tilegate" / "build" / "launchers"
    (tmp_path / "checked.c").write_text(CHECKED)
    command = ["gcc", "-fsyntax-only", "-std=gnu11", f"-I{vendor}", f"-I{launchers}", "checked.c"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
