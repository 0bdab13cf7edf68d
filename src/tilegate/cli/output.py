"""What every command shares: the project folder, `--json`, progress on a terminal, errors on one screen."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from tilegate.errors import TilegateError, ToolError, UsageError
from tilegate.records.canonical import encode
from tilegate.records.isolation import Level
from tilegate.records.report import Report
from tilegate.report.terminal import render
from tilegate.rules.spelling import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


INTERRUPTED = 128 + signal.SIGINT
"""As a shell tells it."""

_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What newer versions of click raise for a group without a command: its text is the help."""


class Group(click.Group):
    """Turns errors into sentences on stderr, of one form, and exit codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _told(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise UsageError(
                f"there is no command {args[0]!r}", next_step=did_you_mean(args[0], self.commands)
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _told(ctx):
            return super().invoke(ctx)


@contextmanager
def _told(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except TilegateError as error:
        _leave(ctx, error)
    except _HELP:
        raise
    except click.UsageError as error:
        _leave(ctx, _in_our_form(error, (error.ctx or ctx).command_path))
    except KeyboardInterrupt:
        end_of_line = "\n" if sys.stderr.isatty() else ""  # behind the ^C that a terminal shows
        say(f"{end_of_line}interrupted; what was recorded before stays recorded")
        ctx.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout has gone: nothing more can be said to it.
        _close_stdout()
        ctx.exit(0)
    except OSError as error:
        why, where = error.strerror or type(error).__name__, str(error.filename or "")
        again = "mend that, then run this again"
        _leave(ctx, ToolError("a file or folder cannot be used", where=where, why=why, next_step=again))


def _in_our_form(error: click.UsageError, command: str) -> UsageError:
    """What click has to say, in the form of our own errors, and alike in all its versions."""
    if isinstance(error, click.NoSuchOption):
        near = error.possibilities or ()
        next_step = did_you_mean(error.option_name, near) if near else f"{command} --help"
        return UsageError(f"there is no option {error.option_name}", next_step=next_step)
    text = error.format_message()
    return UsageError(text[:1].lower() + text[1:].removesuffix("."), next_step=f"{command} --help")


def _leave(ctx: click.Context, error: TilegateError) -> NoReturn:
    say(f"error: {error}")
    ctx.exit(error.exit_code)


def _close_stdout() -> None:
    """What is still buffered for stdout goes nowhere, at the end of the process either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def project_option(function: F) -> F:
    return click.option(
        "-C",
        "--project",
        "folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(),
        help="Folder that holds tilegate.toml; the current one by default.",
    )(function)


def isolation_option(function: F) -> F:
    def parse(_context: click.Context, _option: click.Parameter, value: str) -> Level:
        return Level(value)

    return click.option(
        "--isolation",
        "level",
        type=click.Choice([Level.FULL.value, Level.REDUCED.value]),
        default=Level.FULL.value,
        show_default=True,
        callback=parse,
        help="How far jobs are kept apart. Policy refuses reduced by default when it promotes.",
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
    try:
        if as_json:
            sys.stdout.buffer.write(encode(report) + b"\n")
            sys.stdout.flush()
        else:
            console = _Console(highlight=False, soft_wrap=True)
            for part in render(report):
                console.print(part)
    except BrokenPipeError:
        raise
    except OSError as error:
        _close_stdout()
        raise ToolError(
            "the answer cannot be written",
            where="standard output",
            why=error.strerror or type(error).__name__,
            next_step="make room there, or write it elsewhere; what was done is done",
        ) from None
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
