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


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'hidden'?`, or nothing where no word is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'hidden'?`, or the known words where none is near."""
    choices = list(known)
    if near := nearest(word, choices):
        return near
    if not choices:
        return "none is known here"
    more = ", ..." if len(choices) > SHOWN else ""
    return f"known here: {', '.join(choices[:SHOWN])}{more}"


_MISFIT = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>\w+)` - at `\$\.?(?P<at>[^`]*)`")
_IDENTIFIER = re.compile(r"Expected `str` matching regex .* - at `\$\.?(?P<at>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>\w+)`(?: - at `\$\.?(?P<at>[^`]*)`)?")
_PLAIN = {
    "array": "a list", "object": "a table", "str": "a string", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "None",
}  # fmt: skip


def misfit(message: str) -> tuple[str, str, str] | None:
    """What msgspec has to say of the types in something that a person wrote, in that person's words.

    Returns:
        A sentence, the word it is about, and what belongs there: "targets is a string, where a list belongs",
        "targets", "a list". None for a fault of another kind.
    """
    if missing := _MISSING.match(message):
        at = f" of {missing['at']}" if missing["at"] else ""
        return f"the key {missing['key']}{at} is missing", missing["key"], "a value"
    if name := _IDENTIFIER.match(message):
        return f"{name['at']} is no identifier", name["at"], "ASCII letters, digits and _, no digit first"
    found = _MISFIT.match(message)
    if found is None:
        return None
    wanted = _PLAIN.get(found["wanted"], "a plain value")
    got = _PLAIN.get(found["got"], found["got"])
    return f"{found['at']} is {got}, where {wanted} belongs", found["at"], wanted


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
    argument = word.rpartition(".")[2]
    if isinstance(given, str) or not isinstance(given, Sequence):
        example = given if isinstance(given, str) else "x"
        wrong(where, f"{word} is {given!r}, not a tuple of names", f'write {argument}=("{example}",)')
    if not all(isinstance(name, str) for name in given):
        wrong(where, f"{word} is {given!r}, not a tuple of names", f'write {argument}=("x",)')
    if len(set(given)) < len(given):
        wrong(where, f"{word} names something twice", f"write {argument}={tuple(dict.fromkeys(given))!r}")
    return tuple(given)
