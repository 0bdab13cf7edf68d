"""The digest of a reference: its source, and what that reaches in its own package.

The digest is one of a graph. Its nodes are the functions and classes that the reference reaches, by their
text; its edges are the names that the text reads, and lead to nodes, constants, or names of other packages.
Nodes are numbered in the order that a walk from the reference meets them, edges sorted by name. So two graphs
have one digest exactly when they are the same graph: wherever the files lie, whatever the package is called,
in whatever order it was imported.

What stands in another package counts by name only: versions are the toolchain's business. What is looked up
by a computed name (`getattr`, `globals()`) or patched in from outside is not seen.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final, NoReturn

from tilegate.errors import ContractError
from tilegate.records.canonical import digest_of, encode
from tilegate.records.contract import Contract
from tilegate.runtime.passage import Passage, Reader

FORMAT = "tilegate.reference/1"

CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(...))

OF_THE_MODULE = frozenset({"__name__", "__file__", "__package__", "__spec__", "__loader__", "__builtins__"})
"""Say where the module is, not what it computes."""

UNDEFINED: Final = object()

Identity = list[Any]
"""JSON: what an edge leads to."""


def reference_digest(function: Callable[..., Any]) -> str:
    """Digest of a reference with what it reaches in its own top-level package; a module that is in none
    belongs together with the modules that lie in the same folder.

    Raises:
        ContractError: the source cannot be found, or something is reached that has no text of its own.
    """
    innermost = inspect.unwrap(function)
    if not isinstance(innermost, FunctionType):
        raise ContractError(
            f"{function!r} is no Python function",
            why="the digest of a reference is taken over its source",
            next_step="write the reference as a def",
        )
    walk = _Walk(home_of(innermost.__globals__))
    root = walk.identify(function, innermost.__qualname__)
    text = json.dumps([FORMAT, root, walk.nodes()], ensure_ascii=True, separators=(",", ":"))
    return digest_of(text.encode())


def module_name(namespace: Mapping[str, Any]) -> str:
    """The import name of a module, which `python -m` hides behind `__main__`."""
    name = str(namespace.get("__name__", ""))
    spec = namespace.get("__spec__") if name == "__main__" else None
    return str(spec.name) if spec is not None else name


def package_of(namespace: Mapping[str, Any]) -> str:
    return module_name(namespace).partition(".")[0]


def home_of(namespace: Mapping[str, Any]) -> str:
    """What tells own code from foreign: the top-level package, or the folder of a module that is in none.

    It is compared, and never enters a digest: a folder is where something lies, not what it computes.
    """
    name, file = module_name(namespace), namespace.get("__file__")
    if "." in name or "__path__" in namespace or not isinstance(file, str):
        return name.partition(".")[0]
    return str(Path(file).absolute().parent)


class _Walk:
    """One walk over the graph: numbers nodes as it meets them, and describes each once."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._reader = Reader()
        self._met: dict[int, int] = {}
        self._objects: list[FunctionType | type] = []
        self._open: set[int] = set()

    def nodes(self) -> list[Identity]:
        """All nodes, in the order met. Describing one may meet more."""
        described: list[Identity] = []
        while len(described) < len(self._objects):
            met = self._objects[len(described)]
            described.append(self._function(met) if isinstance(met, FunctionType) else self._class(met))
        return described

    def identify(self, value: object, name: str) -> Identity:
        """What an edge called `name` leads to."""
        kind = type(value)
        if kind in CONSTANTS:
            return ["constant", repr(value)]
        if (kind.__module__, kind.__name__) == ("torch", "dtype"):
            return ["torch", str(value)]
        for known in (self._container, self._operator, self._definition, self._binary, self._module):
            identity = known(value, name)
            if identity is not None:
                return identity
        return self._refuse(name, f"an object of {kind.__module__}.{kind.__qualname__}")

    def _container(self, value: object, name: str) -> Identity | None:
        kind = type(value)
        if kind not in (tuple, list, set, frozenset, dict, functools.partial):
            return None
        if id(value) in self._open:
            self._refuse(name, f"a {kind.__name__} that holds itself")
        self._open.add(id(value))
        parts: list[object] = []
        if isinstance(value, functools.partial):
            parts = [value.func, value.args, value.keywords]
        elif isinstance(value, dict):
            parts = [part for pair in value.items() for part in pair]
        elif isinstance(value, tuple | list | set | frozenset):
            parts = list(value)
        if isinstance(value, set | frozenset):
            if not all(type(part) in CONSTANTS for part in parts):
                self._refuse(name, f"a {kind.__name__} of something else than constants")
            parts.sort(key=repr)
        identity = [kind.__name__, *(self.identify(part, name) for part in parts)]
        self._open.remove(id(value))
        return identity

    def _operator(self, value: object, name: str) -> Identity | None:
        """Another operator: its reference, and what it declares. Told by its shape: operator.py imports us."""
        declared = getattr(value, "declared", None)
        if not isinstance(declared, Contract):
            return None
        return [
            "operator",
            digest_of(encode(declared)),
            self.identify(getattr(value, "reference", None), name),
        ]

    def _definition(self, value: object, name: str) -> Identity | None:
        """A def or class: a node where it is our package's, a name where it is another's."""
        if isinstance(value, MethodType):
            if not isinstance(value.__self__, type):
                self._refuse(name, "a method of an object")
            return ["method", self.identify(value.__self__, name), value.__name__]
        if not isinstance(value, FunctionType | type):
            return None
        namespace = _namespace(value)
        if home_of(namespace) == self._home:
            if value.__name__ == "<lambda>":
                self._refuse(name, "a lambda", "write it as a def")
            if isinstance(value, type) and "<locals>" in value.__qualname__:
                self._refuse(
                    name, "a class inside a function", "move the class to the top level of its module"
                )
            return ["node", self._number(value)]
        if isinstance(value, FunctionType) and hasattr(value, "__wrapped__"):
            if hasattr(value, "registry"):
                self._refuse(name, "a function that dispatches on types", "call the one that is meant")
            return ["wrapped", package_of(namespace), self.identify(value.__wrapped__, name)]
        qualname = value.__qualname__ if isinstance(value, type) else value.__code__.co_qualname
        return ["foreign", module_name(namespace) or value.__module__, qualname]

    def _binary(self, value: object, name: str) -> Identity | None:
        """A function without source: a name where it is another package's."""
        if isinstance(value, functools._lru_cache_wrapper):  # noqa: SLF001 - the type has no public name
            return ["cached", self.identify(value.__wrapped__, name)]
        owner: object = getattr(value, "__self__", None)
        if isinstance(value, BuiltinFunctionType) and not isinstance(owner, ModuleType | type | None):
            self._refuse(name, f"a method of an object of {type(owner).__qualname__}")
        if not isinstance(value, BuiltinFunctionType | MethodDescriptorType | WrapperDescriptorType):
            return None
        home = getattr(value, "__module__", None) or getattr(value, "__objclass__", type(None)).__module__
        if home.partition(".")[0] == self._home:
            self._refuse(name, "compiled code of the package itself", "call it from a package of its own")
        return ["foreign", home, value.__qualname__]

    def _module(self, value: object, name: str) -> Identity | None:
        if not isinstance(value, ModuleType):
            return None
        if home_of(vars(value)) == self._home:
            self._refuse(name, "a module of the package as a value", "read the attribute itself: module.name")
        return ["module", value.__name__]

    def _number(self, value: FunctionType | type) -> int:
        if id(value) not in self._met:
            self._met[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._met[id(value)]

    def _function(self, function: FunctionType) -> Identity:
        where = function.__code__.co_qualname
        passage = self._reader.function(function.__code__, function.__globals__)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        keywords = sorted((function.__kwdefaults__ or {}).items())
        return [
            "function",
            passage.text,
            passage.decorators,
            self._edges(passage, function.__globals__, cells, where),
            [self.identify(value, f"a default of {where}") for value in function.__defaults__ or ()],
            [(name, self.identify(value, f"default {name} of {where}")) for name, value in keywords],
        ]

    def _class(self, kind: type) -> Identity:
        passage = self._reader.class_(kind, _namespace(kind))
        return [
            "class",
            passage.text,
            passage.decorators,
            self._edges(passage, _namespace(kind), {}, kind.__qualname__),
        ]

    def _edges(
        self, passage: Passage, namespace: Mapping[str, Any], cells: Mapping[str, CellType], where: str
    ) -> list[tuple[str, Identity]]:
        for module in passage.imports:
            if _home_of_module(module.partition(".")[0]) in ("", self._home):
                mend = "import it at the top of the module"
                self._refuse(
                    f"{module} in {where}", "a module of the package, imported inside a function", mend
                )
        edges: dict[str, Identity] = {}
        for root, *attributes in passage.reads:
            if root in OF_THE_MODULE or (
                root not in cells and root not in namespace and hasattr(builtins, root)
            ):
                continue
            name, value = root, _look_up(root, namespace, cells)
            for attribute in attributes:
                if not isinstance(value, ModuleType) or home_of(vars(value)) != self._home:
                    break
                name, value = f"{name}.{attribute}", getattr(value, attribute, UNDEFINED)
            if name not in edges:
                edges[name] = (
                    ["undefined"] if value is UNDEFINED else self.identify(value, f"{name} in {where}")
                )
        return list(edges.items())

    def _refuse(self, name: str, what: str, mend: str = "") -> NoReturn:
        raise ContractError(
            f"the reference reaches {name}: {what}",
            why="evidence is bound to the reference's text and constants, and this is neither",
            next_step=mend or "make it an argument, or a constant at the top level of the module",
        )


def _home_of_module(name: str) -> str:
    """`home_of` for a top-level module that need not be imported yet. A relative import has no name."""
    spec = importlib.util.find_spec(name) if name else None
    if spec is None or spec.submodule_search_locations is not None or spec.origin is None:
        return name
    return str(Path(spec.origin).absolute().parent)


def _namespace(value: FunctionType | type) -> Mapping[str, Any]:
    """The globals of the module that a def or class was really written in: decorators copy `__module__`."""
    if isinstance(value, FunctionType):
        return value.__globals__
    module = sys.modules.get(value.__module__)
    return vars(module) if module is not None else {"__name__": value.__module__}


def _look_up(name: str, namespace: Mapping[str, Any], cells: Mapping[str, CellType]) -> object:
    if name not in cells:
        return namespace.get(name, UNDEFINED)
    try:
        return cells[name].cell_contents
    except ValueError:  # not assigned yet
        return UNDEFINED
