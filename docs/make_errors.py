#!/usr/bin/env python3
"""Writes errors.md: `python docs/make_errors.py [--check]`.

Every situation of tests/situations is provoked in a folder of its own, and what a person sees there is written
down. With --check the page is compared and left alone. What cannot be provoked on this machine keeps its
section, and is named.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
sys.path.insert(0, str(ROOT))

from tests.situations import CHAPTERS  # noqa: E402 - found by the line above
from tests.situations.place import Impossible, Seen, Situation, situations  # noqa: E402 - likewise

HEAD = """\
# Errors

Everything that goes wrong says what, where, why, and what to do next, on one screen. Here is each of these
texts, as it is read, with what led to it.

The page is made by `python docs/make_errors.py`, which brings every situation about; the tests do the same and
compare. What differs from machine to machine stands in angle brackets:

| written here | on the screen |
| --- | --- |
| `<project>` | the project's folder |
| `<folder>` | the folder around it |
| `<installed>` | where Python's packages are installed |
| `<digest>` | 64 hexadecimal digits |
| `<random>`, `<n>` | part of a name; a number |

The processor is a made-up one of level `x86-64-v2`, and where a limit would keep the reader waiting, a smaller
one is in force; both say so. Exit codes are those of [records.md](records.md#commands-and-exit-codes). An
exception of Python is shown without its traceback.
"""

_SECTION = re.compile(r"^### (?P<title>.*)\n(?P<body>(?:(?!^##).*\n)*)", re.MULTILINE)


def section(one: Situation, seen: Seen) -> str:
    """The part of the page that tells one situation."""
    if seen.raised:
        shown = f"```python\n{seen.typed}\n```\n\n```text\n{seen.text}```\n\nRaises a {seen.raised}.\n"
    else:
        shown = f"```console\n{seen.typed}\n{seen.text}```\n\nExit code {seen.exit_code}.\n"
    return f"### {one.title}\n\n{one.how}\n\n{shown}\n"


def sections(page: str) -> dict[str, str]:
    """The parts of a page, by title."""
    return {match["title"]: match[0] for match in _SECTION.finditer(page)}


def joined(parts: Mapping[str, str]) -> str:
    """The whole page."""
    out = HEAD
    for chapter, heading in CHAPTERS.items():
        own = [one for one in situations(list(CHAPTERS)) if one.chapter == chapter]
        out += f"\n## {heading}\n" + "".join(f"\n{parts[one.title].rstrip()}\n" for one in own)
    return out


def lacking(one: Situation) -> str:
    """What a situation needs and this machine lacks, in words; empty where there is nothing."""
    tools = [tool for tool in ("gcc", "g++") if shutil.which(tool) is None]
    tools += ["TileLang"] if importlib.util.find_spec("tilelang") is None else []
    return f"not installed: {', '.join(tools)}" if tools and "compiler" in one.marks else ""


def provoked(old: Mapping[str, str]) -> Iterator[tuple[Situation, str]]:
    """Each situation with its section, told anew where this machine can."""
    for one in situations(list(CHAPTERS)):
        why = lacking(one)
        try:
            with tempfile.TemporaryDirectory() as folder:
                made = "" if why else section(one, one.seen(Path(folder)))
        except Impossible as impossible:
            why, made = str(impossible), ""
        if why:
            sys.stderr.write(f"left alone: {one.title} ({why})\n")
        yield one, made or old.get(one.title) or f"### {one.title}\n\n{one.how}\n\nNot seen yet.\n"


def main(arguments: Sequence[str]) -> int:
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    old = sections(text)
    new = {one.title: made for one, made in provoked(old)}
    page = joined(new)
    if "--check" not in arguments:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    for title, made in new.items():
        if old.get(title, "").rstrip() != made.rstrip():
            sys.stdout.write(f"errors.md: {title}: stale\n")
    return 0 if page == text else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
