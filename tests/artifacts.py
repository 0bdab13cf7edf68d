"""Records of made-up artifacts and of what evaluating them gave, for the tests of rules and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tilegate.records.artifact import ABI, Elaboration, Manifest, TensorAbi
from tilegate.records.canonical import blob_of as blob
from tilegate.records.canonical import digest_of, encode
from tilegate.records.closure import Specialization
from tilegate.records.contract import Contract, NonFinite, TensorSpec, Tolerance, ValueRange
from tilegate.records.evaluation import EntryResult, EntryVerdict, Evaluation, Vouch
from tilegate.records.isolation import Isolation, Level
from tilegate.records.plan import Entry, Layout, Origin, Plan, Values, Workload
from tilegate.records.target import DeviceClass, Target
from tilegate.records.toolchain import Toolchain

ISOLATED = Isolation(
    level=Level.FULL,
    network=False,
    own_pids=True,
    own_files=True,
    filtered=True,
    landlock=7,
    cgroup=False,
    uid=60600,
)
XEON = DeviceClass(backend="cpu", arch="x86-64-v4", model="Xeon")

Judge = Callable[[Entry], EntryVerdict | None]
"""What an entry gives; None leaves it out."""


def contract_of(
    inputs: Mapping[str, tuple[str, ...]],
    outputs: Mapping[str, tuple[str, ...]],
    *,
    dtypes: Mapping[str, str] | None = None,
    values: dict[str, ValueRange] | None = None,
    non_finite: NonFinite = NonFinite.EXCLUDED,
) -> Contract:
    """A contract with tensors of `T` (float32 or float16), or of the dtype named for them."""

    def specs(tensors: Mapping[str, tuple[str, ...]]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name=n, dtype=(dtypes or {}).get(n, "T"), dims=d) for n, d in tensors.items())

    return Contract(
        name="made_up",
        inputs=specs(inputs),
        outputs=specs(outputs),
        dtypes={"T": ("float32", "float16")},
        attributes=(),
        in_place=(),
        tolerance=Tolerance(),
        non_finite=non_finite,
        values=values or {},
        reference=digest_of(b"reference"),
    )


def manifest_of(
    contract: Contract,
    tiles: Mapping[str, tuple[int, ...]],
    *,
    fixed: Mapping[str, int] | None = None,
    kernel: str = "tiled",
    isolation: tuple[Isolation, ...] = (ISOLATED,),
) -> Manifest:
    """An artifact of float32 whose symbols are the axes that are not fixed."""
    dtypes = {"T": "float32"}
    fixed = dict(fixed or {})
    tensors = tuple(
        TensorAbi(
            name=t.name,
            dtype=contract.dtype_of(t, dtypes),
            dims=tuple(fixed.get(d, d) if isinstance(d, str) else d for d in t.dims),
            written=t in contract.outputs,
        )
        for t in contract.arguments
    )
    elaboration = Elaboration(
        operator=contract.name,
        kernel=kernel,
        contract=contract.digest,
        closure=digest_of(b"closure"),
        specialization=Specialization(axes=fixed, dtypes=dtypes),
        entry="main",
        tensors=tensors,
        symbols=tuple(axis for axis in contract.axes if axis not in fixed),
        tiles=dict(tiles),
        stages=(),
        pass_configs={},
        ir=digest_of(b"ir"),
    )
    return Manifest(
        abi=ABI,
        elaboration=elaboration,
        target=Target(backend="cpu", arch="x86-64-v3"),
        toolchain=Toolchain(versions={"tilelang": "0.1.15"}),
        isolation=isolation,
        identity="identity",
        library=blob(kernel.encode()),
    )


def manifest_digest(manifest: Manifest) -> str:
    return digest_of(encode(manifest))


def entry_at(
    axes: Mapping[str, int],
    *,
    layout: Layout = Layout.ALIGNED,
    values: Values = Values.NORMAL,
    origin: Origin = Origin.BOUNDARY,
) -> Entry:
    workload = Workload(axes=dict(axes), dtypes={"T": "float32"})
    return Entry(workload=workload, layout=layout, values=values, origin=origin)


def plan_of(contract: Contract, manifest: Manifest, entries: Iterable[Entry], nonce: str = "nonce") -> Plan:
    return Plan(
        contract=contract.digest, manifest=manifest_digest(manifest), nonce=nonce, entries=tuple(entries)
    )


def evaluated(
    plan: Plan,
    manifest: Manifest,
    judge: Judge,
    *,
    device: DeviceClass = XEON,
    isolation: Isolation = ISOLATED,
) -> Evaluation:
    """What a device that gives these verdicts would record."""
    verdicts = [(index, judge(entry)) for index, entry in enumerate(plan.entries)]
    return Evaluation(
        contract=plan.contract,
        manifest=plan.manifest,
        library=manifest.library.digest,
        plan=plan.digest,
        device=device,
        versions={},
        isolation=isolation,
        vouch=Vouch.OBSERVED,
        results=tuple(EntryResult(index=i, verdict=v) for i, v in verdicts if v is not None),
    )


def wrong_where(faulty: Callable[[Mapping[str, int]], bool]) -> Judge:
    """A kernel that is wrong at some shapes, whatever the values."""
    return lambda entry: EntryVerdict.WRONG if faulty(entry.workload.axes) else EntryVerdict.PASSED


def explained(classes: Sequence[object]) -> list[str]:
    return [str(shape_class) for shape_class in classes]
