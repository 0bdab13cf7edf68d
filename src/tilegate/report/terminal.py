"""Each report as rich renderables. Names from records are text, never markup."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tilegate.records.report import (
    BuildReport,
    Cell,
    DoctorReport,
    EvaluateReport,
    ExplainReport,
    Matrix,
    PromoteReport,
    Report,
)
from tilegate.rules.sanitize import tell

_STATE_STYLE = {
    "promoted": "green", "evaluated": "yellow", "built": "cyan", "rejected": "red", "failed": "red",
    "absent": "dim",
}  # fmt: skip
_STATE_MARK = {
    "promoted": "●", "evaluated": "◐", "built": "○", "rejected": "✗", "failed": "✗", "absent": "·",
}  # fmt: skip


def render(report: Report) -> Iterator[RenderableType]:
    """The parts of a report, in order."""
    match report:
        case BuildReport():
            yield from _build(report)
        case EvaluateReport():
            yield _evaluate(report)
        case PromoteReport():
            yield from _promote(report)
        case Matrix():
            yield from _matrix(report)
        case ExplainReport():
            yield from _explain(report)
        case DoctorReport():
            yield _doctor(report)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _build(report: BuildReport) -> Iterator[RenderableType]:
    table = _table("operator", "kernel", "fixed at build", "target", "artifact")
    for line in report.lines:
        if line.manifest is not None:
            made = f"{line.size / 1024:.1f} kB{', as before' if line.cached else ''}"
            artifact = Text(f"{line.manifest[7:19]}  {made}", style="green")
        else:
            artifact = Text("failed", style="red")
        table.add_row(
            Text(line.operator), Text(line.kernel), Text(str(line.specialization)), line.target, artifact
        )
    yield table
    for line in report.lines:
        if line.trace is not None:
            sentence, hint = tell(line.trace)
            yield Text(f"\n{line.operator}, {line.kernel} ({line.specialization}): {sentence}", style="red")
            yield Text(f"next: {hint}")


def _evaluate(report: EvaluateReport) -> RenderableType:
    table = _table("operator", "kernel", "fixed at build", "target", "passed", "otherwise")
    for line in report.lines:
        others = {v: n for v, n in line.verdicts.items() if v != "passed"}
        told = (
            ", ".join(f"{n} {v}" for v, n in sorted(others.items()))
            if line.evaluation
            else "not on this device"
        )
        passed = f"{line.verdicts.get('passed', 0)} of {line.entries}"
        table.add_row(
            Text(line.operator),
            Text(line.kernel),
            Text(str(line.specialization)),
            line.target,
            passed,
            told or "-",
        )
    return table


def _promote(report: PromoteReport) -> Iterator[RenderableType]:
    table = _table("operator", "kernel", "fixed at build", "target", "serves")
    for line in report.lines:
        classes = Text("\n".join(line.classes), style="green")
        table.add_row(
            Text(line.operator), Text(line.kernel), Text(str(line.specialization)), line.target, classes
        )
    if report.lines:
        yield table
    for line in report.lines:
        for note in line.notes:
            yield Text(f"{line.operator}: {note}", style="dim")
    for rejected in report.rejected:
        yield Text(f"\n{rejected}", style="red")


def _matrix(report: Matrix) -> Iterator[RenderableType]:
    table = _table("operator", "kernel", "fixed at build", *report.targets)
    for row in report.rows:
        cells = [_cell(row.cells[target]) for target in report.targets]
        table.add_row(Text(row.operator), Text(row.kernel), Text(str(row.specialization)), *cells)
    yield table
    legend = "  ".join(
        f"{_STATE_MARK[s]} {s}" for s in ("promoted", "evaluated", "built", "rejected", "absent")
    )
    release = f"release {report.release_version}" if report.release_version else "no release"
    yield Text(f"\n{legend}\n{release}; this device: {report.device}", style="dim")


def _cell(cell: Cell) -> Text:
    return Text(f"{_STATE_MARK[cell.state]} {cell.text}", style=_STATE_STYLE[cell.state])


def _explain(report: ExplainReport) -> Iterator[RenderableType]:
    call = f"{report.operator} with {report.workload}"
    if report.served_by is not None:
        yield Text(f"{call}\n  runs {report.served_by}, inside {report.shape_class}", style="green")
    else:
        yield Text(f"{call}\n  goes to the reference: {report.reason}", style="yellow")
    for candidate in report.candidates:
        serves = " | ".join(candidate.classes)
        yield Text(
            f"  {candidate.kernel} ({candidate.specialization}) for {candidate.target} serves: {serves}"
        )
    for line in report.evidence:
        yield Text(f"  evidence: {line}", style="dim")


def _doctor(report: DoctorReport) -> RenderableType:
    table = _table("", "what", "found", "needed for", "to mend it")
    for check in report.checks:
        mark = Text("✓", style="green") if check.ok else Text("✗", style="red")
        table.add_row(mark, check.name, Text(check.found), check.needed_for, Text(check.mend))
    return table
