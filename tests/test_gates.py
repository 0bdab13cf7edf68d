"""What compiles without a word and must not be shipped is stopped at build, with the reason.

Kernels of known faults, in our own words: matrix instructions of another architecture, literal and computed
offsets beyond int32, a reduction whose width the threads do not divide, more shared memory than there is.
"""

import subprocess
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elaborations import bound, contract_of
from tests.gpu_builds import built_once, embedded_cubin, needs_nvcc
from tilegate.build import jobs
from tilegate.build.cuda import gates, nvcc, ptxas
from tilegate.build.cuda.cubin import Cubin, CubinKernel, read_cubin
from tilegate.build.offsets import span_of
from tilegate.records.canonical import encode
from tilegate.records.device import ArgumentKind, DeviceKernel, LaunchParameter
from tilegate.records.target import CUDA_ARCHS

KERNELS = """
import tilelang.language as T


def corner(rows, columns):
    @T.prim_func
    def main(x: T.Tensor((rows, columns), "int8"), y: T.Tensor((1,), "int8")):
        with T.Kernel(1, threads=32):
            y[0] = x[rows - 1, columns - 1]

    return main


def corner_on_cpu(rows, columns):
    @T.prim_func
    def main(x: T.Tensor((rows, columns), "int8"), y: T.Tensor((1,), "int8")):
        with T.Kernel(1):
            y[0] = x[rows - 1, columns - 1]

    return main


def last_bytes(M):
    @T.prim_func
    def main(x: T.Tensor((M, 1048576), "int8"), y: T.Tensor((M,), "int8")):
        with T.Kernel(M, threads=32) as row:
            flat = T.Tensor((M * 1048576,), "int8", x.data)
            start = T.alloc_var("int32")
            start = row * 1048576
            y[row] = flat[start + 1048575]

    return main


def last_bytes_open(L, M):
    @T.prim_func
    def main(x: T.Tensor((L,), "int8"), y: T.Tensor((M,), "int8")):
        with T.Kernel(M, threads=32) as row:
            y[row] = x[row * 1048576 + 1048575]

    return main


def row_sum(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=128) as row:
            line = T.alloc_fragment((N,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(x[row, :], line)
            T.reduce_sum(line, total, dim=0)
            y[row] = total[0]

    return main


def staged(M, N, rows):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as block:
            tile = T.alloc_shared((rows, N), "float32")
            T.copy(x[block * rows, 0], tile)
            T.copy(tile, y[block * rows, 0])

    return main


def asserting(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as row:
            for j in T.Parallel(N):
                T.device_assert(x[row, j] >= 0.0)
                y[row, j] = x[row, j] * 2.0

    return main
"""

CORNER = contract_of({"x": ("int8", "rows", "columns")}, {"y": ("int8", 1)})
ROWS = contract_of({"x": ("int8", "M", 1048576)}, {"y": ("int8", "M")})
FLAT = contract_of({"x": ("int8", "L")}, {"y": ("int8", "M")})
SUM = contract_of({"x": ("float32", "M", "N")}, {"y": ("float32", "M")})
F32 = contract_of({"x": ("float32", "M", "N")}, {"y": ("float32", "M", "N")})


def case(contract, factory, target, *, dynamic=(), constants=None, **specialize):
    values = {axis: (value,) for axis, value in specialize.items()}
    how = {"dynamic": dynamic, "specialize": values, "constants": constants or {}}
    return contract, bound(f"kernels:{factory}", **how), target


GPU, CPU = "cuda:sm_90a", "cpu:x86-64-v3"
CASES = {
    "a literal offset": case(CORNER, "corner", GPU, rows=3, columns=1 << 30),
    "a literal offset, in reach": case(CORNER, "corner", GPU, rows=2, columns=1024),
    "a literal offset on a CPU": case(CORNER, "corner_on_cpu", CPU, rows=3, columns=1 << 30),
    "a literal offset on a CPU, in reach": case(CORNER, "corner_on_cpu", CPU, rows=2, columns=1024),
    "a flat view": case(ROWS, "last_bytes", GPU, M=2049),
    "a flat view, in reach": case(ROWS, "last_bytes", GPU, M=2047),
    "a flat view, open": case(FLAT, "last_bytes_open", GPU, dynamic=("L", "M")),
    "a width of 96": case(SUM, "row_sum", "cuda:sm_80", M=4, N=96),
    "a width of 127": case(SUM, "row_sum", "cuda:sm_80", M=4, N=127),
    "a width of 192": case(SUM, "row_sum", "cuda:sm_80", M=4, N=192),
    "a width of 128": case(SUM, "row_sum", "cuda:sm_80", M=4, N=128),
    "256 KiB of shared memory": case(F32, "staged", GPU, dynamic=("M",), N=1024, constants={"rows": 64}),
    "128 KiB on sm_89": case(F32, "staged", "cuda:sm_89", dynamic=("M",), N=1024, constants={"rows": 32}),
    "128 KiB on sm_80": case(F32, "staged", "cuda:sm_80", dynamic=("M",), N=1024, constants={"rows": 32}),
    "an assert of the author's": case(F32, "asserting", GPU, dynamic=("M",), N=256),
}
STOPPED = {
    "a literal offset": "offset-wrapped",
    "a literal offset on a CPU": "offset-wrapped",
    "a flat view": "offset-int32",
    "a width of 96": "layout-conflict",
    "a width of 127": "layout-conflict",
    "a width of 192": "layout-conflict",
    "256 KiB of shared memory": "shared-memory-limit",
    "128 KiB on sm_89": "shared-memory-limit",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return built_once(tmp_path_factory, "gates", KERNELS, CASES)


@pytest.mark.compiler
@needs_nvcc
@pytest.mark.parametrize(("name", "template"), STOPPED.items())
def test_what_no_call_could_run_rightly_is_stopped_at_build(made, name, template):
    assert made[name].template == template
    assert "other" not in made[name].words.values()


@pytest.mark.compiler
@needs_nvcc
@pytest.mark.parametrize("name", [name for name in CASES if name not in STOPPED])
def test_what_lies_within_the_bounds_is_built(made, name):
    assert isinstance(made[name], jobs.Built), made[name]


@pytest.mark.compiler
@needs_nvcc
def test_how_much_is_too_much_is_told_in_bytes(made):
    assert made["256 KiB of shared memory"].numbers == {"needs": 256 * 1024, "limit": 227 * 1024}


@pytest.mark.compiler
@needs_nvcc
def test_an_assert_that_the_author_wrote_is_no_missing_instruction(made):
    cubin = read_cubin(embedded_cubin(made["an assert of the author's"].library))
    assert "__assertfail" in cubin.undefined


# Matrix instructions: device source as TileLang prints it for a small Hopper matmul, without its copies

MATMUL = """
#include <tl_templates/cuda/instruction/wgmma.h>
#include <tl_templates/cuda/intrin.h>
#include <tl_templates/cuda/debug.h>
extern "C" __global__ void __launch_bounds__(128, 1) tile_kernel(float* __restrict__ out) {
  extern __shared__ __align__(1024) uchar memory[];
  float c[64];
  for (int i = 0; i < 64; ++i) c[i] = 0;
  tl::GmmaDescriptor a, b;
  tl::initialize_wgmma_descriptor<1, 1, 64>(a, (half_t*)memory);
  tl::initialize_wgmma_descriptor<1, 512, 64>(b, (half_t*)memory + 4096);
  tl::warpgroup_arrive();
  tl::wgmma_ss<tl::DataType::kFloat16, tl::DataType::kFloat16, tl::DataType::kFloat32, 64, 128, 16, false, true, 1, 1>(
      uint64_t(a), uint64_t(b), (uint32_t*)c, 1);
  tl::warpgroup_commit_batch();
  tl::warpgroup_wait<0>();
  for (int i = 0; i < 64; ++i) out[threadIdx.x * 64 + i] = c[i];
}
"""


@pytest.mark.compiler
@needs_nvcc
@pytest.mark.parametrize(("arch", "stopped"), [("sm_90", True), ("sm_90a", False)])
def test_asserts_in_place_of_matrix_instructions_are_seen(tmp_path, arch, stopped):
    """nvcc leaves with 0 for both."""
    (tmp_path / "kernel.cu").write_text(MATMUL)
    subprocess.run(nvcc.command(arch, {}), cwd=tmp_path, check=True, capture_output=True)
    data = (tmp_path / "kernel.cubin").read_bytes()
    fault = gates.instructions(read_cubin(data), data, MATMUL)
    assert (fault is not None) is stopped
    assert fault is None or fault.template == "instructions-missing"


# Gates alone


def kernel_of(**how):
    usual = {
        "name": "k",
        "arguments": (ArgumentKind.POINTER, ArgumentKind.INT32),
        "launch": (LaunchParameter.GRID_X,),
    }
    return DeviceKernel(**usual | how)


def cubin_of(*sizes, arch=90, name="k", undefined=()):
    return Cubin(arch, {name: CubinKernel(parameters=sizes, code_bytes=128)}, frozenset(undefined))


def test_every_architecture_has_a_limit_of_shared_memory():
    assert set(gates.SHARED_BYTES) == set(CUDA_ARCHS)


@given(arch=st.sampled_from(CUDA_ARCHS), static=st.integers(0, 1 << 18), dynamic=st.integers(0, 1 << 18))
def test_static_and_dynamic_shared_memory_count_together(arch, static, dynamic):
    """A kernel passes exactly where both together are within the limit."""
    kernel = kernel_of(static_shared_bytes=static, max_dynamic_shared_bytes=dynamic)
    fault = gates.shared_memory((kernel_of(), kernel), arch)
    assert (fault is None) == (static + dynamic <= gates.SHARED_BYTES[arch])


@pytest.mark.parametrize(
    ("cubin", "template"),
    [
        (cubin_of(8, 4, arch=80), "cubin-arch"),
        (cubin_of(8, 4, name="other"), "cubin-kernels"),
        (cubin_of(8, 8), "cubin-parameters"),
        (cubin_of(8), "cubin-parameters"),
    ],
)
def test_a_device_binary_that_is_not_what_the_host_launches_is_refused(cubin, template):
    assert gates.binary((kernel_of(),), cubin, "sm_90a").template == template
    assert gates.binary((kernel_of(),), cubin_of(8, 4), "sm_90a") is None


@pytest.mark.parametrize(
    ("undefined", "data", "source", "stopped"),
    [
        ((), b"", "", False),
        (("vprintf",), b"", "", False),
        (("__assertfail",), b"", "", True),
        (("__assertfail",), b"", "tl::device_assert(x);", False),
        (("__assertfail",), b"Attempting to use wgmma without CUTE_ARCH", "tl::device_assert(x);", True),
    ],
)
def test_only_asserts_that_nobody_asked_for_are_missing_instructions(undefined, data, source, stopped):
    assert (gates.instructions(cubin_of(undefined=undefined), data, source) is not None) is stopped


def test_what_ptxas_says_is_read_for_each_kernel():
    log = (
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
        "ptxas info    : Function properties for first\n"
        "    16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 1 barriers, 1024 bytes smem\n"
        "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
        "ptxas info    : Function properties for second\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 12 registers\n"
    )
    assert ptxas.read_resources(log) == {
        "first": ptxas.Resources(registers=168, spill_bytes=24, static_shared_bytes=1024),
        "second": ptxas.Resources(registers=12),
    }


# The interval that the offset gate computes never misses a value


class IntImm(SimpleNamespace):
    def __int__(self):
        return self.value


class Var(SimpleNamespace):
    __hash__ = object.__hash__


OPERATIONS = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b, "FloorMod": lambda a, b: a % b, "Min": min, "Max": max,
}  # fmt: skip
VARIABLES = [Var(name=name) for name in "ijk"]


def node(kind, a, b):
    return type(kind, (SimpleNamespace,), {})(a=a, b=b)


EXPRESSIONS = st.recursive(
    st.sampled_from(VARIABLES) | st.integers(-9, 9).map(lambda n: IntImm(value=n)),
    lambda below: st.builds(node, st.sampled_from(sorted(OPERATIONS)), below, below),
    max_leaves=8,
)


def value_of(expression, at):
    if isinstance(expression, IntImm):
        return expression.value
    if isinstance(expression, Var):
        return at[expression.name]
    return OPERATIONS[type(expression).__name__](value_of(expression.a, at), value_of(expression.b, at))


@given(expression=EXPRESSIONS, data=st.data())
def test_the_interval_of_an_index_holds_every_value_that_it_takes(expression, data):
    """For all i, j, k within their spans: span(e)[0] <= e(i, j, k) <= span(e)[1]."""
    spans = {
        v: tuple(sorted(data.draw(st.tuples(st.integers(-9, 9), st.integers(-9, 9))))) for v in VARIABLES
    }
    at = {v.name: data.draw(st.integers(*span)) for v, span in spans.items()}
    span = span_of(expression, spans)
    if span is not None:
        assert span[0] <= value_of(expression, at) <= span[1]


def test_an_index_that_depends_on_anything_else_has_no_interval():
    known, unknown = VARIABLES[0], VARIABLES[1]
    assert span_of(node("Add", known, unknown), {known: (0, 3)}) is None
    assert span_of(node("FloorDiv", known, known), {known: (0, 3)}) is None


def test_a_manifest_keeps_what_its_kernels_take():
    kernel = kernel_of(registers=240, spill_bytes=8, static_shared_bytes=1024)
    assert msgspec.json.decode(encode(kernel), type=DeviceKernel) == kernel
