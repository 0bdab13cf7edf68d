"""The GPUs of this machine, as device classes. Asked of the driver itself: neither torch nor a toolkit is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from tilegate.records.target import DeviceClass

DRIVER = "libcuda.so.1"

_NAME_BYTES = 256
_MAJOR, _MINOR, _L2_BYTES = 75, 76, 38
"""CUdevice_attribute of cuda.h."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver describes it."""

    device: DeviceClass
    l2_bytes: int
    versions: Mapping[str, str]
    """`cuda driver`: the newest CUDA that it speaks; `driver`: its own version, where it says so."""


def gpus() -> tuple[Gpu, ...]:
    """In the driver's order; none where there is no driver, or it does not work.

    The driver stays initialized in this process, and no context is made.
    """
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return ()
    count, version = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    driver.cuDriverGetVersion(ctypes.byref(version))
    versions = {"cuda driver": f"{version.value // 1000}.{version.value % 1000 // 10}", **_kernel_module()}
    return tuple(_gpu(driver, number, versions) for number in range(count.value))


def cuda_class(major: int, minor: int, name: str) -> DeviceClass:
    """`cuda:sm_90 (NVIDIA H200)`: what the driver and torch say of a GPU, as a device class."""
    return DeviceClass(backend="cuda", arch=f"sm_{major}{minor}", model=name)


def _gpu(driver: ctypes.CDLL, number: int, versions: Mapping[str, str]) -> Gpu:
    handle = ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.cuDeviceGet(ctypes.byref(handle), number)
    driver.cuDeviceGetName(name, _NAME_BYTES, handle)
    found = [ctypes.c_int() for _ in range(3)]
    for slot, attribute in zip(found, (_MAJOR, _MINOR, _L2_BYTES), strict=True):
        driver.cuDeviceGetAttribute(ctypes.byref(slot), attribute, handle)
    major, minor, l2_bytes = (slot.value for slot in found)
    device = cuda_class(major, minor, name.value.decode(errors="replace"))
    return Gpu(device, l2_bytes, versions)


def _kernel_module() -> dict[str, str]:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:  # noqa: PTH123 - no pathlib for one line
            words = file.readline().split()
    except OSError:
        return {}
    numbers = [word for word in words if word[:1].isdigit() and "." in word]
    return {"driver": numbers[0]} if numbers else {}
