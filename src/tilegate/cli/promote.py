from __future__ import annotations

from pathlib import Path

import click

from tilegate import pipeline
from tilegate.cli.output import json_option, project_option, release_option, say, show


@click.command()
@click.argument("names", nargs=-1)
@project_option
@release_option
@json_option
def promote(names: tuple[str, ...], folder: Path, release: Path | None, as_json: bool) -> None:
    """Turn evidence into a release, or say what is missing.

    Exit code 1 where any kernel was rejected; what survived is released all the same.
    """
    report = pipeline.promote(folder, release=release, only=names)
    if report.release:
        say(f"release {report.version} in {report.release} (unsigned: loads with allow_unsigned=True)")
    show(report, as_json=as_json)
