"""Explain one decision: which artifact of a release answers a workload, and what evidence says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tilegate.errors import UsageError
from tilegate.pipeline.evaluate import evidence
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.promote import read_release
from tilegate.processor import local_processor
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import decode
from tilegate.records.contract import Attribute, AttributeValue, Contract
from tilegate.records.miss import Miss, MissReason
from tilegate.records.plan import Workload
from tilegate.records.release import Candidate
from tilegate.records.report import ExplainCandidate, ExplainReport
from tilegate.rules.coverage import cover
from tilegate.rules.points import point_of
from tilegate.rules.preflight import Answer, answer
from tilegate.rules.selection import preferred, unfit
from tilegate.rules.spelling import did_you_mean
from tilegate.store.layout import Layout


def explain(
    folder: Path, operator: str, words: Mapping[str, str], *, release: Path | None = None
) -> ExplainReport:
    """What answers a call of these extents, dtypes and attributes on this machine.

    Args:
        folder: the project.
        operator: its name.
        words: `axis=extent`, `T=float16`, `eps=1e-6`; what is left out takes the contract's first choice.
        release: where the release stands; `release/` in the project by default.

    Raises:
        UsageError: there is no release, or the words are not the contract's.
        TrustError: the release is not what it says it is.
    """
    opened = open_project(folder)
    where = release or opened.folder / "release"
    standing = read_release(where)
    if standing is None:
        raise UsageError(
            "there is no release to explain",
            where=str(where),
            why="nothing was promoted into that folder yet",
            next_step="tilegate promote",
        )
    layout = Layout(where)
    contracts = {
        c.name: c for c in (decode(Contract, layout.open_blob(b), where=b.digest) for b in standing.contracts)
    }
    if operator not in contracts:
        raise UsageError(
            f"the release has no operator {operator}",
            where=str(where),
            next_step=did_you_mean(operator, sorted(contracts)),
        )
    workload = _workload(contracts[operator], words)
    device = local_processor()
    released = [c for c in standing.candidates if c.operator == operator]
    fitting = [
        (c, decode(Manifest, layout.open_blob(c.manifest), where=c.manifest.digest))
        for c in released
        if not unfit(c, standing.policy, device)
    ]
    candidates = preferred((c.target, (c, manifest)) for c, manifest in fitting)
    found = answer(candidates, workload)
    if released and not fitting:
        why = "; ".join(dict.fromkeys(unfit(c, standing.policy, device) for c in released))
        found = Answer(None, miss=Miss(reason=MissReason.NO_DEVICE_CLASS, detail=why))
    return ExplainReport(
        operator=operator,
        workload=workload,
        served_by=f"{found.candidate.kernel} for {found.candidate.target}" if found.candidate else None,
        shape_class=found.shape_class,
        reason=str(found.miss) if found.miss else "",
        candidates=tuple(_candidate(c, m) for c, m in candidates),
        evidence=tuple(_evidence(opened, contracts[operator], candidates, workload)),
    )


def _workload(contract: Contract, words: Mapping[str, str]) -> Workload:
    known = [*contract.axes, *contract.dtypes, *(a.name for a in contract.choices)]
    for word in words:
        if word not in known:
            raise UsageError(
                f"{contract.name} has no axis, dtype variable or attribute {word!r}",
                next_step=did_you_mean(word, known),
            )
    required = [*contract.axes, *(a.name for a in contract.choices if a.default is None)]
    again = f"tilegate explain {contract.name} " + " ".join(f"{w}={words.get(w, f'<{w}>')}" for w in required)
    missing = [word for word in required if word not in words]
    if missing:
        more = "more: " if words else ""
        raise UsageError(f"{contract.name} needs {more}{', '.join(missing)}", next_step=again)
    return Workload(
        axes={axis: _extent(axis, words[axis]) for axis in contract.axes},
        dtypes={v: _dtype(v, words.get(v, choices[0]), choices) for v, choices in contract.dtypes.items()},
        attributes={a.name: _value(a, words) for a in contract.choices},
    )


def _extent(axis: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"{axis} is {text!r}, where an extent belongs",
            why="an extent is a whole number, 0 or more",
            next_step=f"write {axis}=128",
        )
    return int(text)


def _dtype(variable: str, text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise UsageError(
            f"{variable} is {text!r}, which is none of its alternatives",
            next_step=f"one of: {', '.join(choices)}",
        )
    return text


def _value(attribute: Attribute, words: Mapping[str, str]) -> AttributeValue:
    if attribute.name not in words:
        assert attribute.default is not None  # else the word is required
        return attribute.default
    text = words[attribute.name]
    try:
        match attribute.kind:
            case "bool":
                return {"true": True, "false": False}[text.lower()]
            case "int":
                return int(text)
            case "float":
                return float(text)
            case _:
                return text
    except (ValueError, KeyError):
        example = {"bool": "true", "int": "3", "float": "0.5"}[attribute.kind]
        raise UsageError(
            f"{attribute.name} is {text!r}, which is no {attribute.kind}",
            next_step=f"write {attribute.name}={example}",
        ) from None


def _candidate(candidate: Candidate, manifest: Manifest) -> ExplainCandidate:
    return ExplainCandidate(
        kernel=candidate.kernel,
        target=str(candidate.target),
        specialization=manifest.elaboration.specialization,
        classes=tuple(str(c) for c in candidate.classes),
    )


def _evidence(
    opened: Opened, contract: Contract, candidates: Iterable[tuple[Candidate, Manifest]], workload: Workload
) -> Iterator[str]:
    """What is recorded of each artifact for this dtype and these attributes: here, and at its limits."""
    for candidate, manifest in candidates:
        if point_of(contract, manifest.elaboration, workload) is None:
            continue
        name = f"{candidate.kernel} for {candidate.target}"
        recorded = [(plan, e) for _, plan, e in evidence(opened, candidate.manifest.digest)]
        verdicts = Counter(
            result.verdict.value
            for plan, evaluation in recorded
            for result in evaluation.results
            if plan.entries[result.index].workload.axes == workload.axes
        )
        told = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common()) or "never evaluated"
        yield f"{name}, at exactly these extents: {told}"
        for note in cover(contract, manifest, recorded, opened.policy).notes:
            yield f"{name}, {note}"
