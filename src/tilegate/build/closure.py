"""The source closure: the files that a kernel reaches, found and read as text. Nothing is imported."""

from __future__ import annotations

import ast
import os
import stat
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tilegate.errors import BindingError
from tilegate.records.canonical import digest_of
from tilegate.records.closure import Binding, Closure, SourceFile
from tilegate.rules.spelling import did_you_mean, nearest

MAX_SOURCE_BYTES = 1 << 20
"""Of one file. Nobody reviews more."""

INIT = "__init__.py"

NEVER = frozenset({*sys.stdlib_module_names, "torch", "tilegate", "tilelang", "tvm", "tvm_ffi"})
"""Packages that belong to Python or to the toolchain: they are pinned by version, not reviewed."""


def collect(binding: Binding, roots: Sequence[Path]) -> tuple[Closure, dict[str, bytes]]:
    """The closure of a binding, and the content of its files by digest: `reach` from factory and operator.

    Raises:
        BindingError: as `reach`.
    """
    starts = dict.fromkeys(name.partition(":")[0] for name in (binding.factory, binding.operator))
    files, contents = reach(tuple(starts), roots, where=f"kernel {binding.kernel}")
    return Closure(binding=binding, files=files), contents


def reach(
    modules: Sequence[str], roots: Sequence[Path], *, where: str
) -> tuple[tuple[SourceFile, ...], dict[str, bytes]]:
    """The files that some modules reach statically, sorted by module, and their content by digest.

    1. Every import statement is followed, wherever it stands, and the packages above a module come along.
    2. What lies in the first root (the project) is taken; from the other roots only what belongs to the
       packages of the modules asked for; Python and the toolchain, never.

    Imports that are computed at run time are not seen: the build then misses the module and says so.

    Args:
        modules: import names to begin at.
        roots: folders on the import path, the project's first.
        where: who asks, for errors.

    Raises:
        BindingError: a module is missing, is no regular file inside its root, is too large or no Python.
    """
    named = frozenset(name.partition(".")[0] for name in modules)
    _startable(modules, roots, where)
    files: dict[str, SourceFile] = {}
    contents: dict[str, bytes] = {}
    pending = [_Import(module, where) for module in modules]
    while pending:
        wanted = pending.pop()
        package = wanted.module.partition(".")[0]
        if wanted.module in files or package in NEVER:
            continue
        found = _locate(wanted.module, roots if package in named else roots[:1])  # (2)
        if found is not None:
            file, data = _read(wanted.module, found)
            files[file.module], contents[file.digest] = file, data
            pending += _imports(wanted.module, data, is_package=file.is_package)  # (1)
            pending += [_Import(above, wanted.where) for above in _above(wanted.module)]
        elif wanted.required and package in named and not _folders(wanted.module, roots):
            raise _missing(wanted, roots)
    return tuple(files[m] for m in sorted(files)), contents


def _startable(modules: Sequence[str], roots: Sequence[Path], where: str) -> None:
    for module in modules:
        if module.partition(".")[0] in NEVER:
            raise BindingError(
                f"{module} is part of Python or of the toolchain, not of a source closure",
                where=where,
                next_step="declare an operator of your own around it, or copy what you need into your package",
            )
        if _locate(module, roots) is None:
            raise _missing(_Import(module, where), roots)


def read_source(module: str, roots: Sequence[Path], *, where: str) -> tuple[bytes, bool]:
    """The text of one module, and whether it is a package.

    Raises:
        BindingError: it is missing, is no regular file inside its root, or is too large.
    """
    found = _locate(module, roots)
    if found is None:
        raise _missing(_Import(module, where), roots)
    file, data = _read(module, found)
    return data, file.is_package


def parse(source: str | bytes, *, where: str) -> ast.Module:
    """The syntax tree of some source.

    Raises:
        BindingError: it is no Python that this interpreter reads.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an author's odd escape is no business of whoever builds
            return ast.parse(source)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise BindingError(
            f"syntax error: {error.msg}", where=where + line, next_step="mend it there"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BindingError(
            "the source cannot be parsed",
            where=where,
            why=str(error) or type(error).__name__,
            next_step="make it UTF-8 text, with expressions that are nested less deeply",
        ) from None


def imported_from(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    """The absolute name of the module in `from <name> import ...`.

    Raises:
        BindingError: the dots lead out of the top-level package.
    """
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    keep = len(parts) - node.level + is_package
    if keep < 1:
        dots = "." * node.level + (node.module or "")
        raise BindingError(
            f"the relative import of {dots} leads out of the package",
            where=f"{module}, line {node.lineno}",
            next_step="import it by its absolute name, or put the module into a package",
        )
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


class _Import(NamedTuple):
    module: str
    where: str
    required: bool = False
    """False where nobody can tell from the text that it must be a module, or that it must be there."""


class _Found(NamedTuple):
    root: Path
    path: Path
    """Without symbolic links."""
    relative: str


def _imports(module: str, data: bytes, *, is_package: bool) -> Iterator[_Import]:
    tree = parse(data, where=module)
    guarded = {
        inner for node in ast.walk(tree) if isinstance(node, ast.Try | ast.If) for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        where = f"{module}, line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (_Import(alias.name, where, node not in guarded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = imported_from(module, node, is_package=is_package)
            yield _Import(origin, where, node not in guarded)
            yield from (_Import(f"{origin}.{alias.name}", where) for alias in node.names)


def _above(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def _locate(module: str, roots: Sequence[Path]) -> _Found | None:
    """Where a module is. The first root that holds its top-level package decides, as it does for Python."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for root in roots:
        found = _within(root, parts)
        if found is not None or _within(root, parts[:1]) is not None:
            return found
    return None


def _within(root: Path, parts: Sequence[str]) -> _Found | None:
    folder = root
    for part in parts[:-1]:
        if not os.path.lexists(folder / part / INIT) and os.path.lexists(folder / f"{part}.py"):
            return None  # a module, and so no package, whatever folder stands beside it
        folder /= part
    for path in (folder / parts[-1] / INIT, folder / f"{parts[-1]}.py"):
        if os.path.lexists(path):
            real = path.resolve()
            if not real.is_relative_to(root.resolve()) or not real.is_file():
                raise BindingError(
                    f"{'.'.join(parts)} is no regular file inside the folder it is imported from",
                    where=str(path),
                    next_step="put the file itself there in place of the link",
                )
            return _Found(root, real, path.relative_to(root).as_posix())
    return None


def _read(module: str, found: _Found) -> tuple[SourceFile, bytes]:
    """The bytes of one regular file. The path was resolved: a link that appears since then is not followed."""
    try:
        descriptor = os.open(found.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BindingError(
                    f"{module} is no regular file",
                    where=str(found.path),
                    next_step="put the file itself there",
                )
            data = file.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:
        raise BindingError(
            f"{module} cannot be read",
            where=str(found.path),
            why=error.strerror or type(error).__name__,
            next_step="make it readable for the user who builds",
        ) from None
    if len(data) > MAX_SOURCE_BYTES:
        raise BindingError(
            f"{module} has more than {MAX_SOURCE_BYTES} bytes",
            where=str(found.path),
            why="every file of a closure is read by a person",
            next_step="move data out of the source, or split the module",
        )
    source = SourceFile(
        module=module,
        path=found.relative,
        digest=digest_of(data),
        size=len(data),
        is_package=found.relative.endswith(f"/{INIT}"),
    )
    return source, data


def _folders(module: str, roots: Sequence[Path]) -> list[Path]:
    """Folders that a package without `__init__.py` consists of."""
    folders = [root.joinpath(*module.split(".")) for root in roots] if module else list(roots)
    return [folder for folder in folders if folder.is_dir()]


def _missing(wanted: _Import, roots: Sequence[Path]) -> BindingError:
    above, _, last = wanted.module.rpartition(".")
    parts = wanted.module.split(".")
    depth = max(n for n in range(len(parts)) if _folders(".".join(parts[:n]), roots) or n == 0)

    def known(roots: Sequence[Path]) -> list[str]:
        siblings = {
            path.stem
            for folder in _folders(".".join(parts[:depth]), roots)
            for path in folder.iterdir()
            if path.stem.isidentifier() and (path.suffix == ".py" or (path / INIT).is_file())
        }
        return [".".join([*parts[:depth], name, *parts[depth + 1 :]]) for name in sorted(siblings)]

    near = nearest(wanted.module, known(roots))
    if not near:
        near = f"put it there, or mend the name; {did_you_mean(wanted.module, known(roots[:1]))}"
    if above and (module := _locate(above, roots)) and module.path.name != INIT:
        near = f"{above} is a module, no package: what it defines is written {above}:{last}"
    return BindingError(
        f"there is no source of the module {wanted.module}",
        where=wanted.where,
        why=f"searched: {', '.join(map(str, roots))}; only .py files can be reviewed",
        next_step=near,
    )
