"""The test world: contracts, a compiler that takes milliseconds, evidence, releases; no TileLang.

The compiler is real gcc on the real launcher; only TileLang's two generated files are replaced by C written
here. So guard, loader, call sites and evaluation are the product's own.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import tvm_ffi

from tilegate.build.abi import abi_header
from tilegate.records.artifact import ABI, Elaboration, Manifest, TensorAbi
from tilegate.records.canonical import blob_of, digest_of, encode
from tilegate.records.closure import Specialization
from tilegate.records.contract import Contract, NonFinite, TensorSpec, Tolerance
from tilegate.records.isolation import Isolation, Level
from tilegate.records.policy import Policy
from tilegate.records.release import Candidate, Release
from tilegate.records.shape import Range, ShapeClass
from tilegate.records.target import DeviceClass, Target
from tilegate.records.toolchain import Toolchain
from tilegate.store.layout import write_layout

NO_DIGEST = "sha256:" + "0" * 64
TARGET = Target(backend="cpu", arch="x86-64-v2")
DEVICE = DeviceClass(backend="cpu", arch="x86-64-v2", model="test")
ISOLATION = Isolation(
    level=Level.FULL,
    network=False,
    own_pids=True,
    own_files=True,
    filtered=True,
    landlock=7,
    cgroup=False,
    uid=60600,
)
TOOLCHAIN = Toolchain(versions={"gcc": "test"})

HOST = """
#include <stdint.h>
#include <tvm/ffi/c_api.h>
static DLTensor *at(void *args, int i) { return (DLTensor *)((TVMFFIAny *)args)[i].v_ptr; }
int32_t __tvm_ffi_body(void *self, void *args, int32_t n, void *result) {
  (void)self; (void)n; (void)result;
"""
"""A host function in C: `at(args, i)` is the i-th tensor; the test writes the rest."""

SCALE = (
    HOST
    + """
  float *x = at(args, 0)->data, *y = at(args, 1)->data;
  for (int64_t i = 0; i < at(args, 0)->shape[0]; ++i) y[i] = FACTOR * x[i];
  return 0;
}
"""
)
"""y = FACTOR * x over one axis n: `scale_world`."""


def contract_of(
    inputs: Mapping[str, tuple[object, ...]],
    outputs: Mapping[str, tuple[object, ...]],
    *,
    name: str = "scale",
    dtype: str = "float32",
    in_place: tuple[str, ...] = (),
    non_finite: NonFinite = NonFinite.EXCLUDED,
    reference: str = NO_DIGEST,
    reduces: tuple[str, ...] = (),
) -> Contract:
    """A contract of one dtype: tensor name -> dims."""

    def specs(tensors: Mapping[str, tuple[object, ...]]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name=n, dtype=dtype, dims=dims) for n, dims in tensors.items())

    return Contract(
        name=name,
        inputs=specs(inputs),
        outputs=specs(outputs),
        dtypes={},
        attributes=(),
        in_place=in_place,
        tolerance=Tolerance(reduces=reduces),
        non_finite=non_finite,
        values={},
        reference=reference,
    )


SCALE_CONTRACT = contract_of({"x": ("n",)}, {"y": ("n",)})


def elaboration_of(
    contract: Contract,
    *,
    specialization: Specialization | None = None,
    tiles: Mapping[str, tuple[int, ...]] | None = None,
    kernel: str = "body",
) -> Elaboration:
    spec = specialization or Specialization()
    tensors = tuple(
        TensorAbi(
            name=t.name,
            dtype=contract.dtype_of(t, dict(spec.dtypes)),
            dims=tuple(spec.axes.get(d, d) if isinstance(d, str) else d for d in t.dims),
            written=any(o.name == t.name for o in contract.outputs),
            strided=t.strided,
        )
        for t in contract.arguments_given(spec.attributes)
    )
    symbols = tuple(dict.fromkeys(d for t in tensors for d in t.dims if isinstance(d, str)))
    return Elaboration(
        operator=contract.name,
        kernel=kernel,
        contract=contract.digest,
        closure=NO_DIGEST,
        specialization=spec,
        entry="body",
        tensors=tensors,
        symbols=symbols,
        tiles={s: tuple((tiles or {}).get(s, ())) for s in symbols},
        stages=(),
        pass_configs={},
        ir=NO_DIGEST,
    )


def artifact(
    elaboration: Elaboration, host: str, *defines: str, target: Target = TARGET
) -> tuple[Manifest, bytes]:
    """An artifact whose kernel is C. The identity is that of its text."""
    identity = hashlib.sha256(encode(elaboration) + host.encode() + "".join(defines).encode()).hexdigest()
    library = _compile(abi_header(elaboration, identity=identity, device_type=1), host, defines)
    manifest = Manifest(
        abi=ABI,
        elaboration=elaboration,
        target=target,
        toolchain=TOOLCHAIN,
        isolation=(ISOLATION,),
        identity=identity,
        library=blob_of(library),
    )
    return manifest, library


@functools.cache
def _compile(header: str, host: str, defines: tuple[str, ...]) -> bytes:
    launchers = resources.files("tilegate.build.launchers")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("guard.h", "cpu.c", "cpu.map"):
            (folder / file).write_bytes((launchers / file).read_bytes())
        (folder / "abi.h").write_text(header)
        (folder / "host.c").write_text(host)
        command = [
            "gcc", "-O1", "-fPIC", "-shared", "-nostartfiles", "-Wl,-z,defs", "-Wl,--version-script=cpu.map",
            f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}",
            *(f"-D{d}" for d in defines), "cpu.c", "host.c", "-o", "kernel.so",
        ]  # fmt: skip
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return (folder / "kernel.so").read_bytes()


def any_shape(symbols: Sequence[str], stop: int = 4096, *, alignment: int = 4) -> ShapeClass:
    return ShapeClass(axes={s: Range(start=0, stop=stop) for s in symbols}, alignment_bytes=alignment)


def candidate_of(manifest: Manifest, *classes: ShapeClass) -> Candidate:
    return Candidate(
        operator=manifest.operator,
        contract=manifest.elaboration.contract,
        kernel=manifest.elaboration.kernel,
        target=manifest.target,
        manifest=blob_of(encode(manifest)),
        library=manifest.library,
        evaluations=(),
        devices=(DEVICE,),
        classes=classes or (any_shape(manifest.symbols),),
    )


def release_of(
    contracts: Sequence[Contract],
    candidates: Sequence[Candidate],
    *,
    version: int = 1,
    policy: Policy | None = None,
) -> Release:
    return Release(
        version=version,
        policy=policy or Policy(),
        contracts=tuple(blob_of(encode(c)) for c in contracts),
        candidates=tuple(candidates),
    )


def write_release(
    root: Path,
    contract: Contract,
    artifacts: Sequence[tuple[Manifest, bytes]],
    *classes: ShapeClass,
    policy: Policy | None = None,
) -> Release:
    """A release folder of some artifacts of one operator, each with the same classes."""
    release = release_of([contract], [candidate_of(m, *classes) for m, _ in artifacts], policy=policy)
    blobs = {digest_of(data): data for data in (encode(contract), *(encode(m) for m, _ in artifacts))}
    blobs |= {digest_of(library): library for _, library in artifacts}
    write_layout(root, release, blobs)
    return release


class Part(NamedTuple):
    """One artifact of a release, with everything that the release lists of it."""

    contract: Contract
    manifest: Manifest
    library: bytes
    candidate: Candidate


def part(
    contract: Contract,
    host: str,
    *defines: str,
    specialization: Specialization | None = None,
    classes: Sequence[ShapeClass] = (),
    target: Target = TARGET,
    kernel: str = "body",
) -> Part:
    elaboration = elaboration_of(contract, specialization=specialization, kernel=kernel)
    manifest, library = artifact(elaboration, host, *defines, target=target)
    return Part(contract, manifest, library, candidate_of(manifest, *classes))


def write_parts(
    root: Path,
    *parts: Part,
    contracts: Sequence[Contract] = (),
    policy: Policy | None = None,
    version: int = 1,
) -> Release:
    """A release folder of parts of any operators; `contracts` are listed besides theirs."""
    listed = list(dict.fromkeys(encode(c) for c in (*contracts, *(p.contract for p in parts))))
    release = Release(
        version=version,
        policy=policy or Policy(),
        contracts=tuple(blob_of(data) for data in listed),
        candidates=tuple(p.candidate for p in parts),
    )
    contents = [*listed, *(encode(p.manifest) for p in parts), *(p.library for p in parts)]
    write_layout(root, release, {digest_of(data): data for data in contents})
    return release
