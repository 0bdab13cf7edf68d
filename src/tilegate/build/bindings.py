"""Which kernels a module binds, read from its text: nothing is imported before it was reviewed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from tilegate.build.closure import imported_from, parse
from tilegate.errors import BindingError, RecordError
from tilegate.records.canonical import encode
from tilegate.records.closure import Binding
from tilegate.rules.expansion import expand
from tilegate.rules.spelling import did_you_mean, misfit

__all__ = ["bindings_in", "expand"]

KEYWORDS = ("operator", "kernel", "dynamic", "specialize", "parameters", "constants", "backends")

REVIEWED = "a binding is reviewed before anything runs, so it is read from the text"
LITERAL = "write it out in literals: names, numbers, tuples, dicts; or in a [[kernel]] table of tilegate.toml"

KERNEL = "tilegate:kernel"

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)


def bindings_in(module: str, source: str | bytes, *, is_package: bool = False) -> tuple[Binding, ...]:
    """The bindings that `@tilegate.kernel` makes in a module, in source order.

    1. `tilegate.kernel` is followed through the module's imports, under whatever name.
    2. It is read where it decorates a function of the module itself; anywhere else it is refused, so that
       no kernel is overlooked.
    3. Its arguments are literals. The operator is a string, or a name that an import or a def binds.

    Raises:
        BindingError: names the line and the mend.
    """
    page = _Page(module, parse(source, where=module), is_package=is_package)
    decorators = {
        decorator: statement
        for statement in page.tree.body
        if isinstance(statement, ast.FunctionDef)
        for decorator in statement.decorator_list
        if isinstance(decorator, ast.Call)
    }
    calls = {decorator.func: decorator for decorator in decorators}
    found: dict[tuple[str, str], Binding] = {}
    for node in _uses(page):  # (1)
        if node not in calls:  # (2)
            page.wrong(
                node,
                "tilegate.kernel is used otherwise than as @tilegate.kernel(operator, ...)",
                "decorate a function at the top level of the module with it",
            )
        call = calls[node]
        binding = _binding(page, decorators[call], call)  # (3)
        if found.setdefault((binding.operator, binding.kernel), binding) is not binding:
            page.wrong(
                call,
                f"kernel {binding.kernel} of {binding.operator} is bound twice",
                'give one of the two a name of its own: kernel="..."',
            )
    return tuple(found.values())


class _Page:
    """One module as text, with what the names of its global scope stand for."""

    def __init__(self, module: str, tree: ast.Module, *, is_package: bool) -> None:
        self.module = module
        self.tree = tree
        self.is_package = is_package
        self.names: dict[str, set[str | None]] = {}
        pending: list[ast.AST] = list(tree.body)
        while pending:
            node = pending.pop()
            for name, meaning in _binds(module, node, is_package=is_package):
                self.names.setdefault(name, set()).add(meaning)
            if not isinstance(node, _SCOPES):
                pending += ast.iter_child_nodes(node)

    def own_names(self, function: ast.AST) -> set[str]:
        """Names that a function binds for itself, with those of the functions in it."""
        inner = (node for node in ast.walk(function) if node is not function)
        return {name for node in inner for name, _ in _binds(self.module, node, is_package=self.is_package)}

    def wrong(self, node: ast.expr, what: str, next_step: str, *, why: str = "") -> NoReturn:
        raise BindingError(what, where=f"{self.module}, line {node.lineno}", why=why, next_step=next_step)

    def stands_for(self, node: ast.expr) -> set[str | None]:
        """What `name` or `name.attribute...` stands for: `package.module:attribute`, None where computed."""
        root, chain = _chain(node)
        dotted = {m and m.replace(":", ".") for m in self.names.get(root, {None})}
        return {m and ":".join(".".join([m, *chain]).rsplit(".", 1)) for m in dotted}


def _binds(module: str, node: ast.AST, *, is_package: bool) -> Iterator[tuple[str, str | None]]:
    """(name, what it stands for) that one node binds in its own scope."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(node, ast.ImportFrom):
        origin = imported_from(module, node, is_package=is_package)
        for alias in node.names:
            yield alias.asname or alias.name, f"{origin}:{alias.name}"
    elif isinstance(node, ast.FunctionDef):
        yield node.name, f"{module}:{node.name}"
    elif isinstance(node, ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, None
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id, None
    elif isinstance(node, ast.arg):
        yield node.arg, None


def _chain(node: ast.expr) -> tuple[str, list[str]]:
    """`a.b.c` as (`a`, [`b`, `c`]); ("", []) for anything else."""
    chain: list[str] = []
    while isinstance(node, ast.Attribute):
        chain.append(node.attr)
        node = node.value
    return (node.id, chain[::-1]) if isinstance(node, ast.Name) else ("", [])


def _uses(page: _Page) -> list[ast.expr]:
    """Every expression that is `tilegate.kernel`, in source order. A function's own names hide the module's."""
    found: list[ast.expr] = []
    pending: list[tuple[ast.AST, frozenset[str]]] = [(page.tree, frozenset())]
    while pending:
        node, hidden = pending.pop()
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            known = _chain(node)[0] not in hidden and KERNEL in page.stands_for(node)
            found += [node] if known else []
        inside = hidden
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside = hidden | page.own_names(node)
        outside = getattr(node, "decorator_list", [])
        pending += [(n, hidden if n in outside else inside) for n in ast.iter_child_nodes(node)]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _binding(page: _Page, factory: ast.FunctionDef, call: ast.Call) -> Binding:
    given: dict[str, ast.expr] = {}
    for node in call.args[1:]:
        page.wrong(
            node,
            "tilegate.kernel takes one positional argument, the operator",
            "name the others: dynamic=(...), specialize={...}",
        )
    if call.args:
        given["operator"] = call.args[0]
    for keyword in call.keywords:
        if keyword.arg is None:
            page.wrong(keyword.value, "tilegate.kernel is given a ** argument", LITERAL, why=REVIEWED)
        if keyword.arg not in KEYWORDS or keyword.arg in given:
            page.wrong(
                keyword.value, f"unexpected argument {keyword.arg!r}", did_you_mean(keyword.arg, KEYWORDS)
            )
        given[keyword.arg] = keyword.value
    if "operator" not in given:
        page.wrong(
            call, "tilegate.kernel is given no operator", 'write @tilegate.kernel("package.module:function")'
        )
    operator = _operator(page, given.pop("operator"))
    fields = {word: _literal(page, word, node) for word, node in given.items()}
    kernel = fields.pop("kernel", None)
    made = {
        "operator": operator,
        "factory": f"{page.module}:{factory.name}",
        "kernel": factory.name if kernel is None else kernel,
    } | fields
    try:
        binding = msgspec.convert(made, Binding, strict=True)
        encode(binding)
    except (msgspec.ValidationError, RecordError) as error:
        page.wrong(call, *_misfit(factory.name, error))
    return binding


def _misfit(factory: str, error: msgspec.ValidationError | RecordError) -> tuple[str, str]:
    """A value of another kind than its argument asks for: what is wrong, and the mend."""
    told = None if isinstance(error, RecordError) else misfit(str(error))
    if told is None:
        why = error.why if isinstance(error, RecordError) else str(error).replace("`$.", "`")
        return f"the binding of {factory} cannot be meant: {why}", "names are identifiers, and numbers finite"
    what, word, wanted = told
    if word == "dynamic":
        return what.replace("a list", "a tuple"), 'write dynamic=("axis",)'
    return what, f"give {word} {wanted}"


def _operator(page: _Page, node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if not _FUNCTION.match(node.value):
            page.wrong(
                node,
                f"{node.value!r} does not name an operator",
                'write "package.module:function": where the operator is declared, as Python would import it',
            )
        return node.value
    meanings = page.stands_for(node)
    found = next(iter(meanings)) if len(meanings) == 1 else None
    if found is None or ":" not in found:
        text = ast.unparse(node)
        page.wrong(
            node,
            f"the text does not say which operator {text} is"
            + (": it is bound twice" if len(meanings) > 1 else ""),
            f'import {text} by name at the top of the module, or write "package.module:function"',
        )
    return found


def _literal(page: _Page, word: str, node: ast.expr) -> Any:
    """The value of a literal. One value of `specialize` may stand without its brackets."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Set):
            page.wrong(inner, f"{word} holds a set, which has no order", "write a tuple")
        if isinstance(inner, ast.Dict):
            keys = [k.value for k in inner.keys if isinstance(k, ast.Constant)]
            if len(set(keys)) < len(keys):
                page.wrong(inner, f"{word} has a key twice", "keep one of the two")
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        page.wrong(node, f"{word} is no literal: {ast.unparse(node)[:80]}", LITERAL, why=REVIEWED)
    if word == "specialize" and isinstance(value, dict):
        return {k: v if isinstance(v, list | tuple) else (v,) for k, v in value.items()}
    return value
