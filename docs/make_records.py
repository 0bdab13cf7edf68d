#!/usr/bin/env python3
"""Writes those parts of the documentation that the code already says: `python docs/make_records.py [--check]`.

A part stands between `<!-- made: NAME -->` and `<!-- end: NAME -->`, in any page of this folder. Names, types
and values come from the running code; meanings from the docstrings beside them, or else from records.toml.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import pkgutil
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import tilegate.records
from tilegate.drill.expected import PROBES
from tilegate.drill.probe import Expected
from tilegate.records.drill import Theme
from tilegate.records.isolation import Limits
from tilegate.records.miss import GUARD_CODES, MissReason
from tilegate.records.policy import Policy
from tilegate.records.project import KernelTable, Project
from tilegate.rules.templates import TEMPLATES
from tilegate.sandbox.missing import MENDS

DOCS = Path(__file__).parent
WORDS: dict[str, dict[str, str]] = tomllib.loads((DOCS / "records.toml").read_text(encoding="utf-8"))
PART = re.compile(r"(<!-- made: (?P<name>[a-z-]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL)

OF_REPORTS = ("tilegate.records.report",)
OF_JOBS = (
    "tilegate.sandbox.frames",
    "tilegate.sandbox.job",
    "tilegate.build.requests",
    "tilegate.evaluate.requests",
)
OF_LAYOUT = ("tilegate.store.layout",)
ELSEWHERE = (*OF_REPORTS, "tilegate.records.project", "tilegate.records.faults")
"""tilegate.toml has a section of its own; classes of faults stay inside a process."""

KEYS = (("", Project), ("policy.", Policy), ("kernel.", KernelTable))
JOBS = ("describe", "elaborate", "compile", "evaluate", "reference")


class Unsaid(Exception):  # noqa: N818 - a gap in the documentation, told to whoever left it
    """Something reaches disk or wire, and nobody says what it means."""


class Page:
    """One module as text: what its classes, fields and constants say of themselves."""

    def __init__(self, module: ModuleType) -> None:
        tree = ast.parse(inspect.getsource(module))
        self.sentence = _first(ast.get_docstring(tree) or "")
        self.fields: dict[str, dict[str, tuple[str, str]]] = {}
        self.own: dict[str, str] = {}
        self.constants = _said(tree.body)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.fields[node.name] = _said(node.body)
                self.own[node.name] = _first(ast.get_docstring(node) or "")


def _said(body: Sequence[ast.stmt]) -> dict[str, tuple[str, str]]:
    """(type as written, docstring below it) by name, of assignments; `""` where there is none."""
    found: dict[str, tuple[str, str]] = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        said = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            said = inspect.cleandoc(str(after.value.value))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = (_type(node.annotation), said)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = ("", said)
    return found


def _type(node: ast.expr) -> str:
    """As written, but for `Annotated`, of which only what it annotates is shown."""
    text = ast.unparse(node).replace("'", '"')
    return re.sub(r"Annotated\[(\w+), Meta\(.*?\)\]", r"\1", text)


def _first(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(c.split()).replace("|", r"\|") for c in cells) + " |"


def _table(*head: str) -> list[str]:
    return [_row(*head), "|" + " --- |" * len(head)]


def modules_of_records() -> list[str]:
    found = [f"tilegate.records.{m.name}" for m in pkgutil.iter_modules(tilegate.records.__path__)]
    return [name for name in found if name not in ELSEWHERE]


def classes_of(name: str) -> list[type]:
    """The records and enumerations that a module defines, in its order."""
    own = [c for c in vars(importlib.import_module(name)).values() if inspect.isclass(c)]
    kinds = (msgspec.Struct, enum.Enum)
    mine = [
        c for c in own if c.__module__ == name and issubclass(c, kinds) and not c.__name__.startswith("_")
    ]
    return [c for c in mine if c is not MissReason and (issubclass(c, enum.Enum) or c.__struct_fields__)]


def _schema(kind: type) -> str:
    """`tilegate.release/1` for a document, else empty."""
    tag = kind.__struct_config__.tag if issubclass(kind, msgspec.Struct) else None
    return tag if isinstance(tag, str) and "/" in tag else ""


def _meaning(kind: type, name: str, said: str) -> str:
    named = WORDS.get(kind.__name__, {})
    shared = {} if issubclass(kind, enum.Enum) else WORDS["fields"]
    text = said or named.get(name) or shared.get(name)
    if not text:
        raise Unsaid(f"{kind.__name__}.{name}: add a docstring below the field, or a word in records.toml")
    return _start(text)


def _start(text: str) -> str:
    """As the start of a cell: a docstring's full stop and a word's small letter look alike."""
    return (text[:1].upper() + text[1:]).removesuffix(".")


def _described(kind: type, page: Page) -> str:
    text = page.own.get(kind.__name__) or WORDS.get(kind.__name__, {}).get("_")
    if not text and not issubclass(kind, enum.Enum):
        raise Unsaid(f"{kind.__name__}: add a docstring, or a word `_` in records.toml")
    return text or ""


def _fields(kind: type[msgspec.Struct], linked: set[str]) -> Iterator[str]:
    config = kind.__struct_config__
    yield from _table("field", "type", "meaning")
    if config.tag is not None:
        yield _row(f"`{config.tag_field}`", f'`"{config.tag}"`', "Fixed")
    pages = {
        k.__name__: Page(sys.modules[k.__module__])
        for k in kind.__mro__
        if k.__module__.startswith("tilegate.")
    }
    for field in msgspec.structs.fields(kind):
        owner = next(k for k in pages if field.name in pages[k].fields.get(k, {}))
        text, said = pages[owner].fields[owner][field.name]
        target = next((word for word in re.findall(r"\w+", text) if word in linked), None)
        shown = f"[`{text}`](#{target.lower()})" if target else f"`{text}`"
        yield _row(f"`{field.encode_name}`", shown, _meaning(kind, field.name, said))


def _values(kind: type[enum.Enum], page: Page) -> Iterator[str]:
    yield from _table("value", "meaning")
    for one in kind:
        said = page.fields[kind.__name__].get(one.name, ("", ""))[1]
        yield _row(f"`{one.value}`", _meaning(kind, str(one.value), said))


def records(*modules: str) -> str:
    """A heading for each module, and a table for each record and enumeration in it."""
    shown = (c for m in (*modules_of_records(), *OF_REPORTS, *OF_JOBS) for c in classes_of(m))
    linked = {kind.__name__ for kind in shown}
    out: list[str] = []
    for name in modules:
        page = Page(importlib.import_module(name))
        kinds = classes_of(name)
        if kinds:
            out += [f"### {name.removeprefix('tilegate.')}", "", page.sentence, ""]
        for kind in kinds:
            schema = _schema(kind)
            described = f"{f'`{schema}`. ' if schema else ''}{_described(kind, page)}"
            out += [f"#### {kind.__name__}", "", *([described, ""] if described else [])]
            struct = issubclass(kind, msgspec.Struct)
            out += [*(_fields(kind, linked) if struct else _values(kind, page)), ""]
    return "\n".join(out)


def schemas() -> str:
    out = _table("schema", "record", "what it is")
    for name in (*modules_of_records(), *OF_REPORTS, *OF_JOBS):
        page = Page(importlib.import_module(name))
        for kind in classes_of(name):
            if schema := _schema(kind):
                link = f"[{kind.__name__}](#{kind.__name__.lower()})"
                out.append(_row(f"`{schema}`", link, _described(kind, page)))
    return "\n".join(out)


def guard_codes() -> str:
    rows = [_row("0", "`LAUNCHED`", "the kernel ran")]
    rows += [_row(str(n), f"`{r.name}`", r.value) for n, r in enumerate(GUARD_CODES) if n]
    return "\n".join([*_table("code", "name", "sentence"), *rows])


def misses() -> str:
    rows = [_row(f"`{r.name}`", r.value) for r in MissReason if r not in GUARD_CODES[1:]]
    return "\n".join([*_table("name", "sentence"), *rows])


def templates() -> str:
    rows = [_row(f"`{n}`", f"`{t.error.value}`", t.sentence, t.hint) for n, t in TEMPLATES.items()]
    return "\n".join([*_table("template", "error", "sentence", "what to try"), *rows])


def toml_keys() -> str:
    out = _table("key", "type", "default", "meaning")
    for prefix, kind in KEYS:
        page = Page(sys.modules[kind.__module__])
        for field in msgspec.structs.fields(kind):
            text, said = page.fields[kind.__name__][field.name]
            if kind is Project and field.name in ("kernel", "policy"):
                continue  # tables of their own
            out.append(
                _row(
                    f"`{prefix}{field.name}`", f"`{text}`", _default(field), _meaning(kind, field.name, said)
                )
            )
    return "\n".join(out)


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        value = field.default.value if isinstance(field.default, enum.Enum) else field.default
        return f"`{msgspec.json.encode(value).decode()}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default_factory()).decode()}`"
    return "required"


def limits() -> str:
    """Limits of the job kinds, side by side."""
    module = importlib.import_module("tilegate.sandbox.policy")
    out = _table("limit", *(f"`{job}`" for job in JOBS), "meaning")
    page = Page(sys.modules[Limits.__module__])
    for name in Limits.__struct_fields__:
        values = [_amount(name, getattr(getattr(module, job.upper()).limits, name)) for job in JOBS]
        out.append(_row(f"`{name}`", *values, _meaning(Limits, name, page.fields["Limits"][name][1])))
    return "\n".join(out)


def sights() -> str:
    """What each kind of job may read."""
    module = importlib.import_module("tilegate.sandbox.policy")
    out = _table("job", "reads", "what it does")
    words = Page(module).constants
    for job in JOBS:
        reads = ", ".join(f"`{one.value}`" for one in getattr(module, job.upper()).reads)
        out.append(_row(f"`{job}`", reads, words[job.upper()][1]))
    return "\n".join(out)


def pieces() -> str:
    """Pieces of the sandbox, and what mends one that is missing."""
    out = _table("missing", "what mends it")
    out += [_row(piece, mend) for piece, mend in MENDS.items()]
    return "\n".join(out)


def _amount(name: str, value: float) -> str:
    if not name.endswith("_bytes"):
        return f"{value:,.0f}"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if value >= size:
            return f"{value / size:.0f} {unit}"
    return f"{value / 1024:.0f} KiB"


def constants(*modules: str) -> str:
    """Numbers with a name and a docstring, of some modules."""
    out = _table("name", "value", "meaning")
    for name in modules:
        module = importlib.import_module(name)
        for constant, (_, said) in Page(module).constants.items():
            value = getattr(module, constant)
            if constant.isupper() and said and isinstance(value, int):
                out.append(_row(f"`{name.removeprefix('tilegate.')}.{constant}`", f"{value:,}", said))
    return "\n".join(out)


def probes() -> str:
    """Every probe of the drill, by theme, with what is expected of it at each level."""
    out: list[str] = []
    for theme in Theme:
        out += [
            f"### {_start(theme.value)}",
            "",
            *_table("probe", "what it tries", "full", "reduced", "none"),
        ]
        for probe in PROBES:
            if probe.theme is theme:
                cells = [_expected(one) for one in (probe.full, probe.reduced, probe.none)]
                out.append(_row(f"`{probe.name}`", probe.tries, *cells))
        out.append("")
    return "\n".join(out)


def _expected(one: Expected) -> str:
    """`blocked: why`, and what differs for whom."""
    told = f"{' or '.join(outcome.value for outcome in one.outcomes)}: {one.why}"
    if one.grouped is not None:
        told += f"; in a control group {_expected(one.grouped)}"
    if one.user is not None:
        told += f"; for an ordinary user {_expected(one.user)}"
    if one.before is not None:
        told += f"; before Landlock {one.before[0]} {_expected(one.before[1])}"
    return told


PARTS: dict[str, Callable[[], str]] = {
    "schemas": schemas,
    "records": lambda: records(*modules_of_records()),
    "reports": lambda: records(*OF_REPORTS),
    "jobs": lambda: records(*OF_JOBS),
    "layout": lambda: records(*OF_LAYOUT),
    "guard-codes": guard_codes,
    "misses": misses,
    "templates": templates,
    "toml-keys": toml_keys,
    "limits": limits,
    "probes": probes,
    "sights": sights,
    "pieces": pieces,
    "constants": lambda: constants(
        "tilegate.evaluate.plan",
        "tilegate.evaluate.run",
        "tilegate.evaluate.pool",
        "tilegate.pipeline.merge",
        "tilegate.rules.coverage",
        "tilegate.rules.boxes",
    ),
}


def remade(text: str) -> str:
    """A page with every made part as the code has it now."""
    return PART.sub(lambda m: f"{m[1]}{PARTS[m['name']]().rstrip()}\n{m[3]}", text)


def main(arguments: Sequence[str]) -> int:
    old = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    stale = {path: new for path, text in old.items() if (new := remade(text)) != text}
    for path, text in stale.items():
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(DOCS)}: {'stale' if '--check' in arguments else 'made anew'}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
