"""Host time of a call: without a release, served, and missed, each against what it stands on.

    make bench        (or: python benchmarks/dispatch.py [--write])

Every figure is a difference of medians over interleaved rounds of one process, in microseconds: the machine
drifts between rounds, so figures of different runs are not compared. `--write` records the table under
docs/evidence/ with date, device and toolchain.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import tilegate
from tilegate import pipeline
from tilegate.processor import local_processor

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, CALLS = 60, 2000
VERIFIED = (
    "Python: plain tensor types, no gradient, no negative bit, no torch mode or transform, attribute values; "
    "C: argument count, tensor handles, device, dtype, rank, every extent in 64 bits, symbols shared between "
    "tensors, int32 limit, strides, overlap with outputs, shape class, alignment, element limit"
)

Case = tuple[str, Callable[[], object]]


def medians(cases: list[Case]) -> dict[str, float]:
    """Median microseconds per call of each case, rounds interleaved."""
    samples: dict[str, list[float]] = {name: [] for name, _ in cases}
    for _ in range(ROUNDS):
        for name, call in cases:
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            samples[name].append((time.perf_counter_ns() - start) / CALLS / 1000)
    return {name: statistics.median(values) for name, values in samples.items()}


def promoted(folder: Path) -> Path:
    """The quickstart, built and promoted in a copy."""
    project = folder / "quickstart"
    shutil.copytree(
        ROOT / "examples/quickstart",
        project,
        ignore=shutil.ignore_patterns(".tilegate", "release", "__pycache__"),
    )
    pipeline.build(project)
    pipeline.evaluate(project)
    pipeline.promote(project)
    return project


def measure(project: Path) -> list[tuple[str, float, str]]:
    sys.path.insert(0, str(project))
    from operators import rms_norm

    x, weight, out = torch.randn(1, 384), torch.randn(384), torch.empty(1, 384)
    narrow, short = x[:, :383].contiguous(), weight[:383].contiguous()
    reference = rms_norm.reference
    nothing = medians(
        [("operator", lambda: rms_norm(narrow, short)), ("plain", lambda: reference(narrow, short))]
    )
    tilegate.use(project / "release", allow_unsigned=True)
    site = rms_norm._call  # noqa: SLF001 - the call site, to reach the artifact behind it
    one = next(o for o in site.keeps_open if o.manifest.elaboration.specialization.dtypes["T"] == "float32")
    entry, rows = one.library.entry, one.rows.address
    served = medians(
        [
            ("hit", lambda: rms_norm(x, weight)),
            ("bare", lambda: entry(x, weight, out, rows)),
            ("allocation", lambda: torch.empty_like(x)),
            ("torch", lambda: torch.nn.functional.rms_norm(x, (384,), weight, 1e-6)),
            ("miss", lambda: rms_norm(narrow, short)),
            ("missed reference", lambda: reference(narrow, short)),
        ]
    )
    over = served["hit"] - served["bare"] - served["allocation"]
    return [
        (
            "no release attached, over the plain function",
            nothing["operator"] - nothing["plain"],
            "aim: under 1",
        ),
        ("served call, rms_norm 1 x 384", served["hit"], ""),
        ("  of which the artifact called bare (its guard in C included)", served["bare"], ""),
        ("  of which allocation of the output", served["allocation"], ""),
        ("  of which checks in Python", over, "aim: 0.5"),
        ("torch.nn.functional.rms_norm, the same call", served["torch"], ""),
        ("missed call, over the reference", served["miss"] - served["missed reference"], "aim: 1"),
    ]


def table(rows: list[tuple[str, float, str]]) -> str:
    lines = ["| what | us, median | |", "|---|---|---|"]
    lines += [f"| {what} | {value:.2f} | {aim} |" for what, value, aim in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="record the table under docs/evidence/")
    write = parser.parse_args().write
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        text = table(measure(promoted(Path(name))))
    versions = ", ".join(
        f"{p} {importlib.metadata.version(p)}" for p in ("torch", "apache-tvm-ffi", "tilelang")
    )
    today = dt.datetime.now(tz=dt.UTC).date()
    page = (
        f"# Host time of a call\n\n`python benchmarks/dispatch.py --write`, {today}, {local_processor()}, "
        f"one thread, {versions}; medians of {ROUNDS} interleaved rounds of {CALLS} calls.\n\n{text}\n\n"
        f"What a served call verifies. {VERIFIED}.\n"
    )
    print(page)
    if write:
        (ROOT / "docs/evidence/dispatch.md").write_text(page)


if __name__ == "__main__":
    main()
