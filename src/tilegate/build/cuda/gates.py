"""The gates of a CUDA build: what compiled, and must not be shipped. Pure; each names its diagnosis.

The compilers exit 0 in all of these cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tilegate.build.cuda.cubin import Cubin
from tilegate.build.failing import Diagnosed
from tilegate.build.kernel_table import seam_faults
from tilegate.records.device import DeviceKernel

KIB = 1024

SHARED_BYTES: Mapping[str, int] = {
    "sm_80": 163 * KIB,
    "sm_89": 99 * KIB,
    "sm_90a": 227 * KIB,
    "sm_100a": 227 * KIB,
    "sm_120a": 99 * KIB,
}
"""The most shared memory that one block may have, static and dynamic together.

Source: CUDA C++ Programming Guide 13.0, section 20.2, "Technical Specifications per Compute Capability",
maximum amount of shared memory per thread block.
"""

_ASSERT = "__assertfail"
_MISSING = re.compile(rb"[Aa]ttempting to use|CUTE_ARCH_\w+|without \w*_ENABLED|CUTE_INVALID_CONTROL_PATH")
"""What CuTe's asserts say where the instructions of an architecture are not compiled in."""
_ASKED = re.compile(r"\bdevice_assert\w*\s*\(")
"""In TileLang's source: an assert that the author wrote (T.device_assert)."""
_NUMBER = re.compile(r"\d+")


def shared_memory(kernels: Sequence[DeviceKernel], arch: str) -> Diagnosed | None:
    """A block that no device of the architecture can hold: every launch would fail."""
    needs = max((k.static_shared_bytes + k.max_dynamic_shared_bytes for k in kernels), default=0)
    limit = SHARED_BYTES[arch]
    if needs <= limit:
        return None
    return Diagnosed("shared-memory-limit", numbers={"needs": needs, "limit": limit})


def instructions(cubin: Cubin, data: bytes, source: str) -> Diagnosed | None:
    """Asserts stand where matrix instructions should: so it is for sm_90 where sm_90a is meant.

    1. No assert, no fault.
    2. An assert in the words of CuTe's missing instructions is one, whatever the author wrote besides.
    3. An assert that the source does not ask for is one too.
    """
    if _ASSERT not in cubin.undefined:  # (1)
        return None
    if _MISSING.search(data) or not _ASKED.search(source):  # (2) (3)
        return Diagnosed("instructions-missing")
    return None


def binary(kernels: Sequence[DeviceKernel], cubin: Cubin, arch: str) -> Diagnosed | None:
    """The cubin is for another architecture, or its kernels are not the ones that the host code launches."""
    number = _NUMBER.search(arch)
    if number is None or cubin.arch != int(number[0]):
        return Diagnosed("cubin-arch")
    if set(cubin.kernels) != {k.name for k in kernels}:
        numbers = {"got": len(cubin.kernels), "expected": len(kernels)}
        return Diagnosed("cubin-kernels", numbers=numbers)
    for kernel in kernels:
        sizes = tuple(kind.size_bytes for kind in kernel.arguments)
        if cubin.kernels[kernel.name].parameters != sizes:
            return Diagnosed("cubin-parameters")
    return None


def environment(host: str, kernels: Sequence[DeviceKernel]) -> Diagnosed | None:
    """The host code asks for what the launcher does not supply."""
    faults = seam_faults(host, kernels)
    return Diagnosed("environment-call", numbers={"faults": len(faults)}) if faults else None
