"""What a compiler trace can say of code for GPUs: a part of `rules.templates.TEMPLATES`."""

from __future__ import annotations

from dataclasses import dataclass

from tilegate.records.trace import ErrorClass as E


@dataclass(frozen=True, slots=True)
class Template:
    error: E
    sentence: str
    hint: str


DEVICE_TEMPLATES: dict[str, Template] = {
    # Lowering, and the seam between host code and launcher.
    "layout-conflict": Template(
        E.LOWERING,
        "two uses of a fragment want layouts that cannot both hold; a reduction whose width the threads do not divide",
        "let the width be a multiple of the threads, or pad it; other widths go to the reference",
    ),
    "pipeline-trip-count": Template(
        E.LOWERING,
        "TileLang cannot pipeline a loop whose trip count is open, for this architecture",
        "T.serial for that loop or fewer stages here; sm_90a is not affected",
    ),
    "launch-unknown": Template(
        E.UNSUPPORTED,
        "the kernel is launched with a parameter that the launcher does not know",
        "write the launch as T.Kernel or T.ClusterKernel does",
    ),
    "kernel-scalar": Template(
        E.UNSUPPORTED,
        "a device kernel takes a scalar of {dtype}",
        "cast it to one of bool, 8 to 64 bit integers, float16, bfloat16, float32, float64",
    ),
    "environment-call": Template(
        E.UNSUPPORTED,
        "the host code asks its runtime for something that the launcher does not have ({faults} faults)",
        "leave out what needs TileLang's own runtime: the launcher sets the device, makes tensor maps, allocates "
        "workspace, sets L2 windows and launches kernels",
    ),
    # What compiled, and must not be shipped.
    "offset-wrapped": Template(
        E.LOWERING,
        "a literal offset into a tensor left 32 bits while it was folded: it is negative in the code",
        "index with T.int64, or make the tensor smaller than 2**31 elements",
    ),
    "offset-int32": Template(
        E.LOWERING,
        "an index is computed in 32 bits and leaves them within the kernel's own loops",
        "cast one factor to T.int64, or make the tensor smaller than 2**31 elements",
    ),
    "shared-memory-limit": Template(
        E.MEMORY,
        "a block needs {needs} bytes of shared memory, and the architecture has {limit}",
        "make tiles smaller, or fewer stages",
    ),
    "shared-memory-static": Template(
        E.MEMORY,
        "a block needs more static shared memory than ptxas allows",
        "make tiles smaller, or allocate them as dynamic shared memory",
    ),
    "instructions-missing": Template(
        E.LOWERING,
        "device asserts stand where the architecture's matrix instructions should",
        "name the architecture with its suffix: sm_90a, sm_100a, sm_120a",
    ),
    "arch-lacks": Template(
        E.UNSUPPORTED,
        "the kernel uses what the architecture does not have",
        "build this kernel for a newer architecture, or bind another one to this target",
    ),
    "cubin-arch": Template(
        E.PROTOCOL,
        "the device binary is for another architecture than the target",
        "report it with the toolchain's versions",
    ),
    "cubin-kernels": Template(
        E.PROTOCOL,
        "the device binary holds {got} kernels where the host code launches {expected}",
        "report it with the toolchain's versions; one pasted source may not bring kernels of its own",
    ),
    "cubin-parameters": Template(
        E.PROTOCOL,
        "a kernel's parameters in the device binary are not those that the host code passes",
        "report it with the toolchain's versions",
    ),
    "device-undefined": Template(
        E.HOST_COMPILER,
        "the device source uses a name that nothing declares",
        "paste its source with T.import_source, or use what TileLang has",
    ),
}
