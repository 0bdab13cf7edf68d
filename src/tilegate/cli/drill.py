from __future__ import annotations

import click

from tilegate.cli.output import Bar, Group, json_option, say, show
from tilegate.drill.probe import LEVELS
from tilegate.drill.sandbox import drill_sandbox
from tilegate.records.isolation import Level


@click.group(cls=Group)
def drill() -> None:
    """Rehearse failures, on the machine that must withstand them."""


@drill.command()
@click.argument("names", nargs=-1)
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in LEVELS]),
    default=Level.FULL.value,
    show_default=True,
    help="Level of the jobs that the attacks are made from; `none` shows what the others keep out.",
)
@json_option
def sandbox(names: tuple[str, ...], isolation: str, as_json: bool) -> None:
    """Try to break out of jobs, in every way that is known here.

    NAMES are probes; without any, all are made. Each aims at canaries of its own, and every bomb has a bound.

    Exit code 1 where anything was not as expected, 3 where the isolation cannot be had.
    """
    with Bar() as bar:
        report = drill_sandbox(Level(isolation), names, progress=bar.count)
    say(f"isolation of the jobs: {report.isolation}")
    show(report, as_json=as_json)
