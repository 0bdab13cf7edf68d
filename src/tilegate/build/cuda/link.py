"""Host code, launcher and cubin into one library that needs libc alone: the driver is opened when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from tilegate.build.abi import abi_header
from tilegate.build.compile import COMMON, LINK, host_headers
from tilegate.build.kernel_table import LAUNCHER_FILES, kernels_header
from tilegate.build.requests import CompileRequest
from tilegate.build.tools import run_tool
from tilegate.records.device import DeviceKernel

DLPACK_CUDA = 2
MARCH = "x86-64-v2"
"""Of the host part, which only checks and launches."""


def link(
    folder: Path, request: CompileRequest, host: str, kernels: Sequence[DeviceKernel], cubin: bytes
) -> bytes:
    """The library.

    Args:
        folder: the job's, for sources and objects.
        request: names the tensors and the identity.
        host: TileLang's C.
        kernels: in the cubin.
        cubin: is laid into the library as it is.
    """
    launchers = resources.files("tilegate.build.launchers")
    for name in LAUNCHER_FILES:
        (folder / name).write_bytes((launchers / name).read_bytes())
    header = abi_header(request.elaboration, identity=request.identity, device_type=DLPACK_CUDA)
    (folder / "abi.h").write_text(header)
    (folder / "kernels.h").write_text(kernels_header(kernels, cubin))
    (folder / "host.c").write_text(host)
    for command in commands():
        run_tool(command, folder)
    return (folder / "kernel.so").read_bytes()


def commands() -> tuple[list[str], ...]:
    """Tool runs in order. All paths are relative to the job's folder, but for include folders."""
    _, include = host_headers()
    flags = ["-O2", f"-march={MARCH}", "-std=gnu11", *COMMON, *include]
    options = [option.replace("cpu.map", "cuda.map") for option in LINK]
    return (
        ["gcc", "-c", *flags, "cuda.c", "-o", "cuda.o"],
        ["gcc", "-c", *flags, "-include", "seam.h", "host.c", "-o", "host.o"],
        ["gcc", *options, "cuda.o", "host.o", "-o", "kernel.so"],
    )
