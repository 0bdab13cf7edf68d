"""A table without rules. On a terminal too narrow for it, cells are broken between phrases, not inside of one.

A phrase is what is read at once: `0 <= tokens <= 8192`, `T=float16`, `142 wrong`. In a pipe there is no width:
a row stays one line, for grep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

GAP = 2
HANG = 2
"""Indentation of what continues a broken line."""

LONGEST_PHRASE = 30
"""Beyond it a phrase is a sentence, and may be broken between words."""

_BETWEEN_PHRASES = re.compile(r"(?<=, )|(?<= and )")
_BETWEEN_WORDS = re.compile(r"(?<= )")


class Table:
    """Rows of text cells under bold headings. A cell may hold several lines."""

    def __init__(self, *headings: str) -> None:
        self._rows: list[tuple[Text, ...]] = [tuple(Text(h, style="bold") for h in headings)]

    def row(self, *cells: str | Text) -> None:
        self._rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(zip(*self._rows, strict=True))
        widths = [max(map(_natural, column)) for column in columns]
        if console.is_terminal:
            needs = [(max(map(_least, column)), width) for column, width in zip(columns, widths, strict=True)]
            widths = fit(needs, options.max_width - GAP * (len(columns) - 1))
        for row in self._rows:
            yield from _lines(row, widths)


def fit(needs: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Widths of columns, given the least and the natural one of each, in character cells.

    What is missing is taken from the column that can give most, then from the next: so that as few columns as
    possible are broken. Where even the least is too wide, it stays.
    """
    widths = [natural for _, natural in needs]
    missing = sum(widths) - room
    for place in sorted(range(len(needs)), key=lambda i: needs[i][0] - needs[i][1]):
        given = max(0, min(missing, widths[place] - needs[place][0]))
        widths[place] -= given
        missing -= given
    return widths


def broken(line: str, width: int) -> list[str]:
    """A line in pieces of at most `width`: between phrases, then words. A longer word is left whole."""
    pieces: list[str] = []
    for phrase in _BETWEEN_PHRASES.split(line):
        fits = cell_len(phrase.rstrip()) <= width - HANG
        for part in [phrase] if fits else filter(None, _BETWEEN_WORDS.split(phrase)):
            if pieces and cell_len((pieces[-1] + part).rstrip()) <= width:
                pieces[-1] += part
            else:
                pieces.append((" " * HANG if pieces else "") + part)
    return [piece.rstrip() for piece in pieces]


def _lines(row: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
    cells = [
        [piece for line in text.plain.split("\n") for piece in _within(line, width)]
        for text, width in zip(row, widths, strict=True)
    ]
    for number in range(max(map(len, cells))):
        line = Text(no_wrap=True, overflow="ignore")
        for text, pieces, width in zip(row, cells, widths, strict=True):
            piece = pieces[number] if number < len(pieces) else ""
            line.append(piece, style=text.style)
            line.append(" " * (width + GAP - cell_len(piece)))
        line.rstrip()
        yield line


def _within(line: str, width: int) -> list[str]:
    return [line] if cell_len(line) <= width else broken(line, width)


def _natural(text: Text) -> int:
    return max(cell_len(line) for line in text.plain.split("\n"))


def _least(text: Text) -> int:
    """The longest phrase, indented; of a sentence, its longest word."""
    if _natural(text) <= HANG:
        return _natural(text)
    phrases = [p.rstrip() for line in text.plain.split("\n") for p in _BETWEEN_PHRASES.split(line)]
    words = [word for phrase in phrases for word in phrase.split()]
    short = [cell_len(phrase) for phrase in phrases if cell_len(phrase) <= LONGEST_PHRASE]
    return min(_natural(text), HANG + max([*short, *map(cell_len, words)], default=0))
