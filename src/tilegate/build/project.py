"""tilegate.toml, read: a project, or a sentence that names the line and the mend."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tilegate.errors import ProjectError, RecordError, UsageError
from tilegate.records.canonical import encode
from tilegate.records.policy import Policy
from tilegate.records.project import KernelTable, Project
from tilegate.records.target import Target
from tilegate.rules.spelling import did_you_mean

FILE = "tilegate.toml"

EXAMPLE = """\
operators = ["my_package.operators"]
kernels = ["my_package.kernels"]
targets = ["cpu:x86-64-v3"]
"""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<word>[^`]*)`(?: - at `(?P<at>[^`]*)`)?")


def load_project(folder: Path) -> Project:
    """The project of a folder.

    Raises:
        ProjectError: there is no tilegate.toml, it is no TOML, or it says something that cannot be meant.
    """
    path = folder / FILE
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        create = f"create it there, for a start with:\n\n# {FILE}\n{EXAMPLE}"
        raise ProjectError(f"there is no {FILE}", where=str(folder), next_step=create) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{FILE} cannot be read", where=str(path), why=str(error)) from None
    except tomllib.TOMLDecodeError as error:
        _wrong(path, f"{FILE} is not TOML: {error}", "mend that line; strings stand in double quotes")
    project = _convert(path, tables)
    _meant(path, project)
    return project


def _convert(path: Path, tables: dict[str, Any]) -> Project:
    for kernel in tables.get("kernel", ()) if isinstance(tables.get("kernel"), list) else ():
        axes = kernel.get("specialize") if isinstance(kernel, dict) else None
        if isinstance(axes, dict):  # one value may be written without its brackets
            kernel["specialize"] = {k: v if isinstance(v, list) else [v] for k, v in axes.items()}
    try:
        return msgspec.convert(tables, Project, strict=True)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.match(str(error))
        if unknown is None:
            _wrong(path, f"{error}".replace("`$.", "`").replace("Object", FILE), f"an example:\n\n{EXAMPLE}")
        at = unknown["at"] or "$"
        kind = KernelTable if at.startswith("$.kernel") else Policy if at.startswith("$.policy") else Project
        key = f"{at}.{unknown['word']}".removeprefix("$.")
        _wrong(path, f"unknown key {key}", did_you_mean(unknown["word"], kind.__struct_fields__))


def _meant(path: Path, project: Project) -> None:
    """What types cannot say: names of modules and functions, targets, kernels that are bindings."""
    if not project.operators:
        _wrong(path, "operators is empty", f"name the modules that declare operators:\n\n{EXAMPLE}")
    for module in (*project.operators, *project.kernels):
        if not _MODULE.match(module):
            _wrong(path, f"{module!r} is no module", 'write its import name: "my_package.operators"')
    for target in project.targets:
        try:
            Target.parse(target)
        except UsageError as error:
            raise ProjectError(
                error.what, where=str(path), why=error.why, next_step=error.next_step
            ) from None
    for table in project.kernel:
        for name in (table.operator, table.factory):
            if not _FUNCTION.match(name):
                _wrong(path, f"{name!r} is no function", 'write "package.module:function"')
        try:
            encode(table.binding())
        except RecordError as error:
            _wrong(
                path,
                f"[[kernel]] for {table.operator}: {error.why}",
                "names are ASCII identifiers; numbers finite",
            )


def _wrong(path: Path, what: str, next_step: str) -> NoReturn:
    raise ProjectError(what, where=str(path), next_step=next_step)
