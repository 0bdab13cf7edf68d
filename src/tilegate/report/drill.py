"""A drill for people: what was not as expected first, then everything by theme."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from tilegate.records.drill import DrillLine, DrillReport, Outcome
from tilegate.report.table import Table

_STYLE = {
    Outcome.BLOCKED: "green", Outcome.ESCAPED: "yellow", Outcome.NOT_APPLICABLE: "dim",
    Outcome.INCONCLUSIVE: "red",
}  # fmt: skip


def drill_parts(report: DrillReport) -> Iterator[RenderableType]:
    table = Table("", "probe", "at", "tries", "outcome", "seen")
    for line in report.lines:
        mark = Text("✓", style="green") if line.as_expected else Text("✗", style="red")
        outcome = Text(line.outcome.value, style=_STYLE[line.outcome] if line.as_expected else "red")
        table.row(mark, line.probe, line.theme.value, line.tries, outcome, line.detail)
    yield table
    counts = Counter(line.outcome for line in report.lines)
    told = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome])
    yield Text(f"\n{len(report.lines)} probes: {told}\nisolation: {report.isolation}", style="dim")
    wrong = [line for line in report.lines if not line.as_expected]
    for line in wrong:
        yield Text(f"\n{line.probe}: {line.outcome.value}, {_wanted(line)}", style="red")
        yield Text(f"  expected  because {line.why}\n  seen      {line.detail}")
    if wrong:
        names = " ".join(line.probe for line in wrong)
        yield Text(f"next: tilegate drill sandbox --isolation {report.level.value} {names}")
    else:
        yield Text("all as expected", style="green")


def _wanted(line: DrillLine) -> str:
    return "expected " + " or ".join(outcome.value for outcome in line.expected)
