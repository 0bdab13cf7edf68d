"""tilegate.toml, read: a project, or a sentence that names the line and the mend."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tilegate.errors import ProjectError, RecordError, UsageError
from tilegate.records.canonical import encode
from tilegate.records.policy import Density, Policy
from tilegate.records.project import KernelTable, Project
from tilegate.records.target import Target
from tilegate.rules.spelling import did_you_mean, misfit

FILE = "tilegate.toml"

EXAMPLE = """\
operators = ["my_package.operators"]
kernels = ["my_package.kernels"]
targets = ["cpu:x86-64-v3"]
"""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)
_NO_DENSITY = re.compile(r"Invalid enum value '(.*)' - at `\$\.policy\.density`")
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
        create = f"go to the project, name its folder with -C, or begin one here with:\n\n# {FILE}\n{EXAMPLE}"
        raise ProjectError(f"there is no {FILE}", where=str(folder), next_step=create) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(
            f"{FILE} cannot be read",
            where=str(path),
            why=getattr(error, "strerror", "") or "it is not UTF-8 text",
            next_step="make it a readable text file",
        ) from None
    except tomllib.TOMLDecodeError as error:
        _wrong(path, f"{FILE} is not TOML: {error}", "mend it there; strings stand in double quotes")
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
            _wrong(path, *_misfit(str(error)))
        at = unknown["at"] or "$"
        kind = KernelTable if at.startswith("$.kernel") else Policy if at.startswith("$.policy") else Project
        key = f"{at}.{unknown['word']}".removeprefix("$.")
        _wrong(path, f"unknown key {key!r}", did_you_mean(unknown["word"], kind.__struct_fields__))


def _misfit(message: str) -> tuple[str, str]:
    """A value of another kind than its key asks for: what is wrong, and the mend."""
    told = misfit(message)
    if told is not None:
        what, key, wanted = told
        if key == "kernel":
            return what, "write [[kernel]], in double brackets"
        if key == "operators":
            return what, f"an example:\n\n{EXAMPLE}"
        return what, f"give {key} {wanted}"
    if (word := _NO_DENSITY.match(message)) is not None:
        known = [density.value for density in Density]
        return f"policy.density is {word[1]!r}, which is none of its values", did_you_mean(word[1], known)
    return message.replace("`$.", "`"), f"an example:\n\n{EXAMPLE}"


def _module(path: Path, name: str) -> None:
    if name.endswith(".py"):
        module = name.removesuffix(".py").replace("/", ".")
        _wrong(path, f"{name!r} is a file, where a module is named", f'write its import name: "{module}"')
    if not _MODULE.match(name):
        _wrong(path, f"{name!r} is no name of a module", 'write its import name: "my_package.operators"')


def _meant(path: Path, project: Project) -> None:
    """What types cannot say: names of modules and functions, targets, kernels that are bindings."""
    if not project.operators:
        _wrong(path, "operators is empty", f"name the modules that declare operators:\n\n{EXAMPLE}")
    for module in (*project.operators, *project.kernels):
        _module(path, module)
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
                _wrong(path, f"{name!r} is no name of a function", 'write "package.module:function"')
        try:
            encode(table.binding())
        except RecordError as error:
            told = misfit(error.why)
            fault = told[0] if told else error.why
            what = f"[[kernel]] for {table.operator}: {fault}"
            _wrong(path, what, "names are ASCII identifiers; numbers finite")


def _wrong(path: Path, what: str, next_step: str) -> NoReturn:
    raise ProjectError(what, where=str(path), next_step=next_step)
