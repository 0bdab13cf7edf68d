"""The quickstart's dynamic gemm at 256^3, built by tilegate and by TileLang's own CPU path, side by side."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import tilelang
import tilelang.language as T
import torch
from figures import ROOT, Row, medians, record

from tilegate import pipeline
from tilegate.library import Rows, open_library
from tilegate.pipeline.opened import open_project

SIZE, ROUNDS, CALLS = 256, 15, 3


def ours(folder: Path):
    project = folder / "quickstart"
    shutil.copytree(
        ROOT / "examples/quickstart",
        project,
        ignore=shutil.ignore_patterns(".tilegate", "release", "__pycache__"),
    )
    pipeline.build(project, only=["gemm"], targets=["cpu:x86-64-v3"])
    workspace = open_project(project).workspace
    ((_, manifest),) = workspace.manifests("gemm")
    library = open_library(workspace.blobs.get(manifest.library.digest), identity=manifest.identity)
    return library, Rows.admitting_all(manifest.symbols)


def theirs():
    sys.path.insert(0, str(ROOT / "examples/quickstart"))
    import cpu_kernels as kernels

    function = kernels.gemm_tiles.get_tir(*(T.dynamic(axis) for axis in "MNK"), "float32")
    return tilelang.compile(function, target="c", execution_backend="cython")


def measure(folder: Path) -> list[Row]:
    (library, rows), other = ours(folder), theirs()
    a, b, c, d = (torch.randn(SIZE, SIZE) for _ in range(4))
    assert library.entry(a, b, c, rows.address) == 0
    other(a, b, d)
    assert torch.allclose(c, d, atol=1e-3)
    found = medians(
        [
            ("tilegate", lambda: library.entry(a, b, c, rows.address)),
            ("tilelang", lambda: other(a, b, d)),
            ("torch", lambda: torch.mm(a, b)),
        ],
        rounds=ROUNDS,
        calls=CALLS,
    )
    ratio = found["tilelang"] / found["tilegate"]
    return [
        ("tilegate, cpu:x86-64-v3", f"{found['tilegate'] / 1000:.2f} ms", ""),
        ("TileLang's own CPU build of the same kernel", f"{found['tilelang'] / 1000:.2f} ms", ""),
        ("ratio", f"{ratio:.1f}", "aim: 20"),
        ("torch.mm, one thread", f"{found['torch'] / 1000:.2f} ms", "for scale: another algorithm"),
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        found_rows = measure(Path(name))
    how = f"float32, {SIZE}^3, medians of {ROUNDS} interleaved rounds of {CALLS} calls"
    record("gemm", "A dynamic gemm, built twice", how, found_rows)
