"""Every error that a person can meet is provoked, is of one form, and reads as docs/errors.md says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.situations import CHAPTERS
from tests.situations.place import Impossible, situations
from tilegate import errors

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SITUATIONS = situations(list(CHAPTERS))

SCREEN = 24
"""Lines of the smallest terminal that people use."""

QUIET = {"The reader of standard output has gone", "Ctrl-C"}
"""Nobody reads on, or somebody asked for the end: there is no next step."""


def load_maker():
    spec = importlib.util.spec_from_file_location("make_errors", ROOT / "docs" / "make_errors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = load_maker()
SECTIONS = MAKER.sections(PAGE)


def named(one):
    marks = [getattr(pytest.mark, mark) for mark in one.marks]
    return pytest.param(one, id=one.title, marks=marks)


@pytest.mark.parametrize("one", [named(one) for one in SITUATIONS])
def test_it_is_told_as_the_page_says_on_one_screen_with_a_next_step(one, tmp_path):
    try:
        seen = one.seen(tmp_path)
    except Impossible as impossible:
        pytest.skip(str(impossible))
    assert MAKER.section(one, seen).rstrip() == SECTIONS[one.title].rstrip(), "run docs/make_errors.py"
    assert seen.text.count("\n") <= SCREEN
    assert "Traceback" not in seen.text
    told = re.findall(r"^next: \S", seen.text, re.MULTILINE)
    assert told or one.title in QUIET or seen.exit_code == 0


def test_the_page_tells_every_situation_once_and_nothing_else():
    assert len(SITUATIONS) == len({one.title for one in SITUATIONS}) == len(SECTIONS)
    assert MAKER.joined(SECTIONS) == PAGE, "run docs/make_errors.py"
    assert "Not seen yet." not in PAGE
    assert all(one.how for one in SITUATIONS)


OF_COMMANDS = {
    "ToolError": "error: the answer cannot be written",
    "StoreError": "error: the index of the workspace is locked",
    "SandboxError": "error: a job could not be started",
    "RecordError": "error: the content is not a Manifest",
    "SchemaError": "a record of schema tilegate.release/0",
    "BindingError": "error: axis n is neither dynamic nor specialized",
    "ProjectError": "error: there is no tilegate.toml",
}
"""A command shows no class, so a text stands for each here."""


def test_every_class_of_error_is_seen():
    classes = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind is not errors.TilegateError
    }
    raised = set(re.findall(r"^Raises a `(\w+)`", PAGE, re.MULTILINE))
    assert classes == raised | {name for name, text in OF_COMMANDS.items() if text in PAGE}
