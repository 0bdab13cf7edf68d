"""What code is compiled for (target), and the physical thing that is present now (device)."""

from __future__ import annotations

from tilegate.errors import UsageError
from tilegate.records.canonical import Record

BACKENDS = ("cpu", "cuda")
"""Kinds of target that there are artifacts for."""

LATER = ("hip", "metal", "ascend")
"""Backends that have a name, and no artifacts yet."""

CUDA_ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""As nvcc spells them. With an `a`: matrix and memory instructions of this very architecture, and code that
runs on no other."""

X86_64_LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v2": frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""Processor flags that each level adds to the one before it, as /proc/cpuinfo spells them.

Source: the System V ABI for AMD64, section 3.1.1. `abm` is the kernel's word for LZCNT.
"""


class Target(Record, frozen=True):
    """A backend and an architecture: `cpu:x86-64-v3`, `cuda:sm_90a`."""

    backend: str
    arch: str

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"

    @property
    def lowering(self) -> str:
        """What the kernel's Python is told: `c`, or the architecture. IR for one is no IR for another."""
        return "c" if self.backend == "cpu" else self.arch

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read what a user wrote.

        `cuda:sm_90` is refused and not raised to sm_90a: what is asked for, built, signed and shown has one name.

        Raises:
            UsageError: no such target, or none yet.
        """
        backend, _, arch = text.partition(":")
        if backend == "cuda" and arch not in CUDA_ARCHS:
            raise _no_cuda(text, arch)
        if backend not in ("cpu", "cuda") or (backend == "cpu" and arch not in X86_64_LEVELS):
            known = ", ".join(
                (*(f"cpu:{level}" for level in X86_64_LEVELS), *(f"cuda:{a}" for a in CUDA_ARCHS))
            )
            if backend in LATER:
                raise UsageError(
                    f"nothing can be built for {text} yet",
                    why="this version builds for processors and for CUDA; other devices' calls go to the references",
                    next_step=f"for now, one of: {known}",
                )
            raise UsageError(
                f"unknown target {text!r}",
                why="a target names a backend and an instruction set, and never the machine at hand ('native')",
                next_step=f"one of: {known}",
            )
        return cls(backend=backend, arch=arch)


def _no_cuda(text: str, arch: str) -> UsageError:
    if f"{arch}a" in CUDA_ARCHS:
        return UsageError(
            f"{text} would build without the matrix instructions of its architecture",
            why=f"they exist in code for {arch}a only; for {arch} the compiler puts asserts in their place, and "
            "says nothing",
            next_step=f"cuda:{arch}a",
        )
    return UsageError(
        f"unknown target {text!r}",
        why="kernels are built for one architecture at a time, as machine code",
        next_step=f"one of: {', '.join(f'cuda:{known}' for known in CUDA_ARCHS)}",
    )


class DeviceClass(Record, frozen=True):
    """Devices that evidence speaks for together: backend, architecture, model name."""

    backend: str
    arch: str
    """The highest level that a processor has, x86-64-v4; a GPU's compute capability, sm_90."""
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
    if target.backend == "cuda":
        return _cubin_runs_on(target.arch, device.arch)
    levels = list(X86_64_LEVELS)
    return device.arch in levels and levels.index(target.arch) <= levels.index(device.arch)


def _cubin_runs_on(arch: str, capability: str) -> bool:
    """Machine code runs on its own major version from its minor version on; with an `a`, on its own alone."""
    built, there = arch.removeprefix("sm_"), capability.removeprefix("sm_").rstrip("a")
    if arch not in CUDA_ARCHS or not there.isdecimal():
        return False
    if built.endswith("a"):
        return built == f"{there}a"
    return built[:-1] == there[:-1] and int(built) <= int(there)
