"""What `make demo` runs: two projects, from source to served calls, each command as one would type it.

It stops at the first command that fails, with that command's exit code. What is built stays: a second run is
quicker. Where this machine cannot isolate jobs fully it says so, and goes on with copies of the projects whose
policy accepts less.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIES = ROOT / "build" / "demo"
ACCEPTING = '\n[policy]\nisolation = ["full", "reduced"]\n'


def chapters(folder: str, isolation: str) -> tuple[tuple[str, list[str]], ...]:
    """(what the commands below it show, commands)"""
    quickstart, embedding = f"{folder}/quickstart", f"{folder}/embedding"
    steps = (f"build{isolation}", f"evaluate{isolation}", "promote")
    return (
        ("What this machine has, and how jobs are isolated on it", ["tilegate doctor"]),
        (
            "Five operators: source -> artifacts -> evidence -> release",
            [f"tilegate {step} -C {quickstart}" for step in steps],
        ),
        (
            "Layer norm, attention and GELU of an embedding model, likewise",
            [f"tilegate {step} -C {embedding}" for step in steps],
        ),
        ("Where everything stands", [f"tilegate status -C {one}" for one in (quickstart, embedding)]),
        (
            "gemm_tiles drops the last K % 32 columns, so a guard keeps those calls away from it",
            [f"tilegate explain gemm M=64 N=64 K={k} -C {quickstart}" for k in (100, 128)],
        ),
        ("Serving: no compiler from here on", [f"python {quickstart}/serve.py"]),
        ("Serving a whole model", [f"python {embedding}/run.py"]),
    )


TOLERATED = {"tilegate doctor": 1}
"""Doctor tells of anything that is missing; what cannot do without it will say so, and fail."""


def main() -> int:
    bold, dim, plain = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
    start = time.monotonic()
    missing = what_full_lacks()
    if missing:
        print(f"This machine cannot isolate jobs fully: {missing}")
        print("The demo goes on with --isolation reduced, and with a policy that accepts it.")
    folder, isolation = (accepting_copies(), " --isolation reduced") if missing else ("examples", "")
    for title, commands in chapters(folder, isolation):
        print(f"\n{bold}{title}{plain}{dim}  (after {time.monotonic() - start:.0f} s){plain}")
        for command in commands:
            print(f"\n{bold}$ {command}{plain}", flush=True)
            code = run(command).returncode
            if code not in (0, TOLERATED.get(command)):
                print(f"the demo stops: {command} ended with exit code {code}", file=sys.stderr)
                return code
    return 0


def what_full_lacks() -> str:
    """Why jobs cannot be isolated fully here; empty where they can."""
    report = json.loads(run("tilegate doctor --json", stdout=subprocess.PIPE).stdout)
    (full,) = (check for check in report["checks"] if check["name"] == "isolation full")
    return "" if full["ok"] else f"{full['found']} (to mend it: {full['mend']})"


def accepting_copies() -> str:
    """The projects again, with a policy of their own."""
    for name in ("quickstart", "embedding"):
        left = shutil.ignore_patterns(".tilegate", "release", "__pycache__")
        shutil.copytree(ROOT / "examples" / name, COPIES / name, ignore=left, dirs_exist_ok=True)
        with (COPIES / name / "tilegate.toml").open("a") as file:
            file.write(ACCEPTING)
    return str(COPIES.relative_to(ROOT))


def run(command: str, stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run `tilegate ...` or `python ...` with this Python, from the root of the repository."""
    program, *arguments = shlex.split(command)
    module = ["-m", program] if program == "tilegate" else []
    return subprocess.run(  # noqa: S603 - the commands stand above
        [sys.executable, *module, *arguments], cwd=ROOT, stdout=stdout, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
