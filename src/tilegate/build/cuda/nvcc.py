"""nvcc: the way to a cubin that needs the whole toolkit, in a process of its own for each artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilegate.build.cuda import ptxas
from tilegate.build.cuda.headers import include_options

LANGUAGE = "-std=c++20"
FAST_MATH = "tl.enable_fast_math"
"""TileLang's pass configuration for `--use_fast_math`."""


def common_options(configs: Mapping[str, bool | int | str]) -> tuple[str, ...]:
    """What both compilers are told, as TileLang 0.1.15 tells nvcc."""
    fast = ("--use_fast_math",) if configs.get(FAST_MATH) else ()
    return (LANGUAGE, "-w", *fast, *include_options())


def command(arch: str, configs: Mapping[str, bool | int | str]) -> Sequence[str]:
    """The architecture is spelled out twice, so that nvcc never goes through another one."""
    return [
        "nvcc", "-cubin", "-gencode", f"arch={arch.replace('sm_', 'compute_')},code={arch}",
        f"-Xptxas={','.join(ptxas.options(configs))}", *common_options(configs), "kernel.cu", "-o", "kernel.cubin",
    ]  # fmt: skip
