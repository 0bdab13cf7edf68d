"""Evaluate: every artifact of the present source faces a plan on this device; verdicts are recorded for ever."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tilegate.errors import StoreError, UsageError
from tilegate.evaluate.plan import make_plan
from tilegate.evaluate.run import Subject
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.places import Place, Places
from tilegate.pipeline.tools import TOOLS, Tools
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import encode
from tilegate.records.closure import Closure
from tilegate.records.evaluation import EntryVerdict, Evaluation
from tilegate.records.isolation import JobPolicy
from tilegate.records.plan import Entry, Plan
from tilegate.records.report import EvaluateLine, EvaluateReport
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
    places = Places([manifest.target for _, manifest in current], policy)
    done = [_evaluate_one(opened, d, m, places.for_target(m.target), progress, tools) for d, m in current]
    devices = [evaluation.device for _, evaluation in done if evaluation is not None]
    device = devices[0] if devices else places.processor.device
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
    place: Place | None,
    progress: Progress,
    tools: Tools,
) -> tuple[EvaluateLine, Evaluation | None]:
    if place is None:
        return line_of(digest, manifest, None, None), None
    plan = plan_for(opened, digest, manifest)
    name = title(manifest)
    progress(name, 0, len(plan.entries))
    evaluation = tools.run_plan(
        subject_of(opened, manifest),
        plan,
        place.device,
        place.versions,
        policy=place.policy,
        progress=lambda done: progress(name, done, len(plan.entries)),
    )
    recorded = record(opened, plan, evaluation)
    return line_of(digest, manifest, recorded, plan, evaluation), evaluation


def title(manifest: Manifest) -> str:
    """An artifact in progress and on screens: `tiled (T=float16) on cuda:sm_90a`."""
    built = manifest.elaboration
    return f"{built.kernel} ({built.specialization}) on {manifest.target}"


def plan_for(opened: Opened, digest: str, manifest: Manifest) -> Plan:
    """A new plan for one artifact, with a nonce drawn now."""
    built = manifest.elaboration
    declared = opened.declaration(built.contract)
    return make_plan(
        declared.contract,
        manifest,
        digest,
        declared.served,
        regressions(opened, built.operator),
        opened.policy,
        secrets.token_hex(16),
    )


def subject_of(opened: Opened, manifest: Manifest) -> Subject:
    """An artifact and its reference, out of the workspace."""
    declared = opened.declaration(manifest.elaboration.contract)
    closure = opened.workspace.load(Closure, manifest.elaboration.closure)
    return Subject(
        contract=declared.contract,
        manifest=manifest,
        library=opened.workspace.blobs.get(manifest.library.digest),
        operator=declared.operator,
        files=closure.files,
        sources={f.digest: opened.workspace.blobs.get(f.digest) for f in closure.files},
    )


def record(opened: Opened, plan: Plan, *evaluations: Evaluation) -> str:
    """Record evaluations of one plan; the digest of the first.

    Raises:
        StoreError: the artifact is gone, or the workspace cannot be written.
    """
    with opened.workspace.writing():
        if not opened.workspace.blobs.has(plan.manifest):
            raise StoreError(
                "the artifact was removed while it was evaluated",
                where=plan.manifest,
                why="its source is not there any more, and `tilegate store gc --superseded` took it",
                next_step="tilegate build && tilegate evaluate",
            )
        opened.workspace.record(plan)
        first, *_ = [opened.workspace.record(evaluation).digest for evaluation in evaluations]
        return first


def line_of(
    digest: str, manifest: Manifest, recorded: str | None, plan: Plan | None, *evaluations: Evaluation
) -> EvaluateLine:
    """A line of the report: what the evaluations, which share the plan, say together."""
    built = manifest.elaboration
    verdicts: Counter[str] = Counter()
    for evaluation in evaluations:
        verdicts.update(r.verdict.value for r in evaluation.results)
    if evaluations and plan is not None and (missing := len(plan.entries) - verdicts.total()):
        verdicts["missing"] = missing
    return EvaluateLine(
        operator=built.operator,
        kernel=built.kernel,
        specialization=built.specialization,
        target=str(manifest.target),
        manifest=digest,
        evaluation=recorded,
        verdicts=dict(verdicts),
        entries=len(plan.entries) if plan else 0,
    )
