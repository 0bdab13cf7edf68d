"""The seam between TileLang's host code and the CUDA launcher: kernels.h, and the names that may be asked for.

TileLang's host code asks its environment for functions by name, when it runs. Here is what the launcher
answers, so that a name nobody knows is found when the artifact is built.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilegate.records.device import ArgumentKind, DeviceKernel, LaunchParameter

LAUNCHER_FILES = (
    "guard.h", "driver.h", "device.h", "launch.h", "packed.h", "seam.h", "cuda.c", "cuda.map",
)  # fmt: skip
"""What the build lays beside abi.h, kernels.h and host.c. host.c is compiled with `-include seam.h`."""

PROVIDED_PACKED = frozenset(
    {
        "__tvm_set_device",
        "__tvm_tensormap_create_tiled",
        "__tvm_tensormap_create_im2col",
        "__tvm_cuda_stream_set_access_policy_window",
        "__tvm_cuda_stream_reset_access_policy_window",
    }
)
"""Functions that host code may ask for by name, besides the kernels."""

PROVIDED_SYMBOLS = frozenset(
    {
        "TVMBackendGetFuncFromEnv",
        "TVMFFIFunctionCall",
        "TVMFFIErrorSetRaisedFromCStr",
        "TVMBackendAllocWorkspace",
        "TVMBackendFreeWorkspace",
    }
)
"""Functions that host code may call. seam.h takes the calls over; another name does not link."""

_ASKED = re.compile(r'TVMBackendGetFuncFromEnv\(\s*\w+\s*,\s*"([^"]*)"\s*,\s*&(\w+)\s*\)')
_CALLED = re.compile(r"TVMFFIFunctionCall\(\s*(\w+)\s*,[^,]*,\s*(\d+)\s*,")
_WORDS_A_LINE = 8


class PackedCall(NamedTuple):
    """One call in host code of a function that it asked for by name."""

    name: str
    arguments: int


def packed_calls(host: str) -> tuple[PackedCall, ...]:
    """Every call by name in TileLang's host code, in order."""
    names = {variable: name for name, variable in _ASKED.findall(host)}
    return tuple(PackedCall(names.get(v, v), int(n)) for v, n in _CALLED.findall(host))


def seam_faults(host: str, kernels: Sequence[DeviceKernel]) -> tuple[str, ...]:
    """Why the launcher cannot answer this host code; empty where it can. Names only: no data stands in C."""
    expected = {k.name: len(k.arguments) + len(k.launch) for k in kernels}
    asked = dict.fromkeys(name for name, _ in _ASKED.findall(host))
    found = [f"asks for {name}" for name in asked if name not in expected and name not in PROVIDED_PACKED]
    found += [
        f"calls {call.name} with {call.arguments} values, and it takes {expected[call.name]}"
        for call in packed_calls(host)
        if expected.get(call.name, call.arguments) != call.arguments
    ]
    found += [f"never asks for {name}" for name in expected if name not in asked]
    return tuple(found)


def kernels_header(kernels: Sequence[DeviceKernel], cubin: bytes) -> str:
    """C text of `kernels.h`: the kernels in order, and the device binary that holds them."""
    names = [k.name for k in kernels]
    if not names or len(set(names)) != len(names):
        raise ValueError("a device binary has kernels, each with a name of its own")
    return "\n".join(
        [
            "#include <stdint.h>",
            f"enum tg_kind {{ {', '.join(_kind(k) for k in ArgumentKind)} }};",
            f"enum tg_launch_parameter {{ {', '.join(_parameter(p) for p in LaunchParameter)} }};",
            "typedef struct { const char *name; const uint8_t *arguments, *launch;",
            "                 uint16_t num_arguments, num_launch; uint8_t cooperative, programmatic;",
            "                 uint32_t cluster[3], max_dynamic_shared; } tg_kernel;",
            f"#define TG_KERNELS {len(kernels)}",
            f"#define TG_MAX_ARGUMENTS {max(1, *(len(k.arguments) for k in kernels), 1)}",
            *(line for i, kernel in enumerate(kernels) for line in _arrays(i, kernel)),
            "static const tg_kernel tg_kernels[TG_KERNELS] = {",
            *(_row(i, kernel) for i, kernel in enumerate(kernels)),
            "};",
            f"#define TG_BINARY_BYTES {len(cubin)}",
            "static const uint64_t tg_binary[] __attribute__((aligned(64))) = {",
            *_words(cubin),
            "};",
            "",
        ]
    )


def _kind(kind: ArgumentKind) -> str:
    return f"TG_ARG_{kind.name}"


def _parameter(parameter: LaunchParameter) -> str:
    return f"TG_PARAM_{parameter.name}"


def _arrays(i: int, kernel: DeviceKernel) -> tuple[str, str]:
    """A closing 0 keeps the arrays from being empty."""
    arguments = "".join(f"{_kind(kind)}, " for kind in kernel.arguments)
    launch = "".join(f"{_parameter(parameter)}, " for parameter in kernel.launch)
    return (
        f"static const uint8_t tg_arguments_{i}[] = {{{arguments}0}};",
        f"static const uint8_t tg_launch_{i}[] = {{{launch}0}};",
    )


def _row(i: int, kernel: DeviceKernel) -> str:
    cluster = ", ".join(map(str, kernel.cluster))
    return (
        f'  {{"{kernel.name}", tg_arguments_{i}, tg_launch_{i}, {len(kernel.arguments)}, {len(kernel.launch)}, '
        f"{int(kernel.cooperative)}, {int(kernel.programmatic)}, {{{cluster}}}, "
        f"{kernel.max_dynamic_shared_bytes}}},"
    )


def _words(data: bytes) -> Iterator[str]:
    """The bytes as little-endian 64-bit numbers, the last filled up with zeros: a tenth of gcc's time for bytes."""
    padded = data + bytes(-len(data) % 8 or (0 if data else 8))
    words = [f"{word:#x}u" for (word,) in struct.iter_unpack("<Q", padded)]
    for start in range(0, len(words), _WORDS_A_LINE):
        yield ",".join(words[start : start + _WORDS_A_LINE]) + ","
