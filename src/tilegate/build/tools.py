"""Running a compiler inside a job: a fixed command in the job's folder, and what its end means."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tilegate.build.failing import CompilerFailed, Diagnosed


def run_tool(command: Sequence[str], folder: Path) -> str:
    """What the tool wrote to stderr.

    Raises:
        Diagnosed: it is not installed, or died of a signal.
        CompilerFailed: it said no.
    """
    tool = command[0].replace("+", "p")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)  # noqa: S603 - our own fixed list
    except FileNotFoundError:
        raise Diagnosed("tool-missing", tool=tool) from None
    said = done.stderr.decode(errors="replace")
    if done.returncode < 0:
        raise Diagnosed("tool-killed", numbers={"signal": -done.returncode}, tool=tool)
    if done.returncode:
        raise CompilerFailed(said or done.stdout.decode(errors="replace"))
    return said
