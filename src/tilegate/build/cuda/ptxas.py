"""ptxas: the last step to machine code, and what it says of registers, spills and shared memory.

Its input from NVRTC is trimmed first. `-default-device` makes every static constant of every header a device
variable, and ptxas keeps variables that nothing names (a host might look them up): 850 of them, with their
names and addresses, made a cubin of 159 kB where nvcc's has 36 kB. No host looks anything up here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

_VARIABLE = re.compile(
    r"^\.(?:global|const)\b[^;=\[{]*?\s([A-Za-z_$][\w$]*)(?:\[\d*\])*(?:\s*=\s*[^;]*)?;\n", re.MULTILINE
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")

USAGE_LEVEL = "tl.ptxas_register_usage_level"
"""TileLang's pass configuration for `--register-usage-level`."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes, for each thread and block."""

    registers: int = 0
    spill_bytes: int = 0
    static_shared_bytes: int = 0


def without_unused_variables(ptx: str) -> str:
    """PTX without module variables that nothing else in it names; code and everything else as it was."""
    while (trimmed := _without_unnamed(ptx)) != ptx:
        ptx = trimmed
    return ptx


def _without_unnamed(ptx: str) -> str:
    named = Counter(_WORD.findall(ptx))
    return _VARIABLE.sub(lambda found: found[0] if named[found[1]] > 1 else "", ptx)


def options(configs: Mapping[str, bool | int | str]) -> tuple[str, ...]:
    """Of ptxas, as TileLang passes them on."""
    level = configs.get(USAGE_LEVEL)
    return ("-v",) if level is None else ("-v", f"--register-usage-level={int(level)}")


def command(arch: str, configs: Mapping[str, bool | int | str]) -> Sequence[str]:
    return ["ptxas", f"-arch={arch}", *options(configs), "kernel.ptx", "-o", "kernel.cubin"]


def read_resources(log: str) -> dict[str, Resources]:
    """By kernel, what `ptxas -v` said: also as nvcc passes it on."""
    found: dict[str, Resources] = {}
    name = ""
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name = entry[1]
            found[name] = Resources()
        elif not name:
            continue
        elif spills := _SPILLS.search(line):
            found[name] = replace(found[name], spill_bytes=found[name].spill_bytes + int(spills[1]))
        elif used := _REGISTERS.search(line):
            shared = _SHARED.search(line)
            found[name] = replace(
                found[name],
                registers=int(used[1]),
                static_shared_bytes=int(shared[1]) if shared else 0,
            )
    return found
