"""From a binding to the specializations that it asks for: one artifact each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, TypeVar

from tilegate.errors import BindingError
from tilegate.records.closure import Binding, Specialization
from tilegate.records.contract import Attribute, AttributeValue, Contract
from tilegate.records.shape import INT32_MAX
from tilegate.records.target import BACKENDS
from tilegate.rules.spelling import did_you_mean, value_fault

V = TypeVar("V")

MAX_SPECIALIZATIONS = 4096
"""Of one binding: beyond it the product is a slip, and would take days to build."""


def expand(binding: Binding, contract: Contract) -> tuple[Specialization, ...]:
    """The product of what a binding specializes, in the contract's order of words.

    1. Every word of the binding is one of the contract, and means one thing.
    2. Every axis is either dynamic or specialized.
    3. A dtype variable without values has all its alternatives; an attribute has its default.

    Raises:
        BindingError: names the word and the mend.
    """
    attributes = {a.name: a for a in contract.choices}
    words = (*contract.axes, *contract.dtypes, *attributes)
    _dynamic(binding, contract, words)  # (1)
    _known(binding, contract, words)
    axes = {axis: _extents(binding, axis) for axis in contract.axes if axis not in binding.dynamic}  # (2)
    dtypes = {v: _dtypes(binding, v, known) for v, known in contract.dtypes.items()}  # (3)
    fixed = {name: _values(binding, attribute) for name, attribute in attributes.items()}
    count = math.prod(len(v) for v in (*axes.values(), *dtypes.values(), *fixed.values()))
    if count > MAX_SPECIALIZATIONS:
        _wrong(
            binding,
            f"specialize asks for {count} artifacts",
            f"keep the product at {MAX_SPECIALIZATIONS} or less: make an axis dynamic",
        )
    return tuple(
        Specialization(axes=a, dtypes=d, attributes=f)
        for a in _product(axes)
        for d in _product(dtypes)
        for f in _product(fixed)
    )


def _product(choices: Mapping[str, Sequence[V]]) -> list[dict[str, V]]:
    return [dict(zip(choices, chosen, strict=True)) for chosen in itertools.product(*choices.values())]


def _dynamic(binding: Binding, contract: Contract, words: Sequence[str]) -> None:
    if len(set(binding.dynamic)) < len(binding.dynamic):
        _wrong(binding, "dynamic names an axis twice", "name each axis once")
    for axis in binding.dynamic:
        if axis in words and axis not in contract.axes:
            mend = (
                f'only axes can stay open at run time; fixed at build: specialize={{"{axis}": (value, ...)}}'
            )
            _wrong(binding, f"dynamic names {axis}, which is no axis", mend)
        if axis not in words:
            _wrong(binding, f"dynamic names the unknown axis {axis!r}", did_you_mean(axis, contract.axes))
        if axis in binding.specialize:
            _wrong(binding, f"axis {axis} is both dynamic and specialized", "keep one of the two")


def _known(binding: Binding, contract: Contract, words: Sequence[str]) -> None:
    for word in binding.specialize:
        if word not in words:
            _wrong(
                binding, f"specialize names {word!r}, which {contract.name} lacks", did_you_mean(word, words)
            )
    arguments = [tensor.name for tensor in contract.arguments]
    for parameter, word in binding.parameters.items():
        if word not in words and word not in arguments:
            near = did_you_mean(word, (*words, *arguments))
            _wrong(binding, f"parameters: {parameter} stands for {word!r}, which {contract.name} lacks", near)
        if parameter in binding.constants:
            _wrong(binding, f"{parameter} is in parameters and in constants", "keep one of the two")
    for backend in binding.backends:
        if backend not in BACKENDS:
            _wrong(binding, f"backends names {backend!r}", did_you_mean(backend, BACKENDS))
    for name in binding.constants:
        if name in words or name in arguments:
            mend = "the contract gives its value: fix it in specialize, or rename the factory's parameter"
            _wrong(binding, f"constants names {name}, a word of the contract", mend)


def _extents(binding: Binding, axis: str) -> tuple[int, ...]:
    if axis not in binding.specialize:
        _wrong(
            binding,
            f"axis {axis} is neither dynamic nor specialized",
            f'open at run time: dynamic=("{axis}",); fixed at build: specialize={{"{axis}": (extent, ...)}}',
        )
    values = _listed(binding, axis)
    extents = tuple(v for v in values if type(v) is int and 0 < v <= INT32_MAX)
    if len(extents) < len(values):
        _wrong(binding, f"axis {axis} is specialized to {_show(values)}", "give ints from 1 to 2^31 - 1")
    return extents


def _dtypes(binding: Binding, variable: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if variable not in binding.specialize:
        return known
    values = _listed(binding, variable)
    for value in values:
        if value not in known:
            _wrong(binding, f"{variable} is specialized to {value!r}", f"one of: {', '.join(known)}")
    return tuple(str(value) for value in values)


def _values(binding: Binding, attribute: Attribute) -> tuple[AttributeValue, ...]:
    name = attribute.name
    if name not in binding.specialize:
        if attribute.default is None:
            _wrong(
                binding,
                f"attribute {name} has no default and no values",
                f'fix it: specialize={{"{name}": (value, ...)}}',
            )
        return (attribute.default,)
    values = _listed(binding, name)
    for value in values:
        fault = value_fault(attribute.kind, value)
        if fault:
            _wrong(binding, f"attribute {name}: {fault}", f"give values of kind {attribute.kind}")
    return values


def _listed(binding: Binding, word: str) -> tuple[AttributeValue, ...]:
    values = binding.specialize[word]
    if not values:
        _wrong(binding, f"specialize lists no value of {word}", f"give one, or leave {word} out")
    if len(set(values)) < len(values):
        _wrong(binding, f"specialize lists a value of {word} twice: {_show(values)}", "list each once")
    return values


def _show(values: Iterable[object]) -> str:
    return ", ".join(map(repr, values))


def _wrong(binding: Binding, what: str, next_step: str) -> NoReturn:
    where = f"kernel {binding.kernel} ({binding.factory}) of {binding.operator}"
    raise BindingError(what, where=where, next_step=next_step)
