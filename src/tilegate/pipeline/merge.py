"""Merge: what another machine says becomes evidence, once home has recomputed a sample of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilegate.errors import StoreError, TrustError
from tilegate.evaluate.inputs import output_sizes
from tilegate.evaluate.judge import Expected, judge_facts
from tilegate.evaluate.requests import Numbered
from tilegate.evaluate.run import MAX_LOST_WORKERS, Subject, chunks, judge_beside, run_reference
from tilegate.pipeline.evaluate import Progress, line_of, record, subject_of, title
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.parcel import Limits, only_named, read_parcel
from tilegate.records.artifact import Manifest
from tilegate.records.bundle import Export
from tilegate.records.evaluation import EntryResult, EntryVerdict, Evaluation
from tilegate.records.evidence import Evidence, Facts, Returned
from tilegate.records.isolation import Level
from tilegate.records.plan import Plan
from tilegate.records.report import EvaluateReport
from tilegate.records.target import runs_on
from tilegate.rules.vouching import JUDGED, Claim, agree, claims, faults, vouched

MIB = 2**20
EVIDENCE_LIMITS = Limits(blob_bytes=256 * MIB, total_bytes=2048 * MIB)
SAMPLE = 64
"""Entries of each artifact that home recomputes, drawn when the evidence is there. All of them where they are fewer."""


@dataclass(frozen=True, slots=True)
class _Item:
    """What came back for one artifact, beside what home knows of it."""

    export: Export
    plan: Plan
    manifest: Manifest
    subject: Subject
    returned: Returned


def merge(
    folder: Path,
    file: Path,
    *,
    sample: int = SAMPLE,
    level: Level = Level.FULL,
    progress: Progress = lambda *_: None,
) -> EvaluateReport:
    """Hold an evidence file against what was handed out, recompute a sample, and record the evaluations.

    1. Every digest and every entry is held against home's own records.
    2. Verdicts that follow from what was seen are those that home would give.
    3. A sample is drawn at random of the results whose outputs came back, and judged anew against the
       reference, which runs here.
    4. Only where all of it agrees is anything recorded.

    Args:
        folder: the project.
        file: the evidence.
        sample: how many entries of each artifact are recomputed, at most.
        level: of the reference's job.
        progress: (what, entries done, entries in all).

    Raises:
        ToolError: the file or the workspace cannot be read, or the reference's job did not end well.
        TrustError: something does not agree. Nothing is recorded.
    """
    opened = open_project(folder)
    evidence, blobs = read_parcel(file, Evidence, EVIDENCE_LIMITS)
    if not evidence.returned:
        raise _refused(file, "", "it holds no evaluation")
    items = [_item(opened, file, returned) for returned in evidence.returned]
    if len({item.export.digest for item in items}) != len(items):
        raise _refused(file, "", "one artifact with one plan stands in it twice")
    named = (b.digest for item in items for one in item.returned.ran for b in one.outputs)
    only_named(file, blobs, named)
    for item in items:
        _hold_against(file, item, blobs)  # (1) (2)
    parts = [_recompute(file, item, blobs, sample, level, progress) for item in items]  # (3)
    with opened.workspace.writing():  # (4)
        recorded = [record(opened, item.plan, *part) for item, part in zip(items, parts, strict=True)]
    lines = [
        line_of(item.export.manifest, item.manifest, digest, item.plan, *part)
        for item, part, digest in zip(items, parts, recorded, strict=True)
    ]
    told = [part[0] for part in parts]
    return EvaluateReport(
        device=told[0].device,
        lines=tuple(lines),
        isolation=tuple(dict.fromkeys(evaluation.isolation for evaluation in told)),
    )


def _item(opened: Opened, file: Path, returned: Returned) -> _Item:
    try:
        export = opened.workspace.load(Export, returned.export)
        plan = opened.workspace.load(Plan, export.plan)
        manifest = opened.workspace.load(Manifest, export.manifest)
        subject = subject_of(opened, manifest)
    except StoreError as error:
        raise TrustError(
            "the evidence is for something that was not handed out from here",
            where=f"{file}: {returned.export[:19]}",
            why=error.what,
            next_step="merge it where it was exported; or tilegate evaluate --export, and evaluate that bundle",
        ) from None
    return _Item(export, plan, manifest, subject, returned)


def _hold_against(file: Path, item: _Item, blobs: Mapping[str, bytes]) -> None:
    returned, contract = item.returned, item.subject.contract
    wrong = [
        *faults(
            item.export,
            item.plan,
            contract.digest,
            item.manifest.library.digest,
            returned,
            lost_workers=MAX_LOST_WORKERS,
        )
    ]
    if not wrong and not runs_on(item.manifest.target, returned.evaluation.device):
        wrong.append(f"{item.manifest.target} does not run on {returned.evaluation.device}")
    if wrong:
        raise _refused(file, title(item.manifest), "; ".join(wrong))
    results = {result.index: result for result in returned.evaluation.results}
    for one in returned.ran:
        index = one.facts.index
        result, seen = results[index], judge_facts(one.facts)
        if seen is not None and result != seen:
            raise _refused(
                file, title(item.manifest), f"entry {index}: its verdict is not what was seen of it"
            )
        if seen is None and result.verdict not in JUDGED:
            raise _refused(
                file, title(item.manifest), f"entry {index}: nothing was seen that asks for its verdict"
            )
        if one.facts.failed and result.verdict is not EntryVerdict.UNSUPPORTED:
            raise _refused(
                file, title(item.manifest), f"entry {index}: it could not be tried, and has a verdict"
            )
        sizes = tuple(blob.size for blob in one.outputs)
        refused = one.facts.refusal or one.facts.failed
        if sizes != (() if refused else output_sizes(contract, item.plan.entries[index])):
            raise _refused(file, title(item.manifest), f"entry {index}: its outputs have other sizes")
        if any(blob.digest in blobs and len(blobs[blob.digest]) != blob.size for blob in one.outputs):
            raise _refused(file, title(item.manifest), f"entry {index}: an output has another size than told")


def _recompute(
    file: Path, item: _Item, blobs: Mapping[str, bytes], sample: int, level: Level, progress: Progress
) -> list[Evaluation]:
    claimed = claims(item.returned, blobs)
    drawn = secrets.SystemRandom().sample(claimed, min(sample, len(claimed)))
    by_index = {claim.result.index: claim for claim in drawn}
    numbered = [
        Numbered(index=i, seed=item.plan.seed(i), entry=item.plan.entries[i]) for i in sorted(by_index)
    ]
    name = f"{title(item.manifest)}, recomputed"
    found: list[EntryResult] = []
    for chunk in chunks(item.subject.contract, numbered):
        expected = run_reference(item.subject, chunk, level)
        for one in chunk:
            ours = _judge(file, item, by_index[one.index], one, expected[one.index], blobs)
            found.append(ours)
        progress(name, len(found), len(numbered))
    return vouched(item.returned.evaluation, (claim.result.index for claim in claimed), found)


def _judge(
    file: Path,
    item: _Item,
    claim: Claim,
    one: Numbered,
    expected: tuple[Facts, list[Expected]],
    blobs: Mapping[str, bytes],
) -> EntryResult:
    facts, values = expected
    told = claim.ran.facts
    if told.inputs != facts.inputs:
        raise _refused(
            file,
            title(item.manifest),
            f"entry {one.index}: its inputs are not those that its seed gives here, with torch "
            f"{item.returned.evaluation.versions.get('torch', '?')} there",
        )
    outputs = [blobs[blob.digest] for blob in claim.ran.outputs]
    ours = judge_beside(item.subject.contract, one.entry, told, outputs, facts, values)
    if not agree(claim.result, ours):
        raise _refused(
            file,
            title(item.manifest),
            f"entry {one.index} was told to be {claim.result.verdict.name}, and is {ours.verdict.name} "
            "by the outputs that came with it",
        )
    return ours


def _refused(file: Path, where: str, why: str) -> TrustError:
    return TrustError(
        "the evidence is not what the machine that wrote it says it is; nothing was recorded",
        where=f"{file}: {where}" if where else str(file),
        why=why,
        next_step="evaluate the bundle again, on a machine that you have reason to trust",
    )
