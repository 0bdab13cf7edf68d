from __future__ import annotations

from pathlib import Path

import click

from tilegate import pipeline
from tilegate.cli.output import Bar, isolation_option, json_option, project_option, say, show
from tilegate.records.isolation import Level
from tilegate.sandbox import EVALUATE


@click.command()
@click.argument("names", nargs=-1)
@isolation_option
@project_option
@json_option
def evaluate(names: tuple[str, ...], level: Level, folder: Path, as_json: bool) -> None:
    """Run artifacts on this device against their plans, and record a verdict for every entry.

    It finds honest faults. It does not stop a malicious author: review does.
    """
    with Bar() as bar:
        report = pipeline.evaluate(folder, only=names, policy=EVALUATE.at(level), progress=bar.count)
    for isolation in report.isolation:
        say(f"isolation of the workers: {isolation}")
    say(f"device: {report.device}")
    show(report, as_json=as_json)
