"""Export: artifacts that this machine cannot run, with their plans and references, in one file for one that can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilegate.errors import UsageError
from tilegate.pipeline.evaluate import line_of, plan_for
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.parcel import write_parcel
from tilegate.processor import local_processor
from tilegate.records.artifact import Manifest
from tilegate.records.bundle import Bundle, Export
from tilegate.records.canonical import digest_of, encode
from tilegate.records.closure import Closure
from tilegate.records.plan import Plan
from tilegate.records.report import EvaluateLine, EvaluateReport
from tilegate.records.target import runs_on


def export(folder: Path, file: Path, *, only: Sequence[str] = ()) -> EvaluateReport:
    """Write a bundle of what is to be evaluated elsewhere.

    Args:
        folder: the project.
        file: the bundle.
        only: operators or kernels, with all their targets; without, every artifact that this machine cannot run.

    Raises:
        UsageError: there is no such artifact.
        ToolError: the workspace or the file cannot be written.
    """
    opened = open_project(folder, only=only)
    device = local_processor()
    chosen = [(d, m) for d, m in opened.current() if only or not runs_on(m.target, device)]
    if not chosen:
        raise UsageError(
            "there is nothing to hand out",
            where=str(opened.folder),
            why="no artifact was built from the source as it stands now, or this machine can run all of them",
            next_step="tilegate build --target cuda:sm_90a; or name what is to be evaluated elsewhere",
        )
    lines: list[EvaluateLine] = []
    exports: list[Export] = []
    blobs: list[bytes] = []
    for digest, manifest in chosen:
        plan = plan_for(opened, digest, manifest)
        one, contents = _exported(opened, digest, manifest, plan)
        exports.append(one)
        blobs += contents
        lines.append(line_of(digest, manifest, None, plan))
    write_parcel(file, Bundle(exports=tuple(exports)), blobs)
    return EvaluateReport(device=device, lines=tuple(lines), isolation=())


def _exported(opened: Opened, digest: str, manifest: Manifest, plan: Plan) -> tuple[Export, list[bytes]]:
    """Record that an artifact was handed out with this plan, and give all that must go with it."""
    blobs = opened.workspace.blobs
    declared = opened.declaration(manifest.elaboration.contract)
    closure = opened.workspace.load(Closure, manifest.elaboration.closure)
    one = Export(
        manifest=digest,
        plan=plan.digest,
        declaration=digest_of(encode(declared)),
        closure=manifest.elaboration.closure,
    )
    with opened.workspace.writing():
        opened.workspace.record(plan)
        opened.workspace.record(one)
    contents = [encode(record) for record in (manifest, plan, declared, closure)]
    contents.append(blobs.get(manifest.library.digest))
    return one, [*contents, *(blobs.get(file.digest) for file in closure.files)]
