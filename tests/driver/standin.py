"""The stand-in driver, artifacts that call it, and tensors that say they lie on its devices."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import tvm_ffi

from tests import world
from tilegate.build.abi import abi_header
from tilegate.build.kernel_table import LAUNCHER_FILES, kernels_header
from tilegate.library import Library, Rows, open_library
from tilegate.records.contract import Contract
from tilegate.records.device import ArgumentKind, DeviceKernel, LaunchParameter
from tilegate.records.miss import GUARD_CODES, MissReason

CUDA = 2
"""kDLCUDA."""

COMPILE = (
    "gcc", "-c", "-O0", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
    f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}",
)  # fmt: skip
LINK = (
    "gcc", "-shared", "-nostartfiles", "-static-libgcc", "-Wl,-z,defs", "-Wl,-z,now",
    "-Wl,--version-script=cuda.map",
)  # fmt: skip


class Standin:
    """The driver as a test sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._c = ctypes.CDLL(str(path))
        self._c.standin_log.restype = ctypes.c_char_p

    def fresh(self) -> None:
        self._c.standin_reset()

    def fail(self, nth: int, result: int) -> None:
        self._c.standin_fail(nth, result)

    def make_sticky(self, result: int) -> None:
        self._c.standin_make_sticky(result)

    def capture(self, *, on: bool) -> None:
        self._c.standin_capture(int(on))

    def enter(self, ordinal: int) -> None:
        self._c.standin_enter(ordinal)

    def leave(self) -> None:
        self._c.standin_leave()

    def forget(self) -> None:
        self._c.standin_clear_log()

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._c.standin_log().decode().splitlines()]

    def calls(self) -> list[str]:
        return [str(line["call"]) for line in self.log() if "call" in line]

    def launches(self) -> list[dict[str, object]]:
        return [line for line in self.log() if "launch" in line]

    def violations(self) -> list[object]:
        return [line["violation"] for line in self.log() if "violation" in line]

    def state(self) -> dict[str, object]:
        """What this thread and the devices are left with."""
        c = self._c
        return {
            "depth": c.standin_depth(),
            "current": c.standin_current(),
            "relaxed": c.standin_relaxed(),
            "retained": [c.standin_retained(i) for i in range(4)],
            "modules": [c.standin_modules(i) for i in range(4)],
            "kept": c.standin_kept(),
        }


@functools.cache
def standin() -> Standin:
    kept = tempfile.TemporaryDirectory(prefix="tilegate-driver-")
    atexit.register(kept.cleanup)
    folder = Path(kept.name)
    source = Path(__file__).with_name("driver.c")
    path = folder / "libcuda.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(path)],
        check=True,
    )
    return Standin(path)


def kernel(
    *arguments: str,
    launch: str = "grid_x block_x block_y block_z",
    name: str = "body_kernel",
    **facts: object,
) -> DeviceKernel:
    return DeviceKernel(
        name=name,
        arguments=tuple(ArgumentKind(a) for a in arguments),
        launch=tuple(LaunchParameter(p) for p in launch.split()),
        **facts,  # type: ignore[arg-type] # the record's own fields
    )


def binary(kernels: Sequence[DeviceKernel]) -> bytes:
    """The stand-in's idea of a cubin."""
    lines = [" ".join([k.name, *(str(a.size_bytes) for a in k.arguments)]) for k in kernels]
    return "\n".join(lines).encode() + b"\0"


def library_bytes(
    contract: Contract,
    host: str,
    kernels: Sequence[DeviceKernel],
    *,
    include: Sequence[str] = (),
    driver: Path | None = None,
    wiping: bool = True,
    cubin: bytes = b"",
) -> tuple[str, bytes]:
    """Identity and library: the launcher as it is shipped, over a host function in C.

    driver: where the stand-in lies; without it the library asks for the system's driver by its name.
    wiping: whether the system empties memory in a forked child, as Linux has done since 4.14.
    cubin: for a real driver; without it the stand-in's idea of one.
    """
    elaboration = world.elaboration_of(contract)
    header = kernels_header(kernels, cubin or binary(kernels))
    identity = hashlib.sha256((host + header).encode()).hexdigest()
    abi = abi_header(elaboration, identity=identity, device_type=CUDA)
    where = (f'-DTG_DRIVER_LIBRARY="{driver}"',) if driver else ()
    return identity, _build(abi, header, host, tuple(include), where, wiping=wiping)


@functools.cache
def _build(
    abi: str, kernels: str, host: str, include: tuple[str, ...], where: tuple[str, ...], *, wiping: bool
) -> bytes:
    launchers = resources.files("tilegate.build.launchers")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in LAUNCHER_FILES:
            (folder / file).write_bytes((launchers / file).read_bytes())
        if not wiping:  # advice that no system knows
            text = (folder / "device.h").read_text()
            (folder / "device.h").write_text(text.replace("MADV_WIPEONFORK", "-1"))
        (folder / "abi.h").write_text(abi)
        (folder / "kernels.h").write_text(kernels)
        (folder / "host.c").write_text(host)
        paths = [f"-I{path}" for path in include]
        for command in (
            [*COMPILE, *where, "cuda.c", "-o", "cuda.o"],
            [*COMPILE, "-w", *paths, "-include", "seam.h", "host.c", "-o", "host.o"],
            [*LINK, "cuda.o", "host.o", "-o", "kernel.so"],
        ):
            done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        return (folder / "kernel.so").read_bytes()


class Opened:
    """An artifact that is open, for as long as it is kept."""

    def __init__(self, identity: str, data: bytes, symbols: tuple[str, ...]) -> None:
        self._library: Library = open_library(data, identity=identity)
        self._rows = Rows.admitting_all(symbols)

    def __call__(self, *tensors: object) -> int:
        return self._library.entry(*tensors, self._rows.address)


def opened(contract: Contract, host: str, *kernels: DeviceKernel, include: Sequence[str] = ()) -> Opened:
    symbols = world.elaboration_of(contract).symbols
    return Opened(*library_bytes(contract, host, kernels, include=include, driver=standin().path), symbols)


def reason(code: int) -> MissReason | str:
    return GUARD_CODES[code & 0xFF] if code else "launched"


def driver_error(code: int) -> int:
    """The driver's own number in a refusal."""
    return code >> 32


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class DeviceTensor:
    """A tensor of floats whose memory is the processor's, and which says that it is a device's.

    Host code reads its metadata alone. A stand-in for host code may read the memory: that is how tests hand
    a scalar over.
    """

    def __init__(self, *shape: int, device: int = 0, values: Sequence[float] = (), bits: int = 32) -> None:
        count = max(1, functools.reduce(int.__mul__, shape, 1))
        kind = {16: ctypes.c_uint16, 32: ctypes.c_float, 64: ctypes.c_double}[bits]
        self._memory = (kind * (count + 64))()
        start = -(-ctypes.addressof(self._memory) // 128) * 128
        self.address = start
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._device = device
        self._bits = bits
        view = (kind * count).from_address(start)
        view[: len(values)] = list(values)
        self._made: list[_Managed] = []

    def fill(self, managed: _Managed) -> None:
        t = managed.tensor
        t.data, t.device_type, t.device_id = self.address, CUDA, self._device
        t.ndim, t.code, t.bits, t.lanes = len(self._shape), 2, self._bits, 1
        t.shape, t.strides, t.byte_offset = self._shape, None, 0

    def __dlpack__(self, **_: object) -> object:
        managed = _Managed()
        self.fill(managed)
        self._made.append(managed)
        return _new_capsule(ctypes.addressof(managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._device
