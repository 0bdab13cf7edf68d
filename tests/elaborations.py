"""Many kernels elaborated in one job: importing TileLang costs seconds, and once is enough for a test file.

The job runs the product's own `build.elaborate.work`, once for each kernel, in one process.
"""

import sys
from pathlib import Path

from tilegate.build import elaborate, jobs
from tilegate.build.closure import collect
from tilegate.build.requests import ElaborateRequest
from tilegate.records.artifact import Elaboration
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.closure import Binding, Specialization
from tilegate.records.contract import Attribute, Contract, NonFinite, TensorSpec, Tolerance
from tilegate.records.trace import Stage
from tilegate.rules.expansion import expand
from tilegate.sandbox import ELABORATE, Job, run_job
from tilegate.sandbox.importer import ClosureImporter


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
    asked = {}
    inputs = {}
    for name, (contract, binding) in cases.items():
        closure, sources = closure_of(folder, binding)
        specializations = expand(binding, contract)
        request = ElaborateRequest(
            contract=contract,
            closure=closure.digest,
            binding=binding,
            files=closure.files,
            specializations=specializations,
        )
        asked[name] = [(spec, jobs._subject(closure, contract, spec)) for spec in specializations]
        inputs[f"request.{name}"] = encode(request)
        inputs |= {f"source.{digest[7:39]}": data for digest, data in sources.items()}
    job = Job(task="elaborations:work", inputs=inputs, import_paths=(str(Path(__file__).parent),))
    result = run_job(job, ELABORATE)
    assert result.ending.value == "finished", (result.ending, result.code, result.output.decode())
    return {name: list(_answers(name, specs, result.frames)) for name, specs in asked.items()}


def _answers(name, asked, frames):
    found = [(frame, data) for frame, data in frames if frame in (f"{name}.elaboration", f"{name}.failure")]
    assert len(found) == len(asked), f"{name}: {len(found)} answers for {len(asked)} specializations"
    for (frame, data), (specialization, subject) in zip(found, asked, strict=True):
        if frame.endswith("failure"):
            yield jobs._told(data, Stage.ELABORATE, subject)
        else:
            made = decode(Elaboration, data, where=name)
            assert made.specialization == specialization
            yield made


def work(inputs, emit):
    """The task of the job."""
    sources = {name: data for name, data in inputs.items() if name.startswith("source.")}
    for name, request in inputs.items():
        if name.startswith("request."):
            case = name.removeprefix("request.")
            elaborate.work(
                {"request": request, **sources}, lambda frame, data, case=case: emit(f"{case}.{frame}", data)
            )
            forget()


def forget():
    """Two cases may hold modules of one name."""
    for module, loaded in list(sys.modules.items()):
        if (getattr(loaded, "__file__", None) or "").startswith("/closure/"):
            del sys.modules[module]
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, ClosureImporter)]


__all__ = ["SCALED", "Specialization", "bound", "closure_of", "contract_of", "elaborate_all"]
