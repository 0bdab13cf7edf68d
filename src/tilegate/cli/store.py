from __future__ import annotations

from pathlib import Path

import click

from tilegate import pipeline
from tilegate.cli.output import Group, json_option, project_option, show
from tilegate.store.gc import GRACE_S


@click.group(cls=Group)
def store() -> None:
    """Look after the workspace, .tilegate in the project."""


@store.command()
@project_option
@json_option
def check(folder: Path, as_json: bool) -> None:
    """Read everything: each blob, each record, each reference, the release.

    Exit code 1 where anything is corrupt, missing or unknown, or the index disagrees.
    """
    show(pipeline.store.check(folder), as_json=as_json)


@store.command()
@project_option
@json_option
def rebuild(folder: Path, as_json: bool) -> None:
    """Fill the index anew from the blobs, which hold the truth."""
    show(pipeline.store.rebuild(folder), as_json=as_json)


@store.command()
@click.option(
    "--keep",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of another release whose artifacts stay; release/ in the project is always kept.",
)
@click.option(
    "--superseded",
    is_flag=True,
    help="Let artifacts of earlier source go as well, where no release names them and nothing of them failed.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be removed, and remove nothing.")
@click.option(
    "--grace-s",
    type=click.FloatRange(min=0),
    default=GRACE_S,
    show_default=True,
    help="What was written less than this many seconds ago stays.",
)
@project_option
@json_option
def gc(
    keep: tuple[Path, ...], superseded: bool, dry_run: bool, grace_s: float, folder: Path, as_json: bool
) -> None:
    """Remove what nothing names: of killed and failed builds, and what killed processes left.

    Evidence, artifacts and what releases rest on stay. Builds and evaluations may go on meanwhile.
    """
    report = pipeline.store.gc(folder, keep=keep, superseded=superseded, dry_run=dry_run, grace_s=grace_s)
    show(report, as_json=as_json)
