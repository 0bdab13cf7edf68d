"""From what an author writes above a reference to a contract, or to the sentence that says how to mend it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tilegate.records.contract import (
    DTYPES,
    EPSILON,
    Attribute,
    AttributeValue,
    Contract,
    NonFinite,
    TensorSpec,
    Tolerance,
    ValueRange,
)
from tilegate.records.plan import Workload
from tilegate.records.shape import INT32_MAX
from tilegate.rules.contract import coherent
from tilegate.rules.spelling import KINDS, NAME, did_you_mean, identifier, name_tuple, value_fault, wrong

REQUIRED: Final = object()
"""Stands for "no default", so that a default of None can be told apart (and refused)."""

_TENSOR = re.compile(r"\s*([A-Za-z_][\w.]*)\s*\[(.*)\]((?: +(?:strided|optional))*)\s*\Z", re.ASCII)


class Parameter(NamedTuple):
    """One parameter of the reference's signature, as plain data."""

    name: str
    default: object = REQUIRED
    variadic: bool = False
    """True for `*args` and `**kwargs`."""


def parse_tensor(name: str, text: object, *, of: str = "") -> TensorSpec:
    """`T[tokens, hidden]`, `float32[n, 64]`, or `float32[]` for a scalar tensor; behind it `strided` and
    `optional`, where an input may be a view or None.

    Args:
        name: of the tensor.
        text: as above.
        of: what declares it, for errors.

    Raises:
        ContractError: the text is not of that form.
    """
    where = f"{of}, tensor {name}" if of else f"tensor {name}"
    form = 'write a dtype and its dims in square brackets: "T[tokens, hidden]", "float32[n, 64]"'
    identifier(where, "a tensor", name)
    match = _TENSOR.match(text) if isinstance(text, str) else None
    if match is None:
        wrong(where, f"{text!r} does not describe a tensor", form)
    dtype, inside = match[1], match[2].strip()
    dims = tuple(_dim(where, piece.strip()) for piece in inside.split(",")) if inside else ()
    words = match[3].split()
    return TensorSpec(
        name=name, dtype=dtype, dims=dims, strided="strided" in words, optional="optional" in words
    )


def declare(
    name: str,
    parameters: Sequence[Parameter],
    *,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    dtypes: Mapping[str, Sequence[str]],
    attributes: Mapping[str, type],
    tolerance: Tolerance,
    non_finite: NonFinite | str,
    values: Mapping[str, tuple[float, float]],
    in_place: Sequence[str],
    served: Sequence[Mapping[str, AttributeValue]],
    reference: str,
) -> tuple[Contract, tuple[Workload, ...]]:
    """The contract of one operator, and the workloads that its author serves.

    `parameters` is the reference's signature, in order: it gives the order of inputs and attributes.
    `reference` is the reference's digest. The others are what `tilegate.operator` takes.

    Raises:
        ContractError: the declaration contradicts itself or the signature; it says how to mend it.
    """
    where = f"operator {name}"
    identifier(where, "an operator", name)
    for given in (inputs, outputs, dtypes, attributes, values):
        if not isinstance(given, Mapping):
            wrong(where, f"{given!r} is no mapping", "write {name: ...} with a line for each name")
    _signature(where, parameters, inputs, attributes)
    contract = Contract(
        name=name,
        inputs=tuple(parse_tensor(p.name, inputs[p.name], of=where) for p in parameters if p.name in inputs),
        outputs=tuple(parse_tensor(n, text, of=where) for n, text in outputs.items()),
        dtypes={n: _alternatives(where, n, names) for n, names in dtypes.items()},
        attributes=tuple(
            _attribute(where, p, attributes[p.name]) for p in parameters if p.name in attributes
        ),
        in_place=name_tuple(where, "in_place", in_place),
        tolerance=_tolerance(where, tolerance),
        non_finite=_non_finite(where, non_finite),
        values={n: _range(where, n, pair) for n, pair in values.items()},
        reference=reference,
    )
    coherent(where, contract)
    workloads = [_workload(where, contract, line) for line in served]
    return contract, tuple(w for n, w in enumerate(workloads) if w not in workloads[:n])


def _dim(where: str, text: str) -> int | str:
    if NAME.match(text):
        return text
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= INT32_MAX):
        wrong(
            where,
            f"dim {text!r} is neither an axis name nor a constant extent",
            "name an axis (`tokens`) or write a positive number; a computed extent gets an axis of its own",
        )
    return int(text)


def _signature(
    where: str, parameters: Sequence[Parameter], inputs: Mapping[str, str], attributes: Mapping[str, type]
) -> None:
    """Every parameter is an input or an attribute, and the other way round."""
    known = [p.name for p in parameters]
    for word in (*inputs, *attributes):
        if word not in known:
            wrong(
                where,
                f"{word} is declared, but is no parameter of the reference",
                did_you_mean(str(word), known),
            )
    for p in parameters:
        if p.variadic:
            wrong(
                where,
                f"parameter {p.name} takes any number of arguments",
                "name each argument: a kernel has a fixed list of tensors",
            )
        if p.name in inputs and p.name in attributes:
            wrong(where, f"{p.name} is declared as an input and as an attribute", "keep one of the two")
        if p.name not in inputs and p.name not in attributes:
            wrong(
                where,
                f"parameter {p.name} is not declared",
                f'a tensor: inputs={{"{p.name}": "T[...]"}}; another value: attributes={{"{p.name}": float}}',
            )
        if p.name in inputs:
            _tensor_default(where, p, str(inputs[p.name]))
    if not inputs:
        wrong(where, "there are no inputs", "declare at least one: its device decides where the kernel runs")


def _tensor_default(where: str, parameter: Parameter, text: str) -> None:
    optional = "optional" in text.rpartition("]")[2].split()
    if optional and parameter.default is not None:
        wrong(
            where, f"optional input {parameter.name} has no default of None", f"write {parameter.name}=None"
        )
    if not optional and parameter.default is not REQUIRED:
        wrong(
            where,
            f"input {parameter.name} has a default",
            f'remove it, or declare the tensor optional: "{text} optional"',
        )


def _alternatives(where: str, name: str, given: Sequence[str]) -> tuple[str, ...]:
    identifier(where, "a dtype variable", name)
    if name in DTYPES:
        wrong(where, f"dtype variable {name} has the name of a dtype", 'name it otherwise: dtypes={"T": ...}')
    names = name_tuple(where, f"dtypes[{name!r}]", given)
    if not names:
        wrong(where, f"dtype variable {name} has no alternatives", f'write dtypes={{"{name}": ("float32",)}}')
    for dtype in names:
        if dtype not in DTYPES:
            wrong(where, f"{name}: unknown dtype {dtype!r}", did_you_mean(str(dtype), DTYPES))
    return names


def _attribute(where: str, parameter: Parameter, kind: type) -> Attribute:
    name = parameter.name
    identifier(where, "an attribute", name)
    if not isinstance(kind, type) or kind not in KINDS:
        wrong(
            where,
            f"attribute {name} is of unsupported kind {getattr(kind, '__name__', kind)!r}",
            f"use one of {', '.join(KINDS.values())}; a tensor belongs into inputs",
        )
    if parameter.default is REQUIRED:
        return Attribute(name=name, kind=KINDS[kind])
    fault = value_fault(KINDS[kind], parameter.default)
    if fault:
        wrong(where, f"attribute {name}: its default {fault}", "change the default or the declared kind")
    default: Any = parameter.default
    return Attribute(name=name, kind=KINDS[kind], default=default)


def _tolerance(where: str, given: Tolerance) -> Tolerance:
    if not isinstance(given, Tolerance):
        wrong(where, f"tolerance is {given!r}", 'write tolerance=tilegate.Tolerance(reduces=("hidden",))')
    reduces = name_tuple(where, "tolerance.reduces", given.reduces)
    if not _finite(given.factor) or given.factor <= 0:
        wrong(where, f"tolerance.factor is {given.factor!r}", "give a positive number; the default is 8.0")
    if given.accumulate not in EPSILON:
        wrong(
            where,
            f"tolerance.accumulate is {given.accumulate!r}",
            did_you_mean(str(given.accumulate), EPSILON),
        )
    return Tolerance(factor=float(given.factor), accumulate=given.accumulate, reduces=reduces)


def _non_finite(where: str, given: NonFinite | str) -> NonFinite:
    try:
        return NonFinite(given)
    except ValueError:
        wrong(
            where,
            f"non_finite is {given!r}",
            'write "excluded" (callers promise finite inputs) or "propagated"',
        )


def _range(where: str, name: str, pair: object) -> ValueRange:
    numbers = list(pair) if isinstance(pair, Sequence) and not isinstance(pair, str) else []
    if len(numbers) != 2 or not all(_finite(n) for n in numbers):  # noqa: PLR2004 - low and high
        wrong(
            where,
            f"values[{name!r}] is {pair!r}",
            f'write two finite numbers: values={{"{name}": (-1.0, 1.0)}}',
        )
    low, high = (float(n) for n in numbers)
    if low > high:
        wrong(where, f"values[{name!r}]: low {low} lies above high {high}", f"write ({high}, {low})")
    return ValueRange(low=low, high=high)


def _finite(number: object) -> bool:
    return (type(number) is int or type(number) is float) and abs(number) <= sys.float_info.max


def _workload(where: str, contract: Contract, line: Mapping[str, AttributeValue]) -> Workload:
    """One served workload: a missing dtype is the first alternative, a missing attribute its default."""
    if not isinstance(line, Mapping):
        wrong(where, f"served workload {line!r} is no mapping", 'write served=[{"tokens": 512}]')
    where = f"{where}, served {dict(line)!r}"
    known = (*contract.axes, *contract.dtypes, *(a.name for a in contract.choices))
    for word in line:
        if word not in known:
            wrong(where, f"unknown word {word!r}", did_you_mean(str(word), known))
    return Workload(
        axes={axis: _extent(where, axis, line) for axis in contract.axes},
        dtypes={t: _dtype(where, t, names, line) for t, names in contract.dtypes.items()},
        attributes={a.name: _value(where, a, line) for a in contract.choices},
    )


def _extent(where: str, axis: str, line: Mapping[str, AttributeValue]) -> int:
    if axis not in line:
        wrong(where, f"axis {axis} is missing", f'add "{axis}": extent')
    extent = line[axis]
    if type(extent) is not int or not 0 <= extent <= INT32_MAX:
        wrong(where, f"axis {axis} is {extent!r}", "give an int from 0 to 2^31 - 1")
    return extent


def _dtype(where: str, variable: str, names: tuple[str, ...], line: Mapping[str, AttributeValue]) -> str:
    dtype = str(line.get(variable, names[0]))
    if dtype not in names:
        wrong(
            where,
            f"{variable} is {dtype!r}, which is none of its alternatives",
            f"one of: {', '.join(names)}",
        )
    return dtype


def _value(where: str, attribute: Attribute, line: Mapping[str, AttributeValue]) -> AttributeValue:
    value = line.get(attribute.name, attribute.default)
    if value is None:
        wrong(
            where,
            f"attribute {attribute.name} is missing and has no default",
            f'add "{attribute.name}": value',
        )
    fault = value_fault(attribute.kind, value)
    if fault:
        wrong(where, f"attribute {attribute.name}: {fault}", f"give a value of kind {attribute.kind}")
    return value
