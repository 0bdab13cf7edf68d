"""What a person reviews: source files by digest, and the binding that ties a kernel to its operator."""

from __future__ import annotations

from tilegate.records.canonical import Digest, Document, Name, Record, digest_of, encode
from tilegate.records.contract import AttributeValue


class SourceFile(Record, frozen=True):
    """One reviewed file. `module` is its dotted import name; `path` is relative, with forward slashes."""

    module: str
    path: str
    digest: Digest
    size: int
    is_package: bool = False


class Binding(Record, frozen=True):
    """One kernel of one operator: a factory, what is fixed at build, and what stays open at run time.

    A factory parameter is filled by name: an axis (an extent where specialized, a symbol where dynamic), a
    dtype variable, an attribute, or an entry of `constants`. `parameters` renames: factory name -> contract
    name. Dtype variables are specialized too; without an entry all their alternatives are built.
    """

    operator: str
    """`package.module:function` of the operator's declaration."""
    factory: str
    """`package.module:function`: a TileLang factory (lazy or eager jit, or returning a PrimFunc)."""
    kernel: Name
    """Name of this implementation, unique for the operator."""
    dynamic: tuple[Name, ...] = ()
    specialize: dict[Name, tuple[AttributeValue, ...]] = {}
    """Values per specialized axis, dtype variable or attribute; the product of all is built."""
    parameters: dict[Name, Name] = {}
    constants: dict[Name, AttributeValue] = {}
    backends: tuple[Name, ...] = ()
    """Kinds of target that it is written for, `cpu` or `cuda`; without any, it is built for all."""


class Closure(Document, frozen=True, tag="tilegate.closure/2"):
    """The files that the binding's modules reach statically, and the binding itself."""

    binding: Binding
    files: tuple[SourceFile, ...]
    """Sorted by module."""

    @property
    def digest(self) -> str:
        return digest_of(encode(self))


class Specialization(Record, frozen=True):
    """One point of a binding's product: what is fixed in one artifact."""

    axes: dict[Name, int] = {}
    dtypes: dict[Name, Name] = {}
    attributes: dict[Name, AttributeValue] = {}

    def __str__(self) -> str:
        parts = {**self.axes, **self.dtypes, **self.attributes}
        return ", ".join(f"{k}={v}" for k, v in parts.items()) or "generic"
