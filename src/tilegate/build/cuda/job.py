"""The compile job for CUDA targets: IR in, one library out. No user Python runs here. Runs inside the sandbox.

IR -> host C, device source, launches -> cubin (NVRTC and ptxas, or nvcc) -> gates -> library
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tilegate.build.cuda import gates, nvcc, nvrtc, ptxas
from tilegate.build.cuda.cubin import read_cubin
from tilegate.build.cuda.link import link
from tilegate.build.cuda.lower import Lowered, lower
from tilegate.build.failing import Diagnosed, failure
from tilegate.build.offsets import offset_fault
from tilegate.build.requests import CompileRequest, Kernels
from tilegate.build.tools import run_tool
from tilegate.records.canonical import decode, encode
from tilegate.records.device import DeviceKernel

Configs = Mapping[str, bool | int | str]


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """Emit a `kernels` and a `library` frame, or one `failure` frame."""
    request = decode(CompileRequest, inputs["request"], where="compile request")
    folder, arch, configs = Path.cwd(), request.target.arch, request.elaboration.pass_configs
    step = "cuda-lower"
    try:
        lowered = lower(inputs["ir"], arch, configs, shared_bytes=gates.SHARED_BYTES[arch])
        _hold(
            gates.environment(lowered.host, lowered.kernels),
            offset_fault(lowered.functions),
            gates.shared_memory(lowered.kernels, arch),
        )
        step = "cuda-device"
        cubin, log = device_binary(folder, lowered.device, arch, configs, request.device_compiler)
        kernels = checked(lowered, cubin, log, arch)
        step = "link"
        library = link(folder, request, lowered.host, kernels, cubin)
    except BaseException as error:  # noqa: BLE001 - TVM raises what it likes
        emit("failure", failure(step, error))
    else:
        emit("kernels", encode(Kernels(kernels=kernels)))
        emit("library", library)


def device_binary(
    folder: Path, source: str, arch: str, configs: Configs, compiler: str | None
) -> tuple[bytes, str]:
    """A cubin, and what ptxas said of it.

    Args:
        folder: for sources and results.
        source: TileLang's.
        arch: `sm_90a`.
        configs: pass configurations.
        compiler: `nvrtc` or `nvcc`.

    Raises:
        CompilerFailed: with the compiler's words.
        Diagnosed: no compiler.
    """
    if compiler == "nvrtc":
        ptx = ptxas.without_unused_variables(nvrtc.to_ptx(source, arch, configs))
        (folder / "kernel.ptx").write_text(ptx)
        log = run_tool(ptxas.command(arch, configs), folder)
    elif compiler == "nvcc":
        (folder / "kernel.cu").write_text(source)
        log = run_tool(nvcc.command(arch, configs), folder)
    else:
        raise Diagnosed("tool-missing", tool="nvcc")
    return (folder / "kernel.cubin").read_bytes(), log


def checked(lowered: Lowered, cubin: bytes, log: str, arch: str) -> tuple[DeviceKernel, ...]:
    """The kernels with what they take, once every gate has let them through.

    Raises:
        Diagnosed: what the first gate that closed says.
    """
    facts, taken = read_cubin(cubin), ptxas.read_resources(log)
    kernels = tuple(_with_resources(kernel, taken) for kernel in lowered.kernels)
    _hold(
        gates.binary(kernels, facts, arch),
        gates.instructions(facts, cubin, lowered.device),
        gates.shared_memory(kernels, arch),
    )
    return kernels


def _with_resources(kernel: DeviceKernel, taken: Mapping[str, ptxas.Resources]) -> DeviceKernel:
    found = taken.get(kernel.name, ptxas.Resources())
    return msgspec.structs.replace(
        kernel,
        registers=found.registers,
        spill_bytes=found.spill_bytes,
        static_shared_bytes=found.static_shared_bytes,
    )


def _hold(*faults: Diagnosed | None) -> None:
    for fault in faults:
        if fault is not None:
            raise fault
