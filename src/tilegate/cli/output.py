"""What every command shares: the project folder, `--json`, progress on a terminal, errors on one screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from tilegate.errors import TilegateError
from tilegate.records.canonical import encode
from tilegate.records.report import Report
from tilegate.report.terminal import render

F = TypeVar("F", bound=Callable[..., Any])


class Group(click.Group):
    """Turns our errors into sentences on stderr and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TilegateError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            # The reader of stdout has gone: nothing more can be said to it, at the end of the process either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


def project_option(function: F) -> F:
    return click.option(
        "-C",
        "--project",
        "folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(),
        help="Folder that holds tilegate.toml; the current one by default.",
    )(function)


def release_option(function: F) -> F:
    return click.option(
        "--release",
        type=click.Path(file_okay=False, path_type=Path),
        default=None,
        help="Folder of the release; release/ in the project by default.",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")(function)


def show(report: Report, *, as_json: bool) -> None:
    """Print a report and leave with the exit code that its decision asks for."""
    if as_json:
        sys.stdout.buffer.write(encode(report) + b"\n")
        sys.stdout.flush()
    else:
        console = _Console(highlight=False, soft_wrap=True)
        for part in render(report):
            console.print(part)
    click.get_current_context().exit(0 if report.accepted else 1)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave with 0: rich would leave with 1, which says "rejected" here."""
        raise BrokenPipeError


def say(sentence: str) -> None:
    click.echo(sentence, err=True)


class Bar:
    """Progress of long work, on a terminal only."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(console=console, transient=True) if console.is_terminal else None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._context().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def step(self, what: str) -> None:
        """A step without a known length."""
        if self._progress is None:
            return
        for task in self._tasks.values():
            self._progress.update(task, visible=False)
        self._tasks[what] = self._progress.add_task(escape(what), total=None)

    def count(self, what: str, done: int, total: int) -> None:
        if self._progress is None:
            return
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(escape(what), total=total)
        self._progress.update(self._tasks[what], completed=done, visible=done < total)

    def _context(self) -> AbstractContextManager[Any]:
        return self._progress if self._progress is not None else nullcontext()
