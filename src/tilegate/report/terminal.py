"""Each report as rich renderables. Names from records are text, never markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import RenderableType
from rich.text import Text

from tilegate.records.drill import DrillReport
from tilegate.records.report import (
    BuildLine,
    BuildReport,
    Cell,
    DoctorReport,
    EvaluateLine,
    EvaluateReport,
    ExplainReport,
    Matrix,
    PromotedLine,
    PromoteReport,
    Report,
    StoreReport,
)
from tilegate.report.drill import drill_parts
from tilegate.report.table import Table
from tilegate.rules.sanitize import tell

_STATE_STYLE = {
    "promoted": "green", "evaluated": "yellow", "built": "cyan", "rejected": "red", "failed": "red",
    "absent": "dim",
}  # fmt: skip
_STATE_MARK = {
    "promoted": "●", "evaluated": "◐", "built": "○", "rejected": "✗", "failed": "✗", "absent": "·",
}  # fmt: skip

Line = BuildLine | EvaluateLine | PromotedLine
L = TypeVar("L", BuildLine, EvaluateLine, PromotedLine)


def render(report: Report) -> Iterator[RenderableType]:
    """The parts of a report, in order."""
    match report:
        case BuildReport():
            yield from _build(report)
        case EvaluateReport():
            yield from _evaluate(report)
        case PromoteReport():
            yield from _promote(report)
        case Matrix():
            yield from _matrix(report)
        case ExplainReport():
            yield from _explain(report)
        case DoctorReport():
            yield _doctor(report)
        case StoreReport():
            yield from _store(report)
        case DrillReport():
            yield from drill_parts(report)


def _ordered(lines: Iterable[L]) -> list[L]:
    """As the matrix has them."""
    return sorted(lines, key=lambda line: (line.operator, line.kernel, str(line.specialization), line.target))


class _Artifacts:
    """A table with a row for each artifact. A target that all of them share stands in the heading."""

    def __init__(self, lines: Sequence[Line], told: str, *more: str) -> None:
        targets = {line.target for line in lines}
        self._shared = len(targets) == 1
        columns = [f"{told} for {targets.pop()}"] if self._shared else ["target", told]
        self.table = Table("operator", "kernel", "fixed at build", *columns, *more)

    def add(self, line: Line, *cells: str | Text) -> None:
        target = () if self._shared else (line.target,)
        self.table.row(line.operator, line.kernel, str(line.specialization), *target, *cells)


def _build(report: BuildReport) -> Iterator[RenderableType]:
    if not report.lines:
        yield Text(
            "no kernel is bound\nnext: list modules with @tilegate.kernel under `kernels` in tilegate.toml"
        )
        return
    rows = _Artifacts(report.lines, "artifact")
    for line in _ordered(report.lines):
        if line.manifest is not None:
            made = f"{line.manifest[7:19]}  {line.size / 1024:.1f} kB"
            rows.add(line, Text(f"{made}, as before" if line.cached else made, style="green"))
        else:
            rows.add(line, Text("failed", style="red"))
    yield rows.table
    for line in report.lines:
        if line.trace is not None:
            sentence, hint = tell(line.trace)
            yield Text(f"\n{line.operator}, {line.kernel} ({line.specialization}): {sentence}", style="red")
            yield Text(f"next: {hint}")


def _evaluate(report: EvaluateReport) -> Iterator[RenderableType]:
    rows = _Artifacts(report.lines, "passed", "otherwise")
    for line in _ordered(report.lines):
        others = {v: n for v, n in line.verdicts.items() if v != "passed"}
        told = ", ".join(f"{n} {v}" for v, n in sorted(others.items()))
        passed = f"{line.verdicts.get('passed', 0)} of {line.entries}"
        rows.add(
            line,
            Text(passed, style="yellow" if others else "green") if line.evaluation else "-",
            (told or "-") if line.evaluation else _elsewhere(line),
        )
    yield rows.table
    if not any(line.evaluation or line.entries for line in report.lines):
        arch = report.device.arch
        next_step = (
            "tilegate doctor" if arch == "none" else f"tilegate build -t {report.device.backend}:{arch}"
        )
        yield Text(f"\nnothing was evaluated: none of this runs on this device\nnext: {next_step}")


def _elsewhere(line: EvaluateLine) -> str:
    return f"{line.entries} entries handed out" if line.entries else "not on this device"


def _promote(report: PromoteReport) -> Iterator[RenderableType]:
    rows = _Artifacts(report.lines, "serves")
    for line in _ordered(report.lines):
        rows.add(line, Text("\n".join(line.classes), style="green"))
    if report.lines:
        yield rows.table
    notes = [f"{line.operator}: {note}" for line in report.lines for note in line.notes]
    if notes:
        yield Text("\n" + "\n".join(dict.fromkeys(notes)), style="dim")
    for place, rejected in enumerate(report.rejected):
        gap = "\n" if place or report.lines else ""
        yield Text(f"{gap}{rejected}", style="red")


def _matrix(report: Matrix) -> Iterator[RenderableType]:
    table = Table("operator", "kernel", "fixed at build", *report.targets)
    for row in report.rows:
        cells = [_cell(row.cells[target]) for target in report.targets]
        table.row(row.operator, row.kernel, str(row.specialization), *cells)
    yield table if report.rows else Text("nothing is built yet\nnext: tilegate build")
    legend = "  ".join(
        f"{_STATE_MARK[s]} {s}" for s in ("promoted", "evaluated", "built", "rejected", "absent")
    )
    release = f"release {report.release_version}" if report.release_version else "no release"
    yield Text(f"\n{legend}\n{release}; this device: {report.device}", style="dim")


def _cell(cell: Cell) -> Text:
    classes = cell.text.split(" | ")
    return Text(f"{_STATE_MARK[cell.state]} " + "\n  ".join(classes), style=_STATE_STYLE[cell.state])


def _explain(report: ExplainReport) -> Iterator[RenderableType]:
    call = f"{report.operator} with {report.workload}"
    if report.served_by is not None:
        yield Text(f"{call}\nruns {report.served_by}", style="green")
        yield Text(f"  inside    {report.shape_class}")
    else:
        yield Text(f"{call}\ngoes to the reference", style="yellow")
        yield Text(f"  because   {report.reason}")
        for candidate in report.candidates:
            what = f"{candidate.kernel} for {candidate.target} ({candidate.specialization})"
            yield Text(f"  released  {what} serves")
            for shape_class in candidate.classes:
                yield Text(f"              {shape_class}")
    for line in report.evidence:
        yield Text(f"  evidence  {line}", style="dim")


def _doctor(report: DoctorReport) -> RenderableType:
    table = Table("", "what", "found", "needed for", "to mend it")
    for check in report.checks:
        mark = Text("✓", style="green") if check.ok else Text("✗", style="red")
        table.row(mark, check.name, check.found, check.needed_for, check.mend)
    return table


def _store(report: StoreReport) -> Iterator[RenderableType]:
    table = Table("what", "how many")
    for schema, count in sorted(report.documents.items()):
        table.row(schema, str(count))
    table.row("content", str(report.blobs - sum(report.documents.values())))
    table.row("leftovers of killed processes", str(report.leftovers))
    yield table
    yield Text(f"\n{report.blobs} blobs, {_bytes(report.size)}", style="dim")
    if not report.faults and report.action != "gc":
        yield Text("nothing is wrong", style="green")
    for fault in report.faults:
        yield Text(f"\n{fault.kind}: {fault.what}\n  {fault.why}", style="red")
        yield Text(f"next: {fault.next_step}")
    if report.action == "gc" and not report.faults:
        told = ", ".join(f"{count} {what}" for what, count in sorted(report.removed.items())) or "nothing"
        yield Text(
            f"{'would remove' if report.dry_run else 'removed'} {told}: {_bytes(report.freed)}", style="green"
        )


def _bytes(count: int) -> str:
    return f"{count / 1024:.1f} kB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MB"
