"""The tables of the commands: narrow terminals break cells between phrases; pipes never do."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tilegate.report.table import HANG, Table, broken, fit

GUARD = "K % 32 == 0 and 0 <= K <= 256, 0 <= M <= 100"

phrases = st.lists(st.text("abc<=0", min_size=1, max_size=12), min_size=1, max_size=6)


def printed(table, *, width, terminal):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, soft_wrap=True)
    console.print(table)
    return out.getvalue().splitlines()


def guard_table():
    table = Table("kernel", "serves")
    table.row("tiles", GUARD)
    return table


def test_a_comparison_is_never_torn_apart_on_a_narrow_terminal():
    assert printed(guard_table(), width=30, terminal=True) == [
        "kernel  serves",
        "tiles   K % 32 == 0 and",
        "          0 <= K <= 256,",
        "          0 <= M <= 100",
    ]


def test_a_row_stays_one_line_in_a_pipe():
    assert printed(guard_table(), width=30, terminal=False) == ["kernel  serves", f"tiles   {GUARD}"]


def test_what_fits_is_not_broken():
    assert len(printed(guard_table(), width=len(f"tiles   {GUARD}"), terminal=True)) == 2


@given(phrases=phrases, width=st.integers(1, 40))
def test_breaking_loses_nothing(phrases, width):
    """The pieces of a line, joined, are the line."""
    line = ", ".join(phrases)
    assert " ".join(piece.strip() for piece in broken(line, width)) == line


@given(phrases=phrases, width=st.integers(1, 40))
def test_a_phrase_that_fits_is_never_broken(phrases, width):
    """A phrase of at most `width` less the indentation stands whole in one piece."""
    pieces = broken(", ".join(phrases), width)
    for phrase in phrases:
        if len(f"{phrase},") <= width - HANG:
            assert any(phrase in piece for piece in pieces)


needs = st.lists(
    st.tuples(st.integers(1, 20), st.integers(0, 40)).map(lambda n: (n[0], n[0] + n[1])),
    min_size=1,
    max_size=6,
)


@given(needs=needs, room=st.integers(1, 200))
def test_columns_fill_the_room_and_never_fall_below_their_least(needs, room):
    """least <= width <= natural for each; together the room, unless all least or all natural ones differ."""
    widths = fit(needs, room)
    assert all(least <= width <= natural for (least, natural), width in zip(needs, widths, strict=True))
    least, natural = sum(n[0] for n in needs), sum(n[1] for n in needs)
    assert sum(widths) == max(least, min(room, natural))
