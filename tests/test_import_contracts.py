"""Every rule of .importlinter catches a breach: one line is added to a copy of the source, and the rule breaks."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BREACHES = {
    "pipeline-shows-in-the-tree": [
        ("rules/evidence.py", "import tilegate.store.layout"),
        ("records/shape.py", "import tilegate.rules.points"),
        ("store/index.py", "import tilegate.trust.verify"),
        ("pipeline/status.py", "import tilegate.report.terminal"),
        ("errors.py", "import tilegate.records.shape"),
        ("drill/stage.py", "import tilegate.report.terminal"),
    ],
    "runtime-is-small": [
        ("runtime/load.py", "import tilegate.store.blobs"),
        ("runtime/dispatch.py", "import sqlite3"),
        ("library.py", "import tilelang"),
    ],
    "serving-needs-no-tools": [
        ("api.py", "import tilegate.sandbox"),
        ("store/layout.py", "import rich"),
        ("rules/preflight.py", "import cryptography"),
    ],
    "records-and-rules-are-pure": [
        ("rules/coverage.py", "import time"),
        ("records/plan.py", "import torch"),
        ("rules/sanitize.py", "def peek():\n    import os\n    return os.environ"),
    ],
    "one-door-to-a-subprocess": [
        ("pipeline/build.py", "import subprocess"),
        ("runtime/operator.py", "import multiprocessing.pool"),
    ],
    "no-drawer-for-everything": [("sandbox/job.py", "import tilegate.evaluate.plan")],
}  # fmt: skip


def contracts():
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    marker = "importlinter:contract:"
    return {s.removeprefix(marker): parser[s]["name"] for s in parser.sections() if s.startswith(marker)}


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(
        ROOT / "src/tilegate", tmp_path / "tilegate", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def lint(folder):
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "400"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_source_keeps_every_contract(copy):
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert f"Contracts: {len(contracts())} kept, 0 broken." in done.stdout


def test_every_contract_has_a_breach_below():
    assert set(BREACHES) == set(contracts())


@pytest.mark.parametrize(
    ("contract", "file", "line"), [(name, *breach) for name, found in BREACHES.items() for breach in found]
)
def test_a_planted_breach_is_caught_by_its_contract(copy, contract, file, line):
    planted = copy / "tilegate" / file
    planted.write_text(planted.read_text() + f"\n{line}\n")
    done = lint(copy)
    assert done.returncode == 1, done.stdout
    assert f"{contracts()[contract]} BROKEN" in done.stdout.replace("\n", " ").replace("  ", " ")
