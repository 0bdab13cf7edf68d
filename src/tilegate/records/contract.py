"""The operator contract: what a kernel must compute, said without one.

Words: an *axis* is a named dimension; a *dtype variable* (`T`) stands for one of several dtypes and ties
the tensors that carry it together; an *attribute* is a non-tensor argument.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from tilegate.records.canonical import Digest, Document, Name, Record, digest_of, encode

DTYPES: dict[str, int] = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""Every dtype a contract may name, with its size in bytes."""

EPSILON: dict[str, float] = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
}  # fmt: skip
"""Spacing of the floating dtypes at 1 (IEEE 754; bfloat16 has 8 significant bits)."""

AttributeValue = bool | int | float | str


class TensorSpec(Record, frozen=True):
    """One tensor: `T[tokens, hidden]`. A dim is an axis name or a constant extent."""

    name: Name
    dtype: Name
    dims: tuple[int | Name, ...]
    strided: bool = False
    """An input that may be a view: any strides, but 1 in the last dim. Otherwise it is contiguous."""
    optional: bool = False
    """An input that may be None."""

    def __str__(self) -> str:
        words = [" strided"] * self.strided + [" optional"] * self.optional
        return f"{self.dtype}[{', '.join(str(d) for d in self.dims)}]{''.join(words)}"


class Attribute(Record, frozen=True):
    """A non-tensor argument. It is fixed in an artifact; another value is a miss."""

    name: Name
    kind: Annotated[str, Meta(pattern=r"\A(bool|int|float|str)\Z")]
    default: AttributeValue | None = None


class NonFinite(enum.Enum):
    """What the contract says of NaN and infinity in inputs."""

    EXCLUDED = "excluded"
    """Callers promise finite inputs; nothing is tested outside the promise."""
    PROPAGATED = "propagated"
    """NaN and infinity come out where the reference has them; every plan tests it."""


class Tolerance(Record, frozen=True):
    """How far an output element may lie from the reference computed in float64.

    Element i passes when, with L the product of the extents of `reduces` and scale the root mean square
    of the finite reference elements,

        |out[i] - ref[i]| <= factor * (eps(output dtype) + sqrt(L) * eps(accumulate)) * (|ref[i]| + scale)
                             + smallest normal number of the output dtype
                             + 4 * max |own - ref|, the largest error of the reference itself

    where `own` is what the reference gives in the tensors' own dtypes: inputs on which PyTorch loses digits
    may cost a kernel as many. (One run may be lucky. With hard values, the error that inputs off by their last
    bit cause counts instead where it is larger, up to 16 times as large.) An element also passes when it is that close to `own`: where PyTorch overflows,
    a kernel may. Otherwise NaN and infinity must stand exactly where the reference has them.

    sqrt(L) is the growth of rounding error in a sum of L terms under random signs (Higham and Mary, "A new
    approach to probabilistic rounding error analysis", 2019). Integers and booleans must be equal.
    """

    factor: float = 8.0
    accumulate: Name = "float32"
    reduces: tuple[Name, ...] = ()


class ValueRange(Record, frozen=True):
    """Values that callers promise for one input, both ends included."""

    low: float
    high: float


class Contract(Document, frozen=True, tag="tilegate.contract/1"):
    """Axes, dtypes, attributes, tolerance and the reference's source: evidence is bound to its digest."""

    name: Name
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dtypes: dict[Name, tuple[Name, ...]]
    """Alternatives of every dtype variable, in order of preference."""
    attributes: tuple[Attribute, ...]
    in_place: tuple[Name, ...]
    """Outputs that are the input of the same name, overwritten."""
    tolerance: Tolerance
    non_finite: NonFinite
    values: dict[Name, ValueRange]
    reference: Digest
    """Digest of the reference's source with what it reaches in its own package."""

    @property
    def digest(self) -> str:
        return digest_of(encode(self))

    @property
    def axes(self) -> tuple[str, ...]:
        """Axis names in order of first appearance, inputs before outputs."""
        seen: dict[str, None] = {}
        for tensor in (*self.inputs, *self.outputs):
            seen.update((dim, None) for dim in tensor.dims if isinstance(dim, str))
        return tuple(seen)

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        """What a kernel is called with: the inputs, then the outputs that are not in place."""
        return (*self.inputs, *(o for o in self.outputs if o.name not in self.in_place))

    @property
    def choices(self) -> tuple[Attribute, ...]:
        """The attributes, and for each optional input whether it is given: what an artifact fixes beside
        extents and dtypes.
        """
        given = (Attribute(name=t.name, kind="bool", default=False) for t in self.inputs if t.optional)
        return (*self.attributes, *given)

    def arguments_given(self, choices: Mapping[str, object]) -> tuple[TensorSpec, ...]:
        """`arguments` without the optional inputs that are not given."""
        return tuple(t for t in self.arguments if not t.optional or choices.get(t.name))

    def inputs_given(self, choices: Mapping[str, object]) -> tuple[TensorSpec, ...]:
        return tuple(t for t in self.inputs if not t.optional or choices.get(t.name))

    def dtype_of(self, tensor: TensorSpec, dtypes: dict[str, str]) -> str:
        """The concrete dtype of a tensor under an assignment of the dtype variables."""
        return dtypes.get(tensor.dtype, tensor.dtype)
