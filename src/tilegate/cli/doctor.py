from __future__ import annotations

import click

from tilegate import pipeline
from tilegate.cli.output import json_option, show


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """What this machine and toolchain lack, and what to type to mend it."""
    show(pipeline.doctor(), as_json=as_json)
