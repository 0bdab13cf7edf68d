"""What code is compiled for (target), and the physical thing that is present now (device)."""

from __future__ import annotations

from tilegate.errors import UsageError
from tilegate.records.canonical import Record

LATER = ("cuda", "hip", "metal", "ascend")
"""Backends that have a name, and no artifacts yet."""

X86_64_LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v2": frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""Processor flags that each level adds to the one before it, as /proc/cpuinfo spells them.

Source: the System V ABI for AMD64, section 3.1.1. `abm` is the kernel's word for LZCNT.
"""


class Target(Record, frozen=True):
    """A backend and an architecture: `cpu:x86-64-v3`, later `cuda:sm_90a`."""

    backend: str
    arch: str

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"

    @classmethod
    def parse(cls, text: str) -> Target:
        backend, _, arch = text.partition(":")
        if backend != "cpu" or arch not in X86_64_LEVELS:
            known = ", ".join(f"cpu:{level}" for level in X86_64_LEVELS)
            if backend in LATER:
                raise UsageError(
                    f"nothing can be built for {text} yet",
                    why="this version builds for processors only; calls on other devices go to the references",
                    next_step=f"for now, one of: {known}",
                )
            raise UsageError(
                f"unknown target {text!r}",
                why="a target names a backend and an instruction set, and never the machine at hand ('native')",
                next_step=f"one of: {known}",
            )
        return cls(backend=backend, arch=arch)


class DeviceClass(Record, frozen=True):
    """Devices that evidence speaks for together: backend, architecture, model name."""

    backend: str
    arch: str
    """The highest level that the device has: x86-64-v4."""
    model: str

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch} ({self.model})"


def cpu_level(flags: frozenset[str]) -> str | None:
    """The highest x86-64 level whose flags, and those of every level below it, are all present."""
    best = None
    for level, needed in X86_64_LEVELS.items():
        if not needed <= flags:
            break
        best = level
    return best


def runs_on(target: Target, device: DeviceClass) -> bool:
    """Whether code for the target can run on the device at all (evidence is another question)."""
    if target.backend != device.backend:
        return False
    levels = list(X86_64_LEVELS)
    return device.arch in levels and levels.index(target.arch) <= levels.index(device.arch)
