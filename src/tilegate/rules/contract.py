"""What every contract must be in itself: a call alone decides all its axes, dtypes and outputs."""

from __future__ import annotations

from tilegate.records.contract import DTYPES, Contract
from tilegate.rules.spelling import did_you_mean, nearest, wrong


def coherent(where: str, contract: Contract) -> None:
    """Nothing in the contract contradicts, or is left open by, another part of it.

    1. Every dtype is known; every dtype variable is decided by an input.
    2. Every axis of an output is decided by an input; what is in place is one tensor.
    3. No word means two things; tolerance and promised values speak of what is there.

    Raises:
        ContractError: names the part and the mend.
    """
    _dtypes(where, contract)  # (1)
    _outputs(where, contract)  # (2)
    _in_place(where, contract)
    _words(where, contract)  # (3)
    _references(where, contract)
    _views(where, contract)


def _views(where: str, contract: Contract) -> None:
    """Outputs are allocated by us; what is optional decides nothing that a call needs."""
    for tensor in contract.outputs:
        if tensor.strided or tensor.optional:
            wrong(where, f"output {tensor.name} is {tensor}", "only inputs may be strided or optional")
    for tensor in contract.inputs:
        if tensor.strided and not tensor.dims:
            wrong(where, f"strided input {tensor.name} has no dims", "remove `strided`")


def _dtypes(where: str, contract: Contract) -> None:
    used: dict[str, bool] = {}
    required = [tensor for tensor in contract.inputs if not tensor.optional]
    for tensor in (*contract.inputs, *contract.outputs):
        if tensor.dtype not in DTYPES and tensor.dtype not in contract.dtypes:
            variable = f'a dtype variable has alternatives: dtypes={{"{tensor.dtype}": ("float32",)}}'
            wrong(
                where,
                f"tensor {tensor.name} has the unknown dtype {tensor.dtype!r}",
                nearest(tensor.dtype, (*DTYPES, *contract.dtypes)) or variable,
            )
        used[tensor.dtype] = used.get(tensor.dtype, False) or tensor in required
    for variable in contract.dtypes:
        if variable not in used:
            wrong(
                where, f"dtype variable {variable} is used by no tensor", "use it, or remove it from dtypes"
            )
        if not used[variable]:
            wrong(
                where,
                f"dtype variable {variable} is carried by outputs only",
                "give an input this dtype, or write the output's dtype out: a call must decide it",
            )


def _outputs(where: str, contract: Contract) -> None:
    if not contract.outputs:
        wrong(where, "there are no outputs", 'declare at least one: outputs={"y": "T[tokens]"}')
    required = [tensor for tensor in contract.inputs if not tensor.optional]
    if not required:
        wrong(where, "every input is optional", "declare one that is always given: its device decides")
    axes = [dim for tensor in required for dim in tensor.dims if isinstance(dim, str)]
    for tensor in contract.inputs:
        for dim in tensor.dims:
            if isinstance(dim, str) and dim not in axes:
                mend = "give an input that is always there this axis, or write a constant extent"
                wrong(where, f"only optional inputs have the axis {dim!r}", mend)
    for tensor in contract.outputs:
        for dim in tensor.dims:
            if isinstance(dim, str) and dim not in axes:
                wrong(
                    where,
                    f"output {tensor.name}: no input has its axis {dim!r}",
                    "a call must decide it: give an input this axis, or write a constant extent; "
                    + did_you_mean(dim, dict.fromkeys(axes)),
                )


def _in_place(where: str, contract: Contract) -> None:
    given = {tensor.name: tensor for tensor in contract.inputs}
    for tensor in contract.outputs:
        if tensor.name in given and tensor.name not in contract.in_place:
            wrong(
                where,
                f"output {tensor.name} has the name of an input",
                f'overwritten: in_place=("{tensor.name}",); otherwise give the output a name of its own',
            )
        if tensor.name in given and given[tensor.name] != tensor:
            wrong(
                where,
                f"{tensor.name} is in place, but is {given[tensor.name]} as input and {tensor} as output",
                "declare both alike: they are one tensor",
            )
    for name in contract.in_place:
        if name not in given or name not in {tensor.name for tensor in contract.outputs}:
            wrong(
                where,
                f"in_place names {name!r}, which is not both an input and an output",
                f'declare it as both, alike: inputs={{"{name}": spec}}, outputs={{"{name}": spec}}',
            )


def _words(where: str, contract: Contract) -> None:
    """Axes, dtype variables and attributes fill a factory's parameters by name: they share one namespace."""
    attributes = [a.name for a in contract.attributes]
    words = [*contract.axes, *contract.dtypes, *attributes]
    for word in words:
        if words.count(word) > 1 or word in DTYPES:
            wrong(
                where,
                f"{word!r} names two things",
                "give axes, dtype variables and attributes names of their own",
            )
    for tensor in contract.outputs:
        if tensor.name in attributes:
            wrong(
                where,
                f"output {tensor.name} has the name of an attribute",
                "give the output a name of its own",
            )


def _references(where: str, contract: Contract) -> None:
    for axis in contract.tolerance.reduces:
        if axis not in contract.axes:
            wrong(
                where, f"tolerance.reduces names the unknown axis {axis!r}", did_you_mean(axis, contract.axes)
            )
    inputs = [tensor.name for tensor in contract.inputs]
    for name in contract.values:
        if name not in inputs:
            wrong(where, f"values names {name!r}, which is no input", did_you_mean(name, inputs))
