"""IR to what is compiled: C of the host function, CUDA C++ of the kernels, and each kernel's launch as facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilegate.build.failing import Diagnosed
from tilegate.records.device import ArgumentKind, DeviceKernel, LaunchParameter

_LAUNCH = {
    "blockIdx.x": LaunchParameter.GRID_X,
    "blockIdx.y": LaunchParameter.GRID_Y,
    "blockIdx.z": LaunchParameter.GRID_Z,
    "threadIdx.x": LaunchParameter.BLOCK_X,
    "threadIdx.y": LaunchParameter.BLOCK_Y,
    "threadIdx.z": LaunchParameter.BLOCK_Z,
    "tirx.use_dyn_shared_memory": LaunchParameter.DYNAMIC_SHARED,
}
_CLUSTER = {
    "tir.cluster_dim_x": LaunchParameter.CLUSTER_X,
    "tir.cluster_dim_y": LaunchParameter.CLUSTER_Y,
    "tir.cluster_dim_z": LaunchParameter.CLUSTER_Z,
}
_OF_EVERY_CLUSTER = tuple(_CLUSTER.values())
"""Passed first where the function has `cluster_dims`, whichever tags it names (TileLang 0.1.15)."""


@dataclass(frozen=True, slots=True)
class Lowered:
    host: str
    """C of `__tvm_ffi_<entry>`: checks, tensor maps, launches by name."""
    device: str
    """CUDA C++ of every kernel."""
    kernels: tuple[DeviceKernel, ...]
    """In the module's order; registers, spills and static shared memory are not known yet."""
    functions: tuple[Any, ...]
    """The kernels as IR, for the gates that read it."""


def lower(ir: bytes, arch: str, configs: Mapping[str, bool | int | str], *, shared_bytes: int) -> Lowered:
    """Lower one PrimFunc for an architecture, with no device present.

    Args:
        ir: as `tvm.ir.save_json` wrote it.
        arch: `sm_90a`.
        configs: pass configurations of the kernel.
        shared_bytes: the most that a launch may ask for where the amount is known at run time only.
    """
    import tvm  # noqa: PLC0415 - seconds of import, paid only inside a job
    from tilelang.backend.module import create_backend_context  # noqa: PLC0415
    from tilelang.engine.lower import host_codegen, lower_with_context  # noqa: PLC0415
    from tvm.target import Target  # noqa: PLC0415

    function = tvm.ir.load_json(ir.decode())
    target = Target({"kind": "cuda", "arch": arch})
    with target, tvm.transform.PassContext(config=dict(configs)):
        context = create_backend_context(target, None, "tvm_ffi")
        lowered = lower_with_context(function, context)
        entries = len(lowered.host_mod.functions)
        if entries != 1:
            raise Diagnosed("host-functions", numbers={"got": entries})
        host = str(host_codegen(lowered.host_mod, context).inspect_source())
    functions = tuple(f for _, f in lowered.device_mod.functions.items())
    kernels = tuple(kernel_of(f, shared_bytes=shared_bytes) for f in functions)
    return Lowered(host, str(lowered.kernel_source), kernels, functions)


def kernel_of(function: Any, *, shared_bytes: int) -> DeviceKernel:
    """What the device function's attributes and parameters say of its launch.

    Raises:
        Diagnosed: it has a parameter or a launch tag that the launcher does not know.
    """
    attributes = function.attrs
    cluster = tuple(int(n) for n in attributes["cluster_dims"]) if "cluster_dims" in attributes else ()
    tags = [str(tag) for tag in attributes["tirx.kernel_launch_params"]]
    known = [_LAUNCH[tag] for tag in tags if tag in _LAUNCH]
    if len(known) + sum(tag in _CLUSTER for tag in tags) != len(tags):
        raise Diagnosed("launch-unknown")
    return DeviceKernel(
        name=str(attributes["global_symbol"]),
        arguments=tuple(_kind(parameter) for parameter in function.params),
        launch=(*(_OF_EVERY_CLUSTER if cluster else ()), *known),
        cluster=(cluster[0], cluster[1], cluster[2]) if cluster else (1, 1, 1),
        cooperative=_is_set(attributes, "use_cooperative_groups"),
        programmatic=_is_set(attributes, "has_cuda_pdl_sync"),
        max_dynamic_shared_bytes=_dynamic_shared(attributes, tags, shared_bytes),
    )


def _kind(parameter: Any) -> ArgumentKind:
    pointer = str(getattr(parameter.type_annotation, "storage_scope", ""))
    if pointer == "grid_constant":
        return ArgumentKind.TENSOR_MAP
    dtype = str(parameter.dtype)
    if dtype == "handle":
        return ArgumentKind.POINTER
    try:
        return ArgumentKind(dtype)
    except ValueError:
        raise Diagnosed("kernel-scalar", dtype=dtype) from None


def _is_set(attributes: Any, name: str) -> bool:
    return name in attributes and bool(int(attributes[name]))


def _dynamic_shared(attributes: Any, tags: list[str], most: int) -> int:
    if "tirx.use_dyn_shared_memory" not in tags:
        return 0
    from tvm.tirx import IntImm  # noqa: PLC0415

    amount = dict(attributes).get("dyn_shared_memory_buf")
    return int(amount) if isinstance(amount, IntImm) else most
