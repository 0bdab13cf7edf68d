"""The artifact: one immutable shared library, and the manifest that says what is in it."""

from __future__ import annotations

from tilegate.records.canonical import Blob, Digest, Document, Name, Record
from tilegate.records.closure import Specialization
from tilegate.records.device import DeviceKernel
from tilegate.records.isolation import Isolation
from tilegate.records.target import Target
from tilegate.records.toolchain import Toolchain

ABI = "tilegate-abi/1"
"""`int64 __tvm_ffi_tilegate_entry(tensor..., int64 table_address)`: docs/records.md."""


class TensorAbi(Record, frozen=True):
    """One tensor of the call, in call order. A dim is a symbol's name or a constant extent."""

    name: Name
    dtype: Name
    dims: tuple[int | Name, ...]
    written: bool
    strided: bool = False
    """May be a view: the last stride is 1, the others are read at each call."""


class Elaboration(Document, frozen=True, tag="tilegate.elaboration/1"):
    """What running the author's Python gave: IR as text, and the facts that the next job and plans need."""

    operator: Name
    kernel: Name
    contract: Digest
    closure: Digest
    specialization: Specialization
    entry: str
    """Global symbol of the PrimFunc."""
    tensors: tuple[TensorAbi, ...]
    symbols: tuple[Name, ...]
    """The variable axes, in order of first appearance."""
    tiles: dict[Name, tuple[int, ...]]
    """Divisors that the IR applies to each symbol: where tails can be."""
    stages: tuple[int, ...]
    """Pipeline depths that appear in the IR."""
    pass_configs: dict[str, bool | int | str]
    ir: Digest


class Manifest(Document, frozen=True, tag="tilegate.manifest/3"):
    """Beside every artifact: ABI, symbols, tiles, target, toolchain, isolation, digests of all inputs."""

    abi: str
    elaboration: Elaboration
    target: Target
    toolchain: Toolchain
    isolation: tuple[Isolation, ...]
    """Of the elaborate and the compile job."""
    identity: str
    """Compiled into the library and compared after loading: a wrong library is never called."""
    library: Blob
    kernels: tuple[DeviceKernel, ...] = ()
    """Of a target with a device binary: what each takes, how it is launched, registers and spills."""

    @property
    def operator(self) -> str:
        return self.elaboration.operator

    @property
    def symbols(self) -> tuple[str, ...]:
        return self.elaboration.symbols
