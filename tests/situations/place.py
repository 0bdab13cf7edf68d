"""Where a situation is provoked, and what was seen there, without what differs from machine to machine."""

from __future__ import annotations

import contextlib
import importlib
import re
import shlex
import subprocess
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self
from unittest import mock

from click.testing import CliRunner

import tilegate
from tilegate import processor
from tilegate.cli import commands
from tilegate.errors import TilegateError
from tilegate.records.target import X86_64_LEVELS
from tilegate.runtime.operator import OPERATORS

LEVEL = "x86-64-v2"
"""What the made-up processor has: the lowest level, so that what is built runs on every machine."""

MODULES = ("ops", "kernels", "more")
"""Of the projects that are written."""

PLACEHOLDERS = (
    (r"\bsha256([:/])[0-9a-f]{64}", r"sha256\1<digest>"),
    (r"\([0-9a-f]{12}\)", "(<random>)"),
    (r"\btilegate-\w{8}\b", "tilegate-<random>"),
    (r"\b\d+ bytes", "<n> bytes"),
    (r"\b\d+\.\d+ kB", "<n> kB"),
)
"""Beside the folders: `Place.anonymous`."""


class Impossible(Exception):  # noqa: N818 - a reason to leave a situation out, not a fault
    """This machine cannot bring the situation about; the text says why."""


class Seen(NamedTuple):
    """What a person sees."""

    typed: str
    """A command behind `$ `, or lines of Python."""
    text: str
    exit_code: int | None
    """None in Python."""
    raised: str = ""
    """The exception in Python: its class, and those above it up to ours."""


Provoke = Callable[["Place"], Seen]


class Situation(NamedTuple):
    chapter: str
    title: str
    how: str
    provoke: Provoke
    marks: tuple[str, ...]
    """Of pytest: `compiler`, `long`."""

    def seen(self, root: Path) -> Seen:
        """Bring it about in an empty folder.

        Raises:
            Impossible: not on this machine.
        """
        with Place(root) as place:
            return place.anonymous(self.provoke(place))


_SITUATIONS: list[Situation] = []


def situation(title: str, *marks: str, how: str = "") -> Callable[[Provoke], Provoke]:
    """Register a function that brings a situation about. Its docstring says how, in one line, if `how` does not."""

    def register(provoke: Provoke) -> Provoke:
        chapter = getattr(provoke, "func", provoke).__module__.rpartition(".")[2]
        told = how or " ".join((provoke.__doc__ or "").split())
        _SITUATIONS.append(Situation(chapter, title, told, provoke, marks))
        return provoke

    return register


def situations(chapters: Sequence[str]) -> list[Situation]:
    """All situations of some chapters, in order."""
    for chapter in chapters:
        importlib.import_module(f"tests.situations.{chapter}")
    return sorted(_SITUATIONS, key=lambda one: list(chapters).index(one.chapter))


class Place:
    """An empty folder with the place for a project in it. While it is open, the processor is a made-up one."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.project = self.root / "project"
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self.project.mkdir()
        cpuinfo = self.root / "cpuinfo"
        cpuinfo.write_text(f"model name : a made-up processor\nflags : {' '.join(X86_64_LEVELS[LEVEL])}\n")
        self.during(mock.patch.object(processor, "CPUINFO", cpuinfo))
        self.during(
            mock.patch.dict(OPERATORS, clear=True)
        )  # what others in this process declared is not here
        self.during(mock.patch.object(sys, "path", [str(self.project), *sys.path]))
        self.during(contextlib.chdir(self.project))
        self._open.callback(self.forget)
        self._open.callback(tilegate.use, None)
        for name in MODULES:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def during(self, context: contextlib.AbstractContextManager[object]) -> None:
        """Let something be in force until the place is left."""
        self._open.enter_context(context)

    def write(self, **files: str) -> None:
        """Python modules of the project by name, and `toml` for tilegate.toml."""
        for name, text in files.items():
            path = self.project / ("tilegate.toml" if name == "toml" else f"{name}.py")
            path.write_text(textwrap.dedent(text).lstrip("\n"))

    def type(self, line: str) -> Seen:
        """Run a command line of tilegate in the project."""
        words = shlex.split(line)
        assert words.pop(0) == "tilegate"
        done = CliRunner().invoke(commands, words, prog_name="tilegate", catch_exceptions=False)
        return Seen(f"$ {line}", done.output, done.exit_code)

    def start(self, line: str, *command: str, stdout: int | None = None) -> Seen:
        """Run a command in a process of its own."""
        done = subprocess.run(
            [sys.executable, *command],
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        return Seen(f"$ {line}", (done.stdout or "") + done.stderr, done.returncode)

    def python(self, text: str) -> Seen:
        """Run a few lines of Python in the project, up to the error that they raise."""
        path = self.project / "lines.py"
        path.write_text(text := textwrap.dedent(text).strip() + "\n")
        try:
            exec(compile(text, path, "exec"), {"__name__": "lines", "tilegate": tilegate})
        except TilegateError as error:
            told = "".join(traceback.format_exception_only(error))
            kinds = type(error).__mro__[: type(error).__mro__.index(TilegateError)]
            return Seen(
                text.rstrip(), told, None, ", which is a ".join(f"`{kind.__name__}`" for kind in kinds)
            )
        raise AssertionError("nothing was raised")

    def anonymous(self, seen: Seen) -> Seen:
        """What was seen, with a placeholder for everything that differs from machine to machine."""
        text = seen.text
        for path, name in self._folders():
            text = text.replace(path, name)
        for pattern, placeholder in PLACEHOLDERS:
            text = re.sub(pattern, placeholder, text)
        return seen._replace(text="".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines()))

    def _folders(self) -> list[tuple[str, str]]:
        """The longest first, as one lies in another."""
        found = dict.fromkeys((sysconfig.get_path(kind) for kind in ("purelib", "platlib")), "<installed>")
        found |= {str(self.project): "<project>", str(self.root): "<folder>"}
        return sorted(found.items(), key=lambda pair: -len(pair[0]))

    def forget(self) -> None:
        """Modules of this project are other ones in the next place."""
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{self.project}/"):
                del sys.modules[name]
