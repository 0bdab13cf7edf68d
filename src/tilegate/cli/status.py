from __future__ import annotations

from pathlib import Path

import click

from tilegate import pipeline
from tilegate.cli.output import json_option, project_option, release_option, show


@click.command()
@click.argument("names", nargs=-1)
@project_option
@release_option
@json_option
def status(names: tuple[str, ...], folder: Path, release: Path | None, as_json: bool) -> None:
    """The matrix: operators and specializations by target, with the guard of what is promoted."""
    show(pipeline.status(folder, release=release, only=names), as_json=as_json)
