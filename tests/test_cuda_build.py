"""Kernels for GPUs become libraries on a machine without one: everything up to opening them is held here."""

import os
import struct
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest

from tests import world
from tests.elaborations import bound, contract_of
from tests.gpu_builds import build_all, built_once, embedded_cubin, needs_nvcc, needs_nvrtc
from tilegate.build import elf, jobs
from tilegate.build.cuda import nvcc, nvrtc, ptxas
from tilegate.build.cuda.cubin import read_cubin
from tilegate.build.cuda.job import device_binary
from tilegate.build.cuda.lower import kernel_of
from tilegate.build.cuda.priming import primed, with_room
from tilegate.build.failing import Diagnosed
from tilegate.build.requests import CompileRequest, Kernels
from tilegate.build.toolchain import read_toolchain
from tilegate.errors import RecordError, UsageError
from tilegate.records.canonical import encode
from tilegate.records.device import ArgumentKind, DeviceKernel, LaunchParameter
from tilegate.records.target import CUDA_ARCHS, DeviceClass, Target, runs_on
from tilegate.sandbox import COMPILE, Ending, JobResult

KERNELS = """
import tilelang
import tilelang.language as T
from tvm.target import Target


def gemm(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
                T.copy(A[by * 64, k * 64], a)
                T.copy(B[k * 64, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


def convolution(B, H, C, F):
    @T.prim_func
    def main(
        x: T.Tensor((B, H, H, C), "float16"), w: T.Tensor((9 * C, F), "float16"), y: T.Tensor((B, H, H, F), "float16")
    ):
        with T.Kernel(T.ceildiv(F, 64), T.ceildiv(B * H * H, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            flat = T.Tensor((B * H * H, F), "float16", y.data)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(9 * C, 32), num_stages=2):
                T.c2d_im2col(x, a, by, k, 3, 1, 1, 1)
                T.copy(w[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, flat[by * 64, bx * 64])

    return main


def two_kernels(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        between = T.alloc_global((16, N), "float32")
        with T.Kernel(16, threads=128) as row:
            for j in T.Parallel(N):
                between[row, j] = x[row, j] * 2.0
        with T.Kernel(16, threads=64) as row:
            for j in T.Parallel(N):
                y[row, j] = between[row, j] + 1.0

    return main


def clustered(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.ClusterKernel(M, threads=128, cluster_dims=2) as row:
            for j in T.Parallel(N):
                y[row, j] = x[row, j] * 2.0

    return main


def cooperative(N):
    @T.prim_func
    def main(x: T.Tensor((64, N), "float32"), y: T.Tensor((64, N), "float32")):
        with T.Kernel(64, threads=128) as row:
            for j in T.Parallel(N):
                y[row, j] = x[row, j] * 2.0
            T.sync_grid()
            for j in T.Parallel(N):
                y[row, j] += x[63 - row, j]

    return main


def dependent(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as row:
            T.pdl_sync()
            for j in T.Parallel(N):
                y[row, j] = x[row, j] * 2.0

    return main


def windowed(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as row:
            T.annotate_l2_hit_ratio({x: 0.5})
            for j in T.Parallel(N):
                y[row, j] = x[row, j] * 2.0

    return main


def wide(M, N):
    columns = T.dynamic("columns", "int64")

    @T.prim_func
    def main(x: T.Tensor((M, columns), "bfloat16"), y: T.Tensor((M, columns), "bfloat16")):
        with T.Kernel(T.ceildiv(columns, 256), M, threads=128) as (part, row):
            for j in T.Parallel(256):
                y[row, part * 256 + j] = x[row, part * 256 + j] * T.bfloat16(2.0)

    return main


def asking(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        T.evaluate(T.call_packed("nobody.has.this", M))
        with T.Kernel(M, threads=128) as row:
            for j in T.Parallel(N):
                y[row, j] = x[row, j] * 2.0

    return main


@tilelang.jit(compile_flags=["--use_fast_math"])
def flagged(M, N):
    return dependent(M, N)


@tilelang.jit(pass_configs={"tl.device_compile_flags": ["-DX=1"]})
def flagged_by_configuration(M, N):
    return dependent(M, N)


@tilelang.jit(pass_configs={"tl.layout_visualization_formats": ["txt"]})
def configured_by_list(M, N):
    return dependent(M, N)


@tilelang.jit(pass_configs={"tl.enable_fast_math": True})
def fast(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as row:
            for j in T.Parallel(N):
                y[row, j] = T.exp(x[row, j])

    return main


@tilelang.jit
def by_target(M, N):
    rows = 8 if str(Target.current().attrs["arch"]) == "sm_90a" else 4

    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as block:
            for i, j in T.Parallel(rows, N):
                y[block * rows + i, j] = x[block * rows + i, j] * 2.0

    return main
"""

F32 = contract_of({"x": ("float32", "M", "N")}, {"y": ("float32", "M", "N")})
BF16 = contract_of({"x": ("bfloat16", "M", "N")}, {"y": ("bfloat16", "M", "N")})
GEMM = contract_of({"A": ("float16", "M", "K"), "B": ("float16", "K", "N")}, {"C": ("float32", "M", "N")})
CONVOLUTION = contract_of(
    {"x": ("float16", "B", "H", "H", "C"), "w": ("float16", 288, "F")}, {"y": ("float16", "B", "H", "H", "F")}
)
ROWS = {"dynamic": ("M",), "specialize": {"N": (256,)}}
FIXED = {"dynamic": (), "specialize": {"M": (64,), "N": (256,)}}
GEMMS = {"dynamic": ("M",), "specialize": {"N": (128,), "K": (256,)}}


def plain(factory, target="cuda:sm_90a", contract=F32, **how):
    return contract, bound(f"kernels:{factory}", **(how or ROWS)), target


CASES = {
    "gemm": plain("gemm", contract=GEMM, **GEMMS),
    "two_kernels": plain("two_kernels", **FIXED),
    "convolution": (
        CONVOLUTION,
        bound("kernels:convolution", dynamic=(), specialize={"B": (2,), "H": (32,), "C": (32,), "F": (128,)}),
        "cuda:sm_90a",
    ),
    "clustered": plain("clustered"),
    "cooperative": (
        contract_of({"x": ("float32", 64, "N")}, {"y": ("float32", 64, "N")}),
        bound("kernels:cooperative", dynamic=(), specialize={"N": (256,)}),
        "cuda:sm_90a",
    ),
    "dependent": plain("dependent"),
    "windowed": plain("windowed", **FIXED),
    "wide": plain("wide", contract=BF16, dynamic=("M", "N"), specialize={}),
    "asking": plain("asking"),
    "flagged": plain("flagged"),
    "flagged_by_configuration": plain("flagged_by_configuration"),
    "configured_by_list": plain("configured_by_list"),
    "fast": plain("fast"),
    "for sm_90a": plain("by_target"),
    "for sm_80": plain("by_target", "cuda:sm_80"),
}
REFUSED = {
    "asking": "environment-call",
    "flagged": "compile-flags",
    "flagged_by_configuration": "compile-flags",
    "configured_by_list": "pass-config",
}
BUILT = [name for name in CASES if name not in REFUSED]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return built_once(tmp_path_factory, "gpu", KERNELS, CASES)


built_cases = pytest.mark.parametrize("name", BUILT)
compiled = [pytest.mark.compiler, needs_nvcc]


def marked(test):
    for mark in compiled:
        test = mark(test)
    return test


def only_kernel(one):
    [kernel] = one.manifest.kernels
    return kernel


@marked
@built_cases
def test_what_is_built_can_be_opened_with_libc_alone(made, name):
    assert isinstance(made[name], jobs.Built), made[name]
    assert elf.objections(made[name].library, allowed=elf.LIBC_ONLY) == ()


@marked
@built_cases
def test_the_device_binary_inside_is_for_the_target_and_takes_what_the_host_passes(made, name):
    cubin = read_cubin(embedded_cubin(made[name].library))
    manifest = made[name].manifest
    assert f"sm_{cubin.arch}" == manifest.target.arch.rstrip("a")
    assert {k: one.parameters for k, one in cubin.kernels.items()} == {
        k.name: tuple(kind.size_bytes for kind in k.arguments) for k in manifest.kernels
    }


@marked
@built_cases
def test_registers_are_recorded(made, name):
    assert all(0 < kernel.registers <= 255 for kernel in made[name].manifest.kernels)


@marked
@pytest.mark.parametrize(("name", "template"), REFUSED.items())
def test_what_the_launcher_or_a_reviewer_cannot_answer_for_is_refused(made, name, template):
    assert made[name].template == template


@marked
def test_tensor_maps_and_dynamic_shared_memory_reach_the_launcher(made):
    kernel = only_kernel(made["gemm"])
    kinds = [ArgumentKind.TENSOR_MAP, ArgumentKind.TENSOR_MAP, ArgumentKind.POINTER, ArgumentKind.INT32]
    assert list(kernel.arguments) == kinds
    assert kernel.launch[-1] is LaunchParameter.DYNAMIC_SHARED
    assert kernel.max_dynamic_shared_bytes == 2 * 2 * 64 * 64 * 2


@marked
def test_a_convolution_asks_for_a_tensor_map_of_its_own_kind(made):
    """Both kinds of map are parameters of one kind; that the host code may ask for it was held at build."""
    kinds = only_kernel(made["convolution"]).arguments
    assert sorted(kind.value for kind in kinds) == ["pointer", "tensor_map", "tensor_map"]
    assert b"__tvm_tensormap_create_im2col" in made["convolution"].library


@marked
def test_every_kernel_of_a_function_is_there_in_order(made):
    kernels = made["two_kernels"].manifest.kernels
    assert [kernel.name for kernel in kernels] == ["main_kernel", "main_kernel_1"]


@marked
def test_clusters_come_before_the_grid(made):
    kernel = only_kernel(made["clustered"])
    assert kernel.cluster == (2, 1, 1)
    assert [parameter.value for parameter in kernel.launch[:4]] == [
        "cluster_x",
        "cluster_y",
        "cluster_z",
        "grid_x",
    ]


@marked
def test_how_a_kernel_is_launched_is_read_from_its_attributes(made):
    found = {name: only_kernel(made[name]) for name in ("cooperative", "dependent", "windowed")}
    assert {name: (k.cooperative, k.programmatic) for name, k in found.items()} == {
        "cooperative": (True, False), "dependent": (False, True), "windowed": (False, False),
    }  # fmt: skip


@marked
def test_a_symbol_of_64_bits_is_passed_as_one(made):
    kernel = only_kernel(made["wide"])
    assert sorted(kind.value for kind in kernel.arguments) == ["int32", "int64", "pointer", "pointer"]


@marked
def test_a_factory_that_asks_for_the_architecture_gets_that_of_its_target(made):
    assert made["for sm_90a"].manifest.elaboration.tiles == {"M": (8,)}
    assert made["for sm_80"].manifest.elaboration.tiles == {"M": (4,)}


@needs_nvcc
def test_the_toolchain_names_the_compiler_that_is_used_and_no_other():
    by_nvcc = read_toolchain("nvcc")
    assert by_nvcc.device_compiler == "nvcc"
    assert not {"nvrtc", "ptxas"} & by_nvcc.versions.keys()


@needs_nvrtc
def test_nvrtc_is_used_where_it_and_ptxas_are_of_one_release():
    chosen = read_toolchain()
    assert chosen.device_compiler == "nvrtc"
    assert chosen.versions["nvrtc"] == chosen.versions["ptxas"]
    assert "nvcc" not in chosen.versions
    assert chosen.digest != read_toolchain("nvcc").digest


# Parameters and launches, as a function's attributes give them


def parameter(dtype, scope="global"):
    return SimpleNamespace(dtype=dtype, type_annotation=SimpleNamespace(storage_scope=scope))


def function(*parameters, tags=("blockIdx.x", "threadIdx.x"), **attributes):
    attributes |= {"global_symbol": "k", "tirx.kernel_launch_params": tags}
    return SimpleNamespace(params=parameters, attrs=attributes)


SCALARS = [kind for kind in ArgumentKind if kind not in (ArgumentKind.POINTER, ArgumentKind.TENSOR_MAP)]


def test_scalars_of_every_width_keep_it():
    kernel = kernel_of(function(*(parameter(kind.value) for kind in SCALARS)), shared_bytes=0)
    assert list(kernel.arguments) == SCALARS
    assert {kind.size_bytes for kind in kernel.arguments} == {1, 2, 4, 8}


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int4", "float16x2", "int128"])
def test_a_scalar_that_the_launcher_cannot_pass_is_refused(dtype):
    with pytest.raises(Diagnosed) as refused:
        kernel_of(function(parameter(dtype)), shared_bytes=0)
    assert refused.value.template == "kernel-scalar"


def test_a_launch_tag_that_the_launcher_does_not_know_is_refused():
    with pytest.raises(Diagnosed) as refused:
        kernel_of(function(tags=("blockIdx.x", "vthread")), shared_bytes=0)
    assert refused.value.template == "launch-unknown"


def test_cluster_tags_are_passed_once_however_they_are_named():
    tags = ("tir.cluster_dim_x", "blockIdx.x", "threadIdx.x")
    kernel = kernel_of(function(tags=tags, cluster_dims=(4, 1, 1)), shared_bytes=0)
    assert [one.value for one in kernel.launch] == [
        "cluster_x",
        "cluster_y",
        "cluster_z",
        "grid_x",
        "block_x",
    ]
    assert kernel.cluster == (4, 1, 1)


def test_the_register_usage_level_reaches_ptxas_both_ways():
    level = {"tl.ptxas_register_usage_level": 7}
    assert "--register-usage-level=7" in ptxas.command("sm_90a", level)
    assert "-Xptxas=-v,--register-usage-level=7" in nvcc.command("sm_90a", level)


def test_nvcc_is_told_both_the_virtual_and_the_real_architecture():
    command = nvcc.command("sm_90a", {})
    assert command[command.index("-gencode") + 1] == "arch=compute_90a,code=sm_90a"


# Both ways, and the two things that make NVRTC's as good as nvcc's

DEVICE = """
#include <tl_templates/cuda/copy.h>
#include <tl_templates/cuda/reduce.h>
#include <tl_templates/cuda/debug.h>
extern "C" __global__ void __launch_bounds__(128, 1) scale_kernel(const float* __restrict__ x, float* __restrict__ y) {
  y[((int)blockIdx.x * 128) + (int)threadIdx.x] = x[((int)blockIdx.x * 128) + (int)threadIdx.x] * 2.0f;
}
"""


def cubin_of(folder, way, ptx=None):
    if way == "nvcc":
        (folder / "kernel.cu").write_text(DEVICE)
        command = nvcc.command("sm_90a", {})
    else:
        (folder / "kernel.ptx").write_text(ptx)
        command = ptxas.command("sm_90a", {})
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return (folder / "kernel.cubin").read_bytes(), ptxas.read_resources(done.stderr)


@pytest.mark.compiler
@needs_nvrtc
def test_unused_variables_of_headers_do_not_fill_the_cubin(tmp_path):
    ptx = nvrtc.to_ptx(DEVICE, "sm_90a", {})
    trimmed = ptxas.without_unused_variables(ptx)
    large, _ = cubin_of(tmp_path, "ptxas", ptx)
    small, resources = cubin_of(tmp_path, "ptxas", trimmed)
    by_nvcc, _ = cubin_of(tmp_path, "nvcc")
    assert len(large) > 10 * len(small)
    assert len(small) < 1.1 * len(by_nvcc)
    assert code(small) == code(large)
    assert resources["scale_kernel"].registers > 0


def code(cubin):
    """The machine code of every kernel, by section name."""
    start = struct.unpack_from("<Q", cubin, 40)[0]
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
    found = {}
    for name, _, _, _, offset, length in sections:
        at = sections[names][4] + name
        text = cubin[at : cubin.index(b"\0", at)]
        if text.startswith(b".text."):
            found[text] = cubin[offset : offset + length]
    assert found
    return found


@pytest.mark.compiler
@needs_nvrtc
@pytest.mark.long
@pytest.mark.parametrize("arch", CUDA_ARCHS)
def test_a_precompiled_header_changes_nothing_in_the_ptx(arch):
    """In a process of its own: what NVRTC keeps for a header stays for good."""
    script = f"""
import sys
from tilegate.build.cuda import nvrtc, ptxas
source = sys.stdin.read()
before = ptxas.without_unused_variables(nvrtc.to_ptx(source, {arch!r}, {{}}))
nvrtc.prime({arch!r})
nvrtc.ready()
assert list(nvrtc._images) == [{arch!r}]
assert nvrtc._images[{arch!r}].stat().st_size < nvrtc.IMAGE_BYTES
assert ptxas.without_unused_variables(nvrtc.to_ptx(source, {arch!r}, {{}})) == before
"""
    with tempfile.TemporaryDirectory() as folder:  # 280 MB, not to be kept
        environment = os.environ | {"TMPDIR": folder}
        subprocess.run([sys.executable, "-c", script], input=DEVICE, text=True, check=True, env=environment)


def test_a_variable_that_code_or_another_variable_names_stays():
    ptx = (
        ".global .align 4 .u32 lonely;\n"
        ".global .align 8 .u64 table[2] = {generic(used), 0};\n"
        ".global .align 1 .b8 used[4] = {104, 105, 0, 0};\n"
        ".global .align 1 .u8 only_by_lonely = 1;\n"
        ".visible .entry k()\n{\n\tld.global.u64 \t%rd1, [table];\n}\n"
    )
    kept = ptxas.without_unused_variables(ptx)
    assert "lonely" not in kept
    assert "used[4]" in kept
    assert "table[2]" in kept


def test_variables_named_by_unused_ones_go_with_them():
    ptx = (
        ".global .align 8 .u64 a = generic(b);\n.global .align 4 .u32 b;\n.visible .entry k()\n{\n\tret;\n}\n"
    )
    assert ".global" not in ptxas.without_unused_variables(ptx)


def test_a_header_is_made_where_it_pays_and_its_room_is_there():
    sm_90a, sm_80 = Target.parse("cuda:sm_90a"), Target.parse("cuda:sm_80")
    assert primed([sm_90a], "nvrtc") == ((), (), 0)
    assert primed([sm_90a, sm_90a], "nvcc") == ((), (), 0)
    before, after, room = primed([sm_90a, sm_80, sm_90a, Target.parse("cpu:x86-64-v3")], "nvrtc")
    assert before == ("tilegate.build.cuda.primed.sm_90a",)
    assert after == ("tilegate.build.cuda.primed.ready",)
    limits = with_room(COMPILE, room).limits
    assert limits.scratch_bytes - COMPILE.limits.scratch_bytes == room >= nvrtc.IMAGE_BYTES
    assert limits.file_bytes >= nvrtc.IMAGE_BYTES
    assert with_room(COMPILE, 0) == COMPILE


def test_bytes_that_are_no_cubin_are_told_so():
    for data in (b"", b"\x7fELF\x02", b"\x7fELF\x02" + bytes(200)):
        with pytest.raises(RecordError, match="no cubin"):
            read_cubin(data)


def test_without_a_compiler_it_is_told_which_one(tmp_path):
    with pytest.raises(Diagnosed) as refused:
        device_binary(tmp_path, DEVICE, "sm_90a", {}, None)
    assert (refused.value.template, refused.value.words) == ("tool-missing", {"tool": "nvcc"})


KERNELS_FRAME = encode(Kernels(kernels=(DeviceKernel(name="k", arguments=(), launch=()),)))


@pytest.mark.parametrize(
    ("target", "frames"),
    [
        ("cuda:sm_90a", [("library", b"")]),
        ("cuda:sm_90a", [("kernels", encode(Kernels(kernels=()))), ("library", b"")]),
        ("cuda:sm_90a", [("kernels", b"{}"), ("library", b"")]),
        ("cuda:sm_90a", [("kernels", KERNELS_FRAME)]),
        ("cuda:sm_90a", [("library", b""), ("kernels", KERNELS_FRAME)]),
        ("cpu:x86-64-v3", [("kernels", KERNELS_FRAME), ("library", b"")]),
    ],
)
def test_a_job_that_does_not_say_what_was_agreed_has_built_nothing(target, frames):
    request = CompileRequest(
        elaboration=world.elaboration_of(world.SCALE_CONTRACT), target=Target.parse(target), identity="0"
    )
    result = JobResult(
        ending=Ending.FINISHED, code=0, why="", frames=tuple(frames), output=b"", output_total=0,
        isolation=world.ISOLATION, wall_s=0.0,
    )  # fmt: skip
    assert jobs._built(world.ISOLATION, request, world.TOOLCHAIN, result).template == "job-protocol"


@pytest.mark.compiler
def test_a_library_for_a_gpu_may_need_libc_and_nothing_more(tmp_path):
    (tmp_path / "a.c").write_text("double sin(double); double f(double x) { return sin(x); }")
    command = ["gcc", "-shared", "-fPIC", "-nostartfiles", "a.c", "-Wl,--no-as-needed", "-lm", "-o", "a.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = (tmp_path / "a.so").read_bytes()
    assert elf.objections(library) == ()
    assert elf.objections(library, allowed=elf.LIBC_ONLY) == ("it needs libm.so.6",)


# Targets


@pytest.mark.parametrize("arch", CUDA_ARCHS)
def test_a_target_is_printed_as_it_is_written(arch):
    assert str(Target.parse(f"cuda:{arch}")) == f"cuda:{arch}"
    assert Target.parse(f"cuda:{arch}").lowering == arch


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_an_architecture_without_its_suffix_is_refused_with_the_reason(arch):
    with pytest.raises(UsageError, match="without the matrix instructions") as refused:
        Target.parse(f"cuda:{arch}")
    assert refused.value.next_step == f"cuda:{arch}a"


@pytest.mark.parametrize("text", ["cuda:", "cuda:sm_70", "cuda:90a", "cuda:native", "cuda:sm_90a "])
def test_another_architecture_is_refused(text):
    with pytest.raises(UsageError, match="unknown target"):
        Target.parse(text)


@pytest.mark.parametrize(
    ("arch", "runs"),
    [
        ("sm_80", {"sm_80", "sm_86", "sm_89"}),
        ("sm_89", {"sm_89"}),
        ("sm_90a", {"sm_90"}),
        ("sm_100a", {"sm_100"}),
        ("sm_120a", {"sm_120"}),
    ],
)
def test_machine_code_runs_on_no_other_major_version_and_with_a_suffix_on_one_device_alone(arch, runs):
    known = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121", "unknown"]
    devices = [DeviceClass(backend="cuda", arch=a, model="m") for a in known]
    assert {d.arch for d in devices if runs_on(Target.parse(f"cuda:{arch}"), d)} == runs
    assert not runs_on(Target.parse(f"cuda:{arch}"), DeviceClass(backend="cpu", arch=arch, model="m"))


@pytest.mark.compiler
@needs_nvcc
@pytest.mark.long
@pytest.mark.parametrize("way", ["nvcc", pytest.param("nvrtc", marks=needs_nvrtc)])
def test_both_ways_build_for_every_architecture(tmp_path, way):
    (tmp_path / "kernels.py").write_text(KERNELS)
    cases = {arch: plain("gemm", f"cuda:{arch}", GEMM, **GEMMS) for arch in CUDA_ARCHS}
    for name, one in build_all(tmp_path, cases, way=way).items():
        assert isinstance(one, jobs.Built), (name, one)
        assert one.manifest.toolchain.device_compiler == way
        cubin = read_cubin(embedded_cubin(one.library))
        assert f"sm_{cubin.arch}" == one.manifest.target.arch.rstrip("a")
