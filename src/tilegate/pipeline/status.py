"""Status: the matrix of operators, specializations and targets, from the workspace and the release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tilegate.pipeline.evaluate import evidence
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.promote import read_release
from tilegate.processor import local_processor
from tilegate.records.artifact import Manifest
from tilegate.records.closure import Specialization
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.release import Candidate
from tilegate.records.report import Cell, Matrix, MatrixRow
from tilegate.records.trace import CompilerTrace
from tilegate.rules.coverage import cover
from tilegate.rules.sanitize import tell

ABSENT = Cell(state="absent", text="not built")


def status(folder: Path, *, release: Path | None = None, only: Sequence[str] = ()) -> Matrix:
    """Where every kernel of the present source stands, on every target it is meant for or was built for.

    Raises:
        TrustError: the release that stands there is not what it says it is.
    """
    opened = open_project(folder, only=only)
    standing = read_release(release or opened.folder / "release")
    promoted = {c.manifest.digest: c for c in (standing.candidates if standing else ())}
    rows: dict[tuple[str, str, str], MatrixRow] = {}
    targets = dict.fromkeys(opened.project.targets)
    for operator, kernel, specialization, target, cell in _cells(opened, promoted):
        key = (operator, kernel, str(specialization))
        row = rows.setdefault(
            key, MatrixRow(operator=operator, kernel=kernel, specialization=specialization, cells={})
        )
        row.cells[target] = cell
        targets.setdefault(target)
    for row in rows.values():
        for target in targets:
            row.cells.setdefault(target, ABSENT)
    return Matrix(
        device=local_processor(),
        targets=tuple(targets),
        rows=tuple(rows[key] for key in sorted(rows)),
        release_version=standing.version if standing else None,
    )


def _cells(
    opened: Opened, promoted: dict[str, Candidate]
) -> list[tuple[str, str, Specialization, str, Cell]]:
    current = opened.current()
    found = [
        (
            m.elaboration.operator,
            m.elaboration.kernel,
            m.elaboration.specialization,
            str(m.target),
            _cell(opened, digest, m, promoted),
        )
        for digest, m in current
    ]
    built = {(o, k, str(s), t) for o, k, s, t, _ in found}
    kernels = {b.kernel for b in opened.bindings}
    for trace in _last_traces(opened):
        spec = Specialization(axes=dict(trace.axes), dtypes=dict(trace.dtypes))
        target = trace.target or opened.project.targets[0]
        fresh = (
            trace.kernel in kernels and (trace.operator or "", trace.kernel, str(spec), target) not in built
        )
        if fresh and not any(o == trace.operator and k == trace.kernel for o, k, _, _, _ in found):
            cell = Cell(state="failed", text=tell(trace)[0])
            found.append((trace.operator or "?", trace.kernel or "?", spec, target, cell))
    return found


def _last_traces(opened: Opened) -> list[CompilerTrace]:
    """The newest trace of each operator, kernel and target."""
    last: dict[tuple[str | None, str | None, str | None], CompilerTrace] = {}
    for _, trace in opened.workspace.traces():
        last[trace.operator, trace.kernel, trace.target] = trace
    return list(last.values())


def _cell(opened: Opened, digest: str, manifest: Manifest, promoted: dict[str, Candidate]) -> Cell:
    if digest in promoted:
        return Cell(state="promoted", text=" | ".join(str(c) for c in promoted[digest].classes))
    recorded = evidence(opened, digest)
    if not recorded:
        return Cell(state="built", text="not evaluated")
    contract = opened.declaration(manifest.elaboration.contract).contract
    coverage = cover(contract, manifest, [(p, e) for _, p, e in recorded], opened.policy)
    if coverage.rejected:
        return Cell(state="rejected", text=coverage.rejected[0].message)
    verdicts = Counter(r.verdict for _, _, e in recorded for r in e.results)
    total = sum({p.digest: len(p.entries) for _, p, _ in recorded}.values())
    return Cell(state="evaluated", text=f"{verdicts[EntryVerdict.PASSED]} of {total} passed")
