"""On a machine with a GPU and nvcc: does an evaluation find what it promises to find, and what does it cost?

    PYTHONPATH=src python benchmarks/device/evaluate.py [--bundle build/bundle.tgb] [--level gpu]

A kernel by hand with every fault (`faults.cu`) is evaluated under the conditions of a plan; the sanitizer and the
driver's virtual memory are tried; a bundle, if there is one, is evaluated, and its evidence written to $OUT.
Prints a table last.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import tvm_ffi  # noqa: E402

from tilegate.evaluate import run  # noqa: E402
from tilegate.evaluate.devices import driven, find_gpu, versions  # noqa: E402
from tilegate.evaluate.requests import Numbered, RunRequest  # noqa: E402
from tilegate.evaluate.run import Subject  # noqa: E402
from tilegate.evaluate.sanitizer import sanitize  # noqa: E402
from tilegate.evaluate.timing import time_served  # noqa: E402
from tilegate.pipeline.bundle import evaluate_bundle  # noqa: E402
from tilegate.records.artifact import ABI, Elaboration, Manifest, TensorAbi  # noqa: E402
from tilegate.records.canonical import blob_of, digest_of, encode  # noqa: E402
from tilegate.records.closure import SourceFile, Specialization  # noqa: E402
from tilegate.records.contract import Contract, NonFinite, TensorSpec, Tolerance  # noqa: E402
from tilegate.records.evaluation import EntryVerdict  # noqa: E402
from tilegate.records.isolation import JobPolicy, Level  # noqa: E402
from tilegate.records.plan import Condition, Entry, Layout, Origin, Plan, Values, Workload  # noqa: E402
from tilegate.records.target import Target  # noqa: E402
from tilegate.records.toolchain import Toolchain  # noqa: E402
from tilegate.sandbox import EVALUATE, Job, run_job  # noqa: E402

REFERENCE = b"""
import tilegate
@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="faulty")
def faulty(x):
    return 2 * x
"""
NO_DIGEST = "sha256:" + "0" * 64
BIG = 1 << 24
PLAIN, SIDE, BUSY, GRAPH = Condition.PLAIN, Condition.SIDE_STREAM, Condition.BUSY, Condition.GRAPH
V = EntryVerdict

FOUND = {
    "right": (10, PLAIN, V.PASSED, ""),
    "no elements": (0, PLAIN, V.PASSED, ""),
    "a wrong element": (11, PLAIN, V.WRONG, "y"),
    "an element left out": (12, PLAIN, V.UNWRITTEN, "y"),
    "a write behind the end": (13, PLAIN, V.OUT_OF_BOUNDS, "y"),
    "a write before the start": (14, PLAIN, V.OUT_OF_BOUNDS, "y"),
    "a write 16 kB behind": (16, PLAIN, V.OUT_OF_BOUNDS, "y"),
    "a changed input": (17, PLAIN, V.INPUT_MODIFIED, "x"),
    "an over-read that is used": (18, PLAIN, V.NONDETERMINISTIC, "y"),
    "an over-read without effect": (19, PLAIN, V.PASSED, ""),
    "a NaN": (20, PLAIN, V.NONFINITE, "y"),
    "an illegal address": (22, PLAIN, V.CRASHED, "illegal address"),
    "healthy behind it": (10, PLAIN, V.PASSED, ""),
    "a misaligned address": (23, PLAIN, V.CRASHED, "misaligned address"),
    "a hang": (24, PLAIN, V.HUNG, "silent"),
    "healthy behind the hang": (10, PLAIN, V.PASSED, ""),
    "a refusal": (25, PLAIN, V.REFUSED, "HOST"),
    "a trap": (26, PLAIN, V.CRASHED, "launch failure"),
    "right, on a side stream": (10, SIDE, V.PASSED, ""),
    "right, beside another kernel": (10, BUSY, V.PASSED, ""),
    "right, in a graph": (10, GRAPH, V.PASSED, ""),
    "right, all conditions, large: side": (BIG, SIDE, V.PASSED, ""),
    "right, large: busy": (BIG, BUSY, V.PASSED, ""),
    "right, large: graph": (BIG, GRAPH, V.PASSED, ""),
    "another stream than the caller's": (35, PLAIN, V.PASSED, ""),
    "the same, on a side stream": (35, SIDE, V.NONDETERMINISTIC, "y"),
    "the same, in a graph": (35, GRAPH, V.NONDETERMINISTIC, "y"),
    "a wait that no graph can hold": (37, GRAPH, V.CRASHED, "stream capture"),
    "right, behind them all": (BIG, PLAIN, V.PASSED, ""),
}


def compiled(source: str, folder: Path, *more: str) -> Path:
    """The output of nvcc for one file of this folder."""
    out = folder / f"{source}.out"
    include = [f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}"]
    nvcc = "/usr/local/cuda/bin/nvcc" if Path("/usr/local/cuda/bin/nvcc").exists() else "nvcc"
    subprocess.run(
        [nvcc, "-O2", "-arch=native", *include, *more, str(HERE / source), "-o", str(out)], check=True
    )
    return out


def subject_of(library: bytes, target: Target) -> Subject:
    contract = Contract(
        name="faulty",
        inputs=(TensorSpec(name="x", dtype="float32", dims=("n",)),),
        outputs=(TensorSpec(name="y", dtype="float32", dims=("n",)),),
        dtypes={},
        attributes=(),
        in_place=(),
        tolerance=Tolerance(),
        non_finite=NonFinite.EXCLUDED,
        values={},
        reference=NO_DIGEST,
    )
    tensors = tuple(TensorAbi(name=n, dtype="float32", dims=("n",), written=n == "y") for n in "xy")
    elaboration = Elaboration(
        operator="faulty", kernel="by_hand", contract=contract.digest, closure=NO_DIGEST,
        specialization=Specialization(), entry="body", tensors=tensors, symbols=("n",), tiles={"n": ()},
        stages=(), pass_configs={}, ir=NO_DIGEST,
    )  # fmt: skip
    manifest = Manifest(
        abi=ABI, elaboration=elaboration, target=target, toolchain=Toolchain(versions={"nvcc": "here"}),
        isolation=(), identity="faults", library=blob_of(library),
    )  # fmt: skip
    file = SourceFile(
        module="faulty_ops", path="faulty_ops.py", digest=digest_of(REFERENCE), size=len(REFERENCE)
    )
    return Subject(
        contract=contract, manifest=manifest, library=library, operator="faulty_ops:faulty",
        files=(file,), sources={file.digest: REFERENCE},
    )  # fmt: skip


def plan_of(subject: Subject, *wanted: tuple[int, Condition], origin: Origin = Origin.BOUNDARY) -> Plan:
    entries = tuple(
        Entry(
            workload=Workload(axes={"n": n}), layout=Layout.ALIGNED, values=Values.NORMAL, origin=origin,
            condition=condition,
        )
        for n, condition in wanted
    )  # fmt: skip
    manifest = digest_of(encode(subject.manifest))
    return Plan(contract=subject.contract.digest, manifest=manifest, nonce="a nonce", entries=entries)


def faults(subject: Subject, policy: JobPolicy) -> list[str]:
    """Every fault of the kernel, through the product's own workers."""
    run.MAX_LOST_WORKERS = 20  # each of these takes a worker with it; in earnest six are enough
    plan = plan_of(subject, *((n, condition) for n, condition, _, _ in FOUND.values()))
    gpu = find_gpu(policy)
    started = time.monotonic()
    found = run.evaluate(
        subject, plan, gpu.device, versions() | gpu.versions, policy=policy.within(silence_s=8.0)
    )
    took = time.monotonic() - started
    results = {result.index: result for result in found.results}
    lines = [f"{found.isolation}", f"{len(results)} of {len(FOUND)} entries in {took:.1f} s"]
    for index, (name, (_, _, verdict, detail)) in enumerate(FOUND.items()):
        got = results.get(index)
        told = f"{got.verdict.name} {got.detail}".strip() if got else "MISSING"
        good = got is not None and (got.verdict, got.detail) == (verdict, detail)
        mark = "ok " if good else "BAD"
        lines.append(f"{mark} {name:38} {told}" + ("" if good else f"   wanted {verdict.name} {detail}"))
    return lines


def rate(subject: Subject, policy: JobPolicy) -> list[str]:
    """What one small entry costs, and one whose tensors hold 64 MiB each; the worker alone."""
    lines = []
    for name, n, count, condition in (
        ("small", 1000, 400, PLAIN), ("64 MiB", BIG, 8, PLAIN), ("small, graph", 1000, 20, GRAPH),
        ("small, side stream", 1000, 20, SIDE), ("small, busy", 1000, 20, BUSY),
    ):  # fmt: skip
        plan = plan_of(subject, *[(n, condition)] * count)
        entries = tuple(Numbered(index=i, seed=plan.seed(i), entry=e) for i, e in enumerate(plan.entries))
        seconds = []
        for some in (entries[:1], entries):
            request = RunRequest(
                contract=subject.contract, identity="faults", symbols=("n",), entries=some, backend="cuda"
            )
            inputs = {"request": encode(request), "library": subject.library}
            result = run_job(Job(task="tilegate.evaluate.worker:work", inputs=inputs), policy)
            seconds.append(result.wall_s)
        each = (seconds[1] - seconds[0]) / (count - 1) * 1e3
        lines.append(
            f"entry, {name:20} {each:8.2f} ms   (worker with one entry {seconds[0]:.1f} s, {result.ending.value})"
        )
    return lines


def timing(subject: Subject, policy: JobPolicy) -> list[str]:
    plan = plan_of(subject, (1000, PLAIN), (BIG, PLAIN), origin=Origin.SERVED)
    gpu = find_gpu(policy)
    found = run.evaluate(subject, plan, gpu.device, versions(), policy=policy)
    lines = []
    for one in time_served(subject, plan, found, policy):
        n = plan.entries[one.index].workload.axes["n"]
        reference = (one.reference_device_ns or 0, one.reference_wall_ns or 0)
        lines.append(
            f"n={n:<9} {one.runs} runs: device {one.device_ns / 1e3:.1f} us, wall {one.wall_ns / 1e3:.1f} us; "
            f"reference {reference[0] / 1e3:.1f} us, {reference[1] / 1e3:.1f} us"
        )
    return lines or ["nothing was timed"]


def sanitizer(subject: Subject, policy: JobPolicy) -> list[str]:
    plan = plan_of(subject, *((n, PLAIN) for n in (10, 33, 38, 19, 11)))
    told, findings = sanitize(subject, plan, policy)
    lines = [
        f"{one.tool:10} {one.entries} entries, {one.errors} errors  {one.kind}{one.skipped}" for one in told
    ]
    return [
        *lines,
        *(f"at n={plan.entries[f.index].workload.axes['n']}: {f.tool}, {f.errors}" for f in findings),
    ]


def virtual_memory(folder: Path) -> list[str]:
    program = compiled("vmm.cu", folder, "-ldl")
    return subprocess.run([program], capture_output=True, text=True, check=False).stdout.splitlines()


def bundle(file: Path, out: Path, policy: JobPolicy) -> list[str]:
    started = time.monotonic()
    report = evaluate_bundle(
        file, out / "evidence.tge", policy=policy, return_bytes=14 * 2**20,
        progress=lambda what, done, total: print(f"{time.monotonic() - started:7.1f} s  {what}: {done} of {total}"),
    )  # fmt: skip
    lines = [f"{report.device}, {time.monotonic() - started:.0f} s"]
    for line in report.lines:
        told = ", ".join(f"{n} {verdict}" for verdict, n in sorted(line.verdicts.items()))
        lines.append(
            f"{line.kernel} ({line.specialization}) on {line.target}: {told or 'not on this device'}"
        )
    return lines


def _text(told: Mapping[str, list[str]]) -> str:
    return "\n".join(f"== {title}\n" + "\n".join(lines) for title, lines in told.items()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bundle", type=Path, default=ROOT / "build/bundle.tgb")
    parser.add_argument("--level", default="gpu", choices=[level.value for level in Level])
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    began = time.monotonic()
    out = Path(os.environ.get("OUT") or tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    policy = driven(EVALUATE.at(Level(given.level)))
    gpu = find_gpu(policy)
    told: dict[str, list[str]] = {
        "gpu": [str(gpu.device), str(gpu.versions), str(versions())] if gpu else ["none"]
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = compiled(
            "faults.cu", folder, "-shared", "-Xcompiler", "-fPIC", "-cudart", "static"
        ).read_bytes()
        arch = gpu.device.arch if gpu else "sm_90"
        target = Target(backend="cuda", arch="sm_90a" if arch == "sm_90" else arch)
        subject = subject_of(library, target)
        sections: Mapping[str, Callable[[], list[str]]] = {
            "faults": lambda: faults(subject, policy),
            "rate": lambda: rate(subject, policy),
            "timing": lambda: timing(subject, policy),
            "virtual memory": lambda: virtual_memory(folder),
            "sanitizer": lambda: sanitizer(subject, policy),
            "bundle": lambda: (
                bundle(given.bundle, out, policy) if given.bundle.exists() else ["none was carried"]
            ),
        }
        for title, section in sections.items():
            if given.only and title not in given.only.split(","):
                continue
            try:
                told[title] = section()
            except Exception as error:  # noqa: BLE001 - one section must not hide the others
                traceback.print_exc()
                told[title] = [f"FAILED {type(error).__name__}: {error}"]
            print(f"== {title}, {time.monotonic() - began:.0f} s in all", *told[title], sep="\n", flush=True)
            (out / "evaluate.txt").write_text(_text(told))  # what is known stays, whatever comes
    print(f"\n\n{_text(told)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
