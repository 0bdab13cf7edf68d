"""A device kernel as the launcher must know it: what it is given, how it is launched, what it takes."""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta

from tilegate.records.canonical import Record

Symbol = Annotated[str, Meta(pattern=r"\A[A-Za-z_$][A-Za-z0-9_$]{0,254}\Z")]
"""A kernel's name in the device binary."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Extent = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class ArgumentKind(enum.Enum):
    """One parameter of a kernel, as it lies in the parameter buffer. The value is the dtype's name."""

    POINTER = "pointer"
    TENSOR_MAP = "tensor_map"
    """128 bytes by value, aligned to 64: `const __grid_constant__ CUtensorMap`."""
    BOOL = "bool"
    """One byte, 0 or 1."""
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @property
    def size_bytes(self) -> int:
        """Bytes in the parameter buffer; the alignment is the same, but for a tensor map's 64."""
        if self is ArgumentKind.TENSOR_MAP:
            return 128
        if self is ArgumentKind.POINTER:
            return 8
        return max(1, int("0" + self.value.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8)


class LaunchParameter(enum.Enum):
    """One number that the host code passes behind the arguments."""

    GRID_X = "grid_x"
    GRID_Y = "grid_y"
    GRID_Z = "grid_z"
    BLOCK_X = "block_x"
    BLOCK_Y = "block_y"
    BLOCK_Z = "block_z"
    CLUSTER_X = "cluster_x"
    CLUSTER_Y = "cluster_y"
    CLUSTER_Z = "cluster_z"
    DYNAMIC_SHARED = "dynamic_shared"
    """Bytes of dynamic shared memory."""


class DeviceKernel(Record, frozen=True):
    """One kernel of a device binary.

    `arguments` and `launch` together are what the host code passes, in its order. An extent that it does not
    pass is 1, and bytes that it does not pass are 0.
    """

    name: Symbol
    arguments: tuple[ArgumentKind, ...]
    launch: tuple[LaunchParameter, ...]
    cluster: tuple[Extent, Extent, Extent] = (1, 1, 1)
    """Blocks of a cluster along x, y, z, as the function's attributes say; where the host code passes them
    too, the launcher refuses another number."""
    cooperative: bool = False
    """All blocks must be resident at once: the kernel synchronizes its grid."""
    programmatic: bool = False
    """May start before the kernel before it has ended (programmatic dependent launch)."""
    max_dynamic_shared_bytes: Count = 0
    """The most that any launch asks for; more is refused."""
    registers: Count = 0
    """For each thread, as the binary says. A fact for reports: the launcher does not read it."""
    static_shared_bytes: Count = 0
    spill_bytes: Count = 0
    """Local memory of each thread that holds spilled registers. A fact for reports."""
