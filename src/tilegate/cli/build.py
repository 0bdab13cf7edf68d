from __future__ import annotations

from pathlib import Path

import click

from tilegate import pipeline
from tilegate.cli.output import Bar, isolation_option, json_option, project_option, say, show
from tilegate.records.isolation import Level


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    help="cpu:x86-64-v3, cuda:sm_90a, ...; those of tilegate.toml by default.",
)
@isolation_option
@project_option
@json_option
def build(
    names: tuple[str, ...], targets: tuple[str, ...], level: Level, folder: Path, as_json: bool
) -> None:
    """Turn reviewed source into artifacts, each step in a job of its own.

    NAMES are operators or kernels; without any, everything in tilegate.toml is built.
    """
    with Bar() as bar:
        report = pipeline.build(folder, targets=targets, only=names, level=level, progress=bar.step)
    for isolation in report.isolation:
        say(f"isolation of the build: {isolation}")
    show(report, as_json=as_json)
