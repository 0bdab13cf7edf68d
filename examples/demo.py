"""What `make demo` runs: two projects, from source to served calls, each command as one would type it.

It stops at the first command that fails, with that command's exit code. What is built stays: a second run is
quicker.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
QUICKSTART = "examples/quickstart"
EMBEDDING = "examples/embedding"
STEPS = ("build", "evaluate", "promote")

CHAPTERS = (
    ("What this machine has, and how jobs are isolated on it", ["tilegate doctor"]),
    (
        "Five operators: source -> artifacts -> evidence -> release",
        [f"tilegate {step} -C {QUICKSTART}" for step in STEPS],
    ),
    (
        "Layer norm, attention and GELU of an embedding model, likewise",
        [f"tilegate {step} -C {EMBEDDING}" for step in STEPS],
    ),
    ("Where everything stands", [f"tilegate status -C {folder}" for folder in (QUICKSTART, EMBEDDING)]),
    (
        "gemm_tiles drops the last K % 32 columns, so a guard keeps those calls away from it",
        [f"tilegate explain gemm M=64 N=64 K={k} -C {QUICKSTART}" for k in (100, 128)],
    ),
    ("Serving: no compiler from here on", [f"python {QUICKSTART}/serve.py"]),
    ("Serving a whole model", [f"python {EMBEDDING}/run.py"]),
)
"""(what the commands below it show, commands)"""

TOLERATED = {"tilegate doctor": 1}
"""Doctor tells of anything that is missing; what cannot do without it will say so, and fail."""


def main() -> int:
    bold, dim, plain = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
    start = time.monotonic()
    for title, commands in CHAPTERS:
        print(f"\n{bold}{title}{plain}{dim}  (after {time.monotonic() - start:.0f} s){plain}")
        for command in commands:
            print(f"\n{bold}$ {command}{plain}", flush=True)
            code = run(command)
            if code not in (0, TOLERATED.get(command)):
                print(f"the demo stops: {command} ended with exit code {code}", file=sys.stderr)
                return code
    return 0


def run(command: str) -> int:
    """Run `tilegate ...` or `python ...` with this Python, from the root of the repository."""
    program, *arguments = shlex.split(command)
    module = ["-m", program] if program == "tilegate" else []
    done = subprocess.run(  # noqa: S603 - the commands stand above
        [sys.executable, *module, *arguments], cwd=ROOT, check=False
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
