"""Eight kernels of one closure for a GPU that is not there, sandboxed, against TileLang's own parallel build.

And what the sandbox costs one CPU kernel. Everything cold: no cache, and the toolchain imported anew each time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import ROOT, Row, record

sys.path.insert(0, str(ROOT))
from tests.elaborations import contract_of
from tilegate.build import jobs
from tilegate.build.closure import collect
from tilegate.build.toolchain import read_toolchain
from tilegate.records.closure import Binding
from tilegate.records.isolation import Level
from tilegate.records.target import Target
from tilegate.rules.expansion import expand
from tilegate.sandbox import COMPILE, ELABORATE

ROUNDS, WORKERS, ARCH = 5, 2, "sm_90a"

KERNELS = """
import tilelang.language as T


def gemm(M, N, K, BM, BN, stages):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            a = T.alloc_shared((BM, 64), "float16")
            b = T.alloc_shared((64, BN), "float16")
            c = T.alloc_fragment((BM, BN), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 64), num_stages=stages):
                T.copy(A[by * BM, k * 64], a)
                T.copy(B[k * 64, bx * BN], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * BM, bx * BN])

    return main


def scale(M, N, factor, columns):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, columns), M, threads=128) as (bx, row):
            for j in T.Parallel(columns):
                C[row, bx * columns + j] = A[row, bx * columns + j] * T.float16(factor)

    return main


def centred(M, N, threads):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment((N,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A[row, :], x)
            T.reduce_sum(x, total, dim=0)
            for j in T.Parallel(N):
                x[j] -= total[0] / N
            T.copy(x, C[row, :])

    return main
"""

CHOICES = (
    ("gemm", {"BM": 128, "BN": 128, "stages": 3}),
    ("gemm", {"BM": 128, "BN": 64, "stages": 3}),
    ("gemm", {"BM": 64, "BN": 128, "stages": 2}),
    ("scale", {"factor": 2.0, "columns": 256}),
    ("scale", {"factor": 0.5, "columns": 512}),
    ("scale", {"factor": 3.0, "columns": 1024}),
    ("centred", {"threads": 128}),
    ("centred", {"threads": 256}),
)
N, K = 1024, 2048

CPU_KERNEL = """
import tilelang.language as T


def scale(M, N, factor):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(M) as row:
            for j in T.serial(N):
                C[row, j] = A[row, j] * T.float32(factor)

    return main
"""

THEIRS = """
import sys, time
start = time.perf_counter()
import tilelang, tilelang.language as T
from tvm.target import Target
import kernels
imported = time.perf_counter()
target = {{"kind": "cuda", "arch": "{arch}"}}
with Target(target):
    functions = [getattr(kernels, name)(M=T.dynamic("M"), **arguments) for name, arguments in {asked}]
built = tilelang.par_compile(functions, target=target, execution_backend="tvm_ffi", num_workers={workers})
compiled = time.perf_counter()
for i, kernel in enumerate(built):
    kernel.export_library(f"kernel-{{i}}.so")
print(imported - start, time.perf_counter() - compiled)
"""


def binding(factory: str, constants: dict, number: int = 0) -> Binding:
    specialize = {"N": (N,)} | ({"K": (K,)} if factory == "gemm" else {})
    return Binding(
        operator="contracts:op", factory=f"kernels:{factory}", kernel=f"{factory}_{number}",
        dynamic=("M",), specialize=specialize, constants=constants,
    )  # fmt: skip


def contract(factory: str, dtype: str = "float16"):
    if factory == "gemm":
        return contract_of({"A": (dtype, "M", "K"), "B": (dtype, "K", "N")}, {"C": (dtype, "M", "N")})
    return contract_of({"A": (dtype, "M", "N")}, {"C": (dtype, "M", "N")})


def ours(text: str, bindings, contracts, target: Target, level: Level) -> tuple[float, int]:
    """Seconds from sources to libraries, and bytes of the libraries."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels.py").write_text(text)
        (folder / "contracts.py").write_text("")
        start = time.perf_counter()
        toolchain, asked, sources = read_toolchain(), [], {}
        for bound, terms in zip(bindings, contracts, strict=True):
            closure, found = collect(bound, [folder])
            sources |= found
            asked += [jobs.Asked(closure, terms, one, target.lowering) for one in expand(bound, terms)]
        policy = COMPILE.at(level)
        with jobs.compiler([target] * len(asked), toolchain, policy=policy, parallel=WORKERS) as compiled:
            made = jobs.elaborate(asked, sources, policy=ELABORATE.at(level), parallel=WORKERS)
            built = compiled([(one, target) for one in made])
        spent = time.perf_counter() - start
    assert all(isinstance(one, jobs.Built) for one in built), built
    return spent, sum(len(one.library) for one in built)


def theirs() -> tuple[float, float, float, int]:
    """Seconds of a process of its own; those of them for imports and for export; bytes of the libraries."""
    asked = [(n, {**c, "N": N} | ({"K": K} if n == "gemm" else {})) for n, c in CHOICES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels.py").write_text(KERNELS)
        (folder / "build.py").write_text(THEIRS.format(arch=ARCH, asked=asked, workers=WORKERS))
        environment = os.environ | {"TILELANG_CACHE_DIR": str(folder / "cache"), "HOME": name, "TMPDIR": name}
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "build.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        spent = time.perf_counter() - start
        size = sum(path.stat().st_size for path in folder.glob("kernel-*.so"))
        assert len(list(folder.glob("kernel-*.so"))) == len(CHOICES)
    imports, export = map(float, done.stdout.split()[-2:])
    return spent, imports, export, size


def gpu_rows() -> list[Row]:
    bindings = [binding(name, constants, i) for i, (name, constants) in enumerate(CHOICES)]
    contracts = [contract(name) for name, _ in CHOICES]
    target = Target(backend="cuda", arch=ARCH)
    a, b = [], []
    for _ in range(ROUNDS):
        a.append(ours(KERNELS, bindings, contracts, target, Level.FULL))
        b.append(theirs())
    mine, other = (statistics.median(spent for spent, *_ in found) for found in (a, b))
    imports, export = (statistics.median(found[place] for found in b) for place in (1, 2))
    used = read_toolchain().device_compiler
    return [
        (f"tilegate, eight kernels for {ARCH}, full isolation, {used}", f"{mine:.1f} s", ""),
        (
            "TileLang's par_compile and export_library of the same",
            f"{other:.1f} s",
            f"{imports:.1f} s of it imports, {export:.1f} s export_library",
        ),
        ("ratio of medians", f"{mine / other:.2f}", f"{mine / (other - export):.2f} without export_library"),
        ("each round, tilegate", ", ".join(f"{spent:.1f}" for spent, _ in a) + " s", ""),
        ("each round, TileLang", ", ".join(f"{spent:.1f}" for spent, *_ in b) + " s", ""),
        ("size of eight libraries", f"{a[-1][1] / 1e3:.0f} kB", f"TileLang's: {b[-1][3] / 1e3:.0f} kB"),
    ]


def cpu_rows() -> list[Row]:
    bound, terms = binding("scale", {"factor": 2.0}), contract("scale", "float32")
    target = Target.parse("cpu:x86-64-v3")
    spent: dict[Level, list[float]] = {Level.FULL: [], Level.NONE: []}
    for _ in range(ROUNDS):
        for level, found in spent.items():
            found.append(ours(CPU_KERNEL, [bound], [terms], target, level)[0])
    full, bare = (statistics.median(spent[level]) for level in (Level.FULL, Level.NONE))
    return [
        ("one CPU kernel, full isolation", f"{full:.2f} s", ""),
        ("the same, bare", f"{bare:.2f} s", ""),
        ("the sandbox's own cost, for both jobs", f"{full - bare:.2f} s", ""),
    ]


if __name__ == "__main__":
    how = f"cold caches, {WORKERS} at once, medians of {ROUNDS} interleaved rounds, no GPU"
    record(
        "build",
        "Building for a GPU without one",
        how,
        [*gpu_rows(), *cpu_rows()],
        "Both start from source and end with libraries. tilegate starts two sandboxes, runs the factories in one "
        "and compiles in the other, each importing TileLang; TileLang runs everything in one process of its own.",
    )
