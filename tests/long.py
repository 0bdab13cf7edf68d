"""`make test-long`: what takes longer than five minutes, with its result kept under docs/evidence/.

Tests marked `long`, then the property tests with ten times the examples; or the runs named as arguments.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from tilegate.processor import local_processor

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/evidence/test-long.md"
PROPERTIES = [
    "test_records",
    "test_guard",
    "test_coverage",
    "test_plan",
    "test_sanitize",
    "test_elf",
    "test_layout",
]
RUNS = {
    "marked long": (["-m", "long", "tests"], {}),
    "property tests, long profile": (
        ["-m", "not long", *(f"tests/{name}.py" for name in PROPERTIES)],
        {"TILEGATE_HYPOTHESIS": "long"},
    ),
}


def main() -> int:
    lines: list[str] = []
    worst = 0
    wanted = sys.argv[1:] or list(RUNS)
    for name, (arguments, environment) in ((name, RUNS[name]) for name in wanted):
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        sys.stdout.write(done.stdout)
        worst = max(worst, done.returncode)
        summary = done.stdout.strip().splitlines()[-1].strip("= ")
        lines.append(f"| {name} | {summary} | {time.monotonic() - start:.0f} s |")
    today = dt.datetime.now(tz=dt.UTC).date()
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    where = f"{today}, revision {revision}, {local_processor()}, Python {platform.python_version()}"
    table = "\n".join(["| run | result | took |", "|---|---|---|", *lines])
    asked = " ".join(f'"{name}"' for name in sys.argv[1:])
    command_line = f"python tests/long.py {asked}" if asked else "make test-long"
    PAGE.write_text(f"# The long tests\n\n`{command_line}`, {where}.\n\n{table}\n")
    return worst


if __name__ == "__main__":
    sys.exit(main())
