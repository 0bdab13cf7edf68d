"""The operator: a function that stays plain PyTorch until a release is attached to it."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, Self, TypeVar

import msgspec

from tilegate.errors import ContractError
from tilegate.records.contract import AttributeValue, Contract, NonFinite, Tolerance
from tilegate.records.declaration import Declaration
from tilegate.records.miss import Miss, MissReason
from tilegate.records.plan import Workload
from tilegate.rules.declaration import REQUIRED, Parameter, declare
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.reference import module_name, reference_digest

F = TypeVar("F", bound=Callable[..., Any])

UNREAD = "sha256:" + "0" * 64
"""Stands for the reference's digest while its module is still being imported."""


class Operator:
    """What `tilegate.operator` makes of a function. A call goes to the reference, or to a call site.

    Each operator has a class of its own, so that `__call__` can be its call site, with nothing between: a
    forwarded call packs its arguments and unpacks them again. Only the class can hold it: Python looks
    nowhere else, and torch.compile accepts nothing there but a function.

    The declaration is read when the module is imported, so that a mistake is told there. The contract has to
    wait: its reference may reach functions that stand further down in the module.
    """

    __slots__ = ("__dict__", "__weakref__", "_call", "_explain", "declared", "name", "opaque", "origin",
                 "reference", "served", "strict")  # fmt: skip

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        return object.__new__(type(cls.__name__, (cls,), {"__slots__": (), "__module__": cls.__module__}))

    def __init__(
        self,
        reference: FunctionType,
        declared: Contract,
        served: tuple[Workload, ...],
        *,
        strict: bool = False,
        opaque: bool = True,
    ) -> None:
        self.reference = reference
        self.declared = declared
        """The contract with `UNREAD` in place of the reference's digest."""
        self.name = declared.name
        self.origin = f"{module_name(reference.__globals__)}:{reference.__qualname__}"
        self.served = served
        self.strict = strict
        self.opaque = opaque
        self._call: Callable[..., Any] = reference
        self._explain: Callable[..., Explanation] = self._no_release
        functools.update_wrapper(self, reference)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Who would answer this call, and why nobody nearer. Runs the real guard; counts nothing."""
        return self._explain(*args, **kwargs)

    def _no_release(self, *_args: Any, **_kwargs: Any) -> Explanation:
        return Explanation(operator=self.name, kernel=None, misses=(Miss(reason=MissReason.NO_RELEASE),))

    def contract(self) -> Contract:
        """The contract, with the reference as its source stands now.

        Raises:
            ContractError: the reference reaches what has no digest.
        """
        return msgspec.structs.replace(self.declared, reference=reference_digest(self.reference))

    def declaration(self) -> Declaration:
        """What the commands learn of this operator."""
        return Declaration(operator=self.origin, contract=self.contract(), served=self.served)

    def attach(
        self, call: Callable[..., Any], explain: Callable[..., Explanation] | None = None
    ) -> Callable[[], None]:
        """Let `call` answer from now on: as a method of this operator's class, where it has that form too
        (`call.as_method`). Returns an undo, which does nothing once another call is attached.
        """
        self._call = call
        self._explain = explain or self._no_release
        own: Any = type(self)
        own.__call__ = _as_method(call)

        def undo() -> None:
            if self._call is call:
                self.detach()

        return undo

    def detach(self) -> None:
        """Plain PyTorch again."""
        self.attach(self.reference)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as a function does, so that an operator may stand in a class."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        """Copied and pickled by name, as functions are: there is one of each operator."""
        return str(self.reference.__qualname__)

    def __repr__(self) -> str:
        return f"<tilegate operator {self.name} ({self.origin})>"


def _as_method(call: Callable[..., Any]) -> Callable[..., Any]:
    """What stands as `__call__`. A wrapper around a call site carries its attributes, and must not be lost."""
    method: Any = getattr(call, "as_method", None)
    return method if getattr(method, "site", None) is call else Operator.__call__


OPERATORS: dict[str, Operator] = {}
"""Every operator declared in this process, by name. Written under a lock; read it through `operators()`."""

on_register: list[Callable[[Operator], None]] = []
"""Called with each operator that is declared from now on: a release in use attaches itself to it."""

_REGISTERING = threading.Lock()


def operators() -> tuple[Operator, ...]:
    with _REGISTERING:
        return tuple(OPERATORS.values())


def register(operator: Operator) -> None:
    """Add an operator to this process. One from the same place replaces its predecessor (a reload).

    Raises:
        ContractError: another place declares the name.
    """
    with _REGISTERING:
        known = OPERATORS.get(operator.name)
        if known is not None and known.origin != operator.origin:
            raise ContractError(
                f"operator {operator.name} is declared twice",
                where=f"{known.origin} ({_place(known)}) and {operator.origin} ({_place(operator)})",
                why="a release knows operators by name",
                next_step='give one of them another name: @tilegate.operator(name="...", ...)',
            )
        OPERATORS[operator.name] = operator
        hooks = tuple(on_register)
    for hook in hooks:
        hook(operator)


def operator(
    *,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    dtypes: Mapping[str, Sequence[str]] | None = None,
    attributes: Mapping[str, type] | None = None,
    tolerance: Tolerance | None = None,
    non_finite: NonFinite | str = NonFinite.EXCLUDED,
    values: Mapping[str, tuple[float, float]] | None = None,
    in_place: Sequence[str] = (),
    served: Sequence[Mapping[str, AttributeValue]] = (),
    strict: bool = False,
    opaque: bool = True,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Operator]:
    """Declare the PyTorch function below as the reference of an operator.

    Args:
        inputs: tensors among the parameters, as `"T[tokens, hidden]"`: a dtype or dtype variable, and dims
            that are axis names or constant extents.
        outputs: what the function returns, in order, likewise.
        dtypes: alternatives of each dtype variable, the preferred one first.
        attributes: kind (`bool`, `int`, `float`, `str`) of every other parameter.
        tolerance: how far a kernel may lie from the reference; name the axes that are summed over.
        non_finite: "excluded" where callers promise finite inputs, "propagated" where NaN and infinity come
            out as the reference has them.
        values: (low, high) that callers promise for an input.
        in_place: names that are input and output at once.
        served: workloads that matter: extents, and dtypes and attributes where not the first or default.
        strict: raise `GuardMiss` where no tested binary stands, in place of running the reference.
        opaque: under torch.compile, stand in the graph as one operator that may run tested binaries; otherwise
            the graph holds the reference, which a compiler can fuse with its neighbours.
        name: of the operator, if not the function's.

    Raises:
        ContractError: the declaration contradicts itself or the function.
    """

    def decorate(function: Callable[..., Any]) -> Operator:
        if not isinstance(function, FunctionType):
            raise ContractError(
                f"{function!r} is no Python function",
                why="an operator's reference is a def: its source is part of the contract",
                next_step="put @tilegate.operator on top of a def",
            )
        contract, workloads = declare(
            function.__name__ if name is None else name,
            _parameters(function),
            inputs=inputs,
            outputs=outputs,
            dtypes=dtypes or {},
            attributes=attributes or {},
            tolerance=tolerance or Tolerance(),
            non_finite=non_finite,
            values=values or {},
            in_place=in_place,
            served=served,
            reference=UNREAD,
        )
        made = Operator(function, contract, workloads, strict=strict, opaque=opaque)
        register(made)
        return made

    return decorate


def kernel(
    operator: Operator | str,
    *,
    kernel: str | None = None,
    dynamic: Sequence[str] = (),
    specialize: Mapping[str, AttributeValue | Sequence[AttributeValue]] | None = None,
    parameters: Mapping[str, str] | None = None,
    constants: Mapping[str, AttributeValue] | None = None,
    backends: Sequence[str] = (),
) -> Callable[[F], F]:
    """Bind the TileLang factory below to an operator. The factory itself is returned unchanged.

    The binding is read from the module's text, before anything runs: write its arguments out as literals.

    Args:
        operator: the operator, imported by name, or "package.module:function".
        kernel: name of this implementation, if not the factory's.
        dynamic: axes that stay open at run time.
        specialize: values of the other axes, and of dtype variables and attributes; the product is built.
        parameters: factory parameter -> the axis, dtype variable, attribute or tensor that it stands for.
        constants: values of factory parameters that the contract knows nothing of.
        backends: kinds of target that the factory is written for ("cpu", "cuda"); without any, all.
    """
    del operator, kernel, dynamic, specialize, parameters, constants, backends

    def unchanged(factory: F) -> F:
        return factory

    return unchanged


def _parameters(function: FunctionType) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            p.name,
            REQUIRED if p.default is p.empty else p.default,
            variadic=p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD),
        )
        for p in inspect.signature(function).parameters.values()
    )


def _place(operator: Operator) -> str:
    code = operator.reference.__code__
    return f"{code.co_filename}, line {code.co_firstlineno}"
