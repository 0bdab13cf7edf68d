from __future__ import annotations

from pathlib import Path

import click

from tilegate import pipeline
from tilegate.cli.output import json_option, project_option, release_option, show
from tilegate.errors import UsageError


@click.command()
@click.argument("operator")
@click.argument("words", nargs=-1, metavar="AXIS=EXTENT...")
@project_option
@release_option
@json_option
def explain(operator: str, words: tuple[str, ...], folder: Path, release: Path | None, as_json: bool) -> None:
    r"""Which artifact answers a call, and why none does where none does.

    \b
    tilegate explain gemm M=64 N=64 K=100
    tilegate explain rms_norm tokens=7 hidden=384 T=float16 eps=1e-6
    """
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(
                f"{word!r} is not AXIS=EXTENT", next_step=f"tilegate explain {operator} {word}=<{word}>"
            )
        given[name] = value
    show(pipeline.explain(folder, operator, given, release=release), as_json=as_json)
