"""The passage of source that a function or class is: its text, and the outside names that it reads."""

from __future__ import annotations

import ast
import copy
import linecache
import symtable
import warnings
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any, NamedTuple

from tilegate.errors import ContractError

OPERATOR_MODULE = "tilegate.runtime.operator"

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Passage(NamedTuple):
    """What the text says. Nothing here depends on where the file lies or on the interpreter's version."""

    text: str
    """From `def` or `class` to the last line, as it stands, comments inside included."""
    decorators: tuple[str, ...]
    """Text of each, without `tilegate.operator` and what stands above it."""
    reads: tuple[tuple[str, ...], ...]
    """Names that are not its own, each with the attributes that follow: ("torch", "nn", "functional")."""
    imports: tuple[str, ...]
    """Modules that it imports itself; a leading dot marks a relative import."""


class Reader:
    """Reads passages, each file parsed once. It lives for one digest: files may change between two."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, dict[str, list[Definition]]]] = {}

    def function(self, code: CodeType, namespace: Mapping[str, Any]) -> Passage:
        """The passage of a function.

        Raises:
            ContractError: there is no source, or it is not the one that was imported.
        """
        source, definitions = self._read(code.co_filename, namespace)
        for node in definitions.get(code.co_qualname, ()):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return _passage(source, node, namespace)
        raise ContractError(
            f"the source of {code.co_qualname} is not found",
            where=f"{code.co_filename}, line {code.co_firstlineno}",
            why="its digest is taken over the text, and the file has no such def at that line",
            next_step="write it as a def in a file; where the file was edited since import, import it again",
        )

    def class_(self, kind: type, namespace: Mapping[str, Any]) -> Passage:
        """The passage of a class, with all its methods.

        Raises:
            ContractError: there is no source, or it does not say which of several classes is meant.
        """
        filename = str(namespace.get("__file__", "<unknown>"))
        source, definitions = self._read(filename, namespace)
        found = [n for n in definitions.get(kind.__qualname__, ()) if isinstance(n, ast.ClassDef)]
        if len(found) != 1:
            raise ContractError(
                f"the source of class {kind.__qualname__} is not found",
                where=filename,
                why=f"the file has {len(found)} class statements of that name",
                next_step="write it as one class statement at the top level of a module",
            )
        return _passage(source, found[0], namespace)

    def _read(self, filename: str, namespace: Mapping[str, Any]) -> tuple[str, dict[str, list[Definition]]]:
        if filename not in self._files:
            linecache.checkcache(filename)
            source = "".join(linecache.getlines(filename, dict(namespace)))
            definitions: dict[str, list[Definition]] = {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd escapes were reported when the file was imported
                try:
                    tree = ast.parse(source)
                except (SyntaxError, ValueError, RecursionError):
                    tree = ast.Module([], [])
            for name, node in _definitions(tree):
                definitions.setdefault(name, []).append(node)
            self._files[filename] = source, definitions
        return self._files[filename]


def _definitions(tree: ast.AST) -> Iterator[tuple[str, Definition]]:
    """Every def and class with its qualified name, as Python forms it."""
    pending: list[tuple[ast.AST, str]] = [(tree, "")]
    while pending:
        parent, prefix = pending.pop()
        for node in ast.iter_child_nodes(parent):
            inner = prefix
            if isinstance(node, Definition):
                yield prefix + node.name, node
                inner += f"{node.name}." if isinstance(node, ast.ClassDef) else f"{node.name}.<locals>."
            pending.append((node, inner))


def _passage(source: str, node: Definition, namespace: Mapping[str, Any]) -> Passage:
    body = _Bare().visit(copy.deepcopy(node))
    if not isinstance(body, ast.ClassDef):  # its decorators and defaults are met as objects
        body.decorator_list = []
        body.args.defaults = []
        body.args.kw_defaults = [None for _ in body.args.kwonlyargs]
    outside = set(_outside(symtable.symtable(ast.unparse(body), "<passage>", "exec")))
    nodes = list(ast.walk(body))
    relative = [f"{'.' * n.level}{n.module or ''}" for n in nodes if isinstance(n, ast.ImportFrom)]
    absolute = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    return Passage(
        text=ast.get_source_segment(source, node) or "",
        decorators=tuple(ast.get_source_segment(source, d) or "" for d in _below_operator(node, namespace)),
        reads=tuple(sorted({chain for chain in _chains(body) if chain[0] in outside})),
        imports=tuple(relative + absolute),
    )


class _Bare(ast.NodeTransformer):
    """Drops annotations: what they name is not computed with."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _outside(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_global() and symbol.is_referenced():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _outside(inner)


def _chains(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """Every name that is read, with the attributes that follow it, longest first."""
    pending = [tree]
    while pending:
        node = pending.pop()
        chain: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            chain.insert(0, root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            yield (root.id, *chain)
        else:
            pending += ast.iter_child_nodes(node)


def _below_operator(node: Definition, namespace: Mapping[str, Any]) -> list[ast.expr]:
    marks = [n for n, d in enumerate(node.decorator_list) if _is_operator(d, namespace)]
    return node.decorator_list[marks[-1] + 1 :] if marks else node.decorator_list


def _is_operator(decorator: ast.expr, namespace: Mapping[str, Any]) -> bool:
    """`@tilegate.operator(...)` under whatever name. It is not part of the reference, but of the contract."""
    if not isinstance(decorator, ast.Call):
        return False
    root, *attributes = next(_chains(decorator.func), ("",))
    value: object = namespace.get(root)
    for attribute in attributes:
        value = getattr(value, attribute, None)
    if value is None:  # imported inside a function, say
        return [root, *attributes][-1] == "operator"
    return getattr(value, "__module__", "") == OPERATOR_MODULE and callable(value)
