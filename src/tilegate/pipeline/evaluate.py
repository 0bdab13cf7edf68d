"""Evaluate: every artifact of the present source faces a plan on this device; verdicts are recorded for ever."""

from __future__ import annotations

import importlib.metadata
import platform
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tilegate.errors import StoreError, UsageError
from tilegate.evaluate.plan import make_plan
from tilegate.evaluate.run import Subject
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.tools import TOOLS, Tools
from tilegate.processor import local_processor
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import encode
from tilegate.records.closure import Closure
from tilegate.records.evaluation import EntryVerdict, Evaluation
from tilegate.records.isolation import JobPolicy
from tilegate.records.plan import Entry, Plan
from tilegate.records.report import EvaluateLine, EvaluateReport
from tilegate.records.target import DeviceClass, runs_on
from tilegate.sandbox.policy import EVALUATE

Progress = Callable[[str, int, int], None]
"""(what, entries done, entries in all)"""

MAX_REGRESSIONS = 64
"""Newest failures of an operator that every later plan of it repeats."""


def evaluate(
    folder: Path,
    *,
    only: Sequence[str] = (),
    policy: JobPolicy = EVALUATE,
    progress: Progress = lambda *_: None,
    tools: Tools = TOOLS,
) -> EvaluateReport:
    """Run every current artifact that this device can run.

    Raises:
        UsageError: nothing is built for the present source.
        ToolError: a job could not do its work, or the workspace cannot be written.
    """
    opened = open_project(folder, only=only)
    current = opened.current()
    if not current:
        raise UsageError(
            "there is nothing to evaluate",
            where=str(opened.folder),
            why="no artifact was built from the source as it stands now",
            next_step="tilegate build",
        )
    device = local_processor()
    done = [_evaluate_one(opened, digest, m, device, policy, progress, tools) for digest, m in current]
    isolation = dict.fromkeys(evaluation.isolation for _, evaluation in done if evaluation is not None)
    return EvaluateReport(device=device, lines=tuple(line for line, _ in done), isolation=tuple(isolation))


def evidence(opened: Opened, manifest: str) -> list[tuple[str, Plan, Evaluation]]:
    """All that was ever recorded of one artifact: digest of the evaluation, its plan, itself."""
    found = opened.workspace.evaluations(manifest)
    return [(digest, opened.workspace.load(Plan, e.plan), e) for digest, e in found]


def regressions(opened: Opened, operator: str) -> list[Entry]:
    """Entries at which any artifact of the operator ever failed, newest first, each once."""
    seen: dict[bytes, Entry] = {}
    for digest, _ in reversed(opened.workspace.manifests(operator)):
        for _, plan, evaluation in reversed(evidence(opened, digest)):
            for result in evaluation.results:
                if result.verdict not in (EntryVerdict.PASSED, EntryVerdict.UNSUPPORTED):
                    entry = plan.entries[result.index]
                    seen.setdefault(encode(entry), entry)
                if len(seen) >= MAX_REGRESSIONS:
                    return list(seen.values())
    return list(seen.values())


def _evaluate_one(
    opened: Opened,
    digest: str,
    manifest: Manifest,
    device: DeviceClass,
    policy: JobPolicy,
    progress: Progress,
    tools: Tools,
) -> tuple[EvaluateLine, Evaluation | None]:
    built = manifest.elaboration
    if not runs_on(manifest.target, device):
        return _line(digest, manifest, None, None), None
    declared = opened.declaration(built.contract)
    closure = opened.workspace.load(Closure, built.closure)
    plan = make_plan(
        declared.contract,
        manifest,
        digest,
        declared.served,
        regressions(opened, built.operator),
        opened.policy,
        secrets.token_hex(16),
    )
    subject = Subject(
        contract=declared.contract,
        manifest=manifest,
        library=opened.workspace.blobs.get(manifest.library.digest),
        operator=declared.operator,
        files=closure.files,
        sources={f.digest: opened.workspace.blobs.get(f.digest) for f in closure.files},
    )
    name = f"{built.kernel} ({built.specialization}) on {manifest.target}"
    progress(name, 0, len(plan.entries))
    evaluation = tools.run_plan(
        subject,
        plan,
        device,
        _versions(),
        policy=policy,
        progress=lambda done: progress(name, done, len(plan.entries)),
    )
    recorded = _record(opened, plan, evaluation)
    return _line(digest, manifest, (recorded, evaluation), plan), evaluation


def _record(opened: Opened, plan: Plan, evaluation: Evaluation) -> str:
    with opened.workspace.writing():
        if not opened.workspace.blobs.has(evaluation.manifest):
            raise StoreError(
                "the artifact was removed while it was evaluated",
                where=evaluation.manifest,
                why="its source is not there any more, and `tilegate store gc --superseded` took it",
                next_step="tilegate build && tilegate evaluate",
            )
        opened.workspace.record(plan)
        return opened.workspace.record(evaluation).digest


def _versions() -> dict[str, str]:
    packages = {p: importlib.metadata.version(p) for p in ("torch", "apache-tvm-ffi", "tilegate")}
    return {**packages, "kernel": platform.release(), "python": platform.python_version()}


def _line(
    digest: str, manifest: Manifest, found: tuple[str, Evaluation] | None, plan: Plan | None
) -> EvaluateLine:
    built = manifest.elaboration
    verdicts: Counter[str] = Counter()
    if found is not None and plan is not None:
        verdicts.update(r.verdict.value for r in found[1].results)
        missing = len(plan.entries) - len(found[1].results)
        if missing:
            verdicts["missing"] = missing
    return EvaluateLine(
        operator=built.operator,
        kernel=built.kernel,
        specialization=built.specialization,
        target=str(manifest.target),
        manifest=digest,
        evaluation=found[0] if found else None,
        verdicts=dict(verdicts),
        entries=len(plan.entries) if plan else 0,
    )
