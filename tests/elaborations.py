"""Many kernels elaborated in one sandbox: importing TileLang costs seconds, and once is enough for a test file."""

import os

from tilegate.build import jobs
from tilegate.build.closure import collect
from tilegate.records.canonical import digest_of
from tilegate.records.closure import Binding, Specialization
from tilegate.records.contract import Attribute, Contract, NonFinite, TensorSpec, Tolerance
from tilegate.rules.expansion import expand


def contract_of(inputs, outputs, *, dtypes=None, attributes=()):
    """Tensors are written as in a declaration: `{"x": ("T", "M", "N")}`, dtype first."""

    def specs(tensors):
        return tuple(
            TensorSpec(name=name, dtype=dtype, dims=tuple(dims)) for name, (dtype, *dims) in tensors.items()
        )

    return Contract(
        name="scaled",
        inputs=specs(inputs),
        outputs=specs(outputs),
        dtypes=dtypes or {},
        attributes=attributes,
        in_place=(),
        tolerance=Tolerance(),
        non_finite=NonFinite.EXCLUDED,
        values={},
        reference=digest_of(b"reference"),
    )


SCALED = contract_of(
    {"x": ("T", "M", "N")},
    {"y": ("T", "M", "N")},
    dtypes={"T": ("float32", "float16")},
    attributes=(Attribute(name="by", kind="float", default=2.0),),
)


def bound(factory, **how):
    """A binding of a factory to `SCALED`, with M open and everything else fixed, unless it is said otherwise."""
    usual = {"dynamic": ("M",), "specialize": {"N": (24,), "T": ("float32",)}}
    return Binding(
        operator="contracts:scaled", factory=factory, kernel=factory.rpartition(":")[2], **{**usual, **how}
    )


def closure_of(folder, binding):
    """The closure of a binding whose operator's module is empty: its contract is given."""
    (folder / "contracts.py").write_text("")
    return collect(binding, [folder])


def elaborate_all(folder, cases):
    """Elaborations, or compiler traces, of each specialization of each case, by the name of the case.

    Args:
        folder: holds the kernels' modules.
        cases: (contract, binding) by name.
    """
    asked = []
    sources = {}
    for name, (contract, binding) in cases.items():
        closure, files = closure_of(folder, binding)
        sources |= files
        asked += [(name, jobs.Asked(closure, contract, one)) for one in expand(binding, contract)]
    made = jobs.elaborate([one for _, one in asked], sources, parallel=os.cpu_count())
    found = {name: [] for name in cases}
    for (name, _), outcome in zip(asked, made, strict=True):
        found[name].append(outcome.elaboration if isinstance(outcome, jobs.Elaborated) else outcome)
    return found


__all__ = ["SCALED", "Specialization", "bound", "closure_of", "contract_of", "elaborate_all"]
