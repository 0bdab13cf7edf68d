"""What every benchmark shares: interleaved medians, and the page that a result is recorded on."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tilegate.processor import local_processor

ROOT = Path(__file__).resolve().parent.parent

Row = tuple[str, str, str]
"""What, figure, aim or remark."""


def medians(
    cases: Sequence[tuple[str, Callable[[], object]]], *, rounds: int, calls: int
) -> dict[str, float]:
    """Median microseconds per call of each case, rounds interleaved: a machine that drifts drifts for all."""
    samples: dict[str, list[float]] = {name: [] for name, _ in cases}
    for _ in range(rounds):
        for name, call in cases:
            start = time.perf_counter_ns()
            for _ in range(calls):
                call()
            samples[name].append((time.perf_counter_ns() - start) / calls / 1000)
    return {name: statistics.median(values) for name, values in samples.items()}


def record(script: str, title: str, how: str, rows: Sequence[Row], remarks: str = "") -> None:
    """Print the page of a benchmark; with `--write`, keep it under docs/evidence/."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="record the page under docs/evidence/")
    write = parser.parse_args().write
    versions = ", ".join(
        f"{p} {importlib.metadata.version(p)}" for p in ("torch", "apache-tvm-ffi", "tilelang")
    )
    today = dt.datetime.now(tz=dt.UTC).date()
    table = ["| what | figure | |", "|---|---|---|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)]
    page = "\n".join(
        [
            f"# {title}\n",
            f"`python benchmarks/{script}.py --write`, {today}, {local_processor()}, {versions}; {how}.\n",
            *table,
            *([f"\n{remarks}"] if remarks else []),
            "",
        ]
    )
    print(page)
    if write:
        (ROOT / "docs/evidence" / f"{script}.md").write_text(page)
