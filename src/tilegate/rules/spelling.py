"""The words that an author may write: names and values, what is wrong with one, and which was meant."""

from __future__ import annotations

import difflib
import keyword
import math
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from tilegate.errors import ContractError

KINDS: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "str"}
"""What an attribute may be."""

SHOWN = 12
"""Known words that an error lists."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'hidden'?`, or the known words where none is near."""
    choices = list(known)
    near = difflib.get_close_matches(word, choices, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    if not choices:
        return "none is known here"
    more = ", ..." if len(choices) > SHOWN else ""
    return f"known here: {', '.join(choices[:SHOWN])}{more}"


def value_fault(kind: str, value: object) -> str | None:
    """Why a value is not one of an attribute of this kind, or None where it is.

    An int is not taken for a float: `1` and `1.0` are two values to a reviewer's eye and on disk.
    """
    if KINDS.get(type(value)) != kind:
        hint = f"; write {value}.0" if kind == "float" and type(value) is int else ""
        return f"{value!r} is not of kind {kind}{hint}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value!r} is not finite"
    if type(value) is int and not -(2**63) <= value < 2**63:
        return f"{value!r} does not fit 64 bits"
    return None


def wrong(where: str, what: str, next_step: str) -> NoReturn:
    raise ContractError(what, where=where, next_step=next_step)


def identifier(where: str, role: str, name: object) -> None:
    """Names stand in generated Python and C: no keyword, and none of tilegate's own."""
    if not isinstance(name, str) or not NAME.match(name):
        mend = "use ASCII letters, digits and _, at most 64, no digit first"
        wrong(where, f"{name!r} cannot name {role}", mend)
    if keyword.iskeyword(name) or name.startswith("_tg_"):
        wrong(where, f"{name!r} cannot name {role}", "it is reserved: choose another name")


def name_tuple(where: str, word: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        example = given if isinstance(given, str) else "x"
        wrong(where, f"{word} is {given!r}, not a tuple of names", f'write {word}=("{example}",)')
    if not all(isinstance(name, str) for name in given):
        wrong(where, f"{word} is {given!r}, not a tuple of names", f'write {word}=("x",)')
    if len(set(given)) < len(given):
        wrong(where, f"{word} names something twice", f"name each once in {word}={tuple(given)!r}")
    return tuple(given)
