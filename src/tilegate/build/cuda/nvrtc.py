"""NVRTC in this process: device source to PTX. With its headers compiled once, a kernel takes 0.4 s and not 1.6 s.

A precompiled header is an image of NVRTC's heap, which must lie at the same address again: so it serves the
process that made it and its forks, and no other. A worker's keeper makes one before it forks (`prime`, through
the modules of `primed`), in a thread beside the imports of TileLang. Keepers compile TileLang's headers only.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilegate.build.cuda import headers
from tilegate.build.cuda.nvcc import FAST_MATH, common_options
from tilegate.build.failing import CompilerFailed, Diagnosed

HEAP_BYTES = 512 << 20
"""Address space for NVRTC's heap. TileLang's headers with CuTe fill 255 MiB, and the usual heap has 256."""
IMAGE_BYTES = 384 << 20
"""Room for one precompiled header on disk: 284 MiB was seen."""
WORTH_PRIMING = 2
"""Kernels of one architecture from which making the header, 2 s beside the imports, is sooner done."""

_STANDARD = "tl_templates/cuda/nvrtc_std.h"
_EVERY = ("intrin.h", "atomic.h", "reduce.h", "scan.h", "ldsm.h", "threadblock_swizzle.h", "debug.h")
_PREFIX: Mapping[str, Sequence[str]] = {
    "sm_80": ("instruction/mma.h", "copy.h"),
    "sm_89": ("instruction/mma.h", "copy.h"),
    "sm_90a": ("instruction/wgmma.h", "barrier.h", "copy_sm90.h"),
    "sm_100a": ("tcgen_05.h", "barrier.h", "copy_sm90.h", "copy_sm100.h"),
    "sm_120a": ("instruction/mma.h", "barrier.h", "copy_sm90.h"),
}
"""What TileLang's code generator includes for most kernels. A header that a kernel has not asked for adds nothing
to its PTX, once unused variables are trimmed."""

_GRID_DEPENDENCY = ("cudaGridDependencySynchronize", "cudaTriggerProgrammaticLaunchCompletion")


def to_ptx(source: str, arch: str, configs: Mapping[str, bool | int | str]) -> str:
    """PTX of TileLang's device source.

    Raises:
        CompilerFailed: with NVRTC's log.
        Diagnosed: NVRTC is not installed.
    """
    if any(name in source for name in _GRID_DEPENDENCY):
        source = f'#include "cuda_device_runtime_api.h"\n{source}'
    options = _options(arch, configs)
    image = _images.get(arch)
    if image is None or configs.get(FAST_MATH):
        return _compile(f"#include <{_STANDARD}>\n{source}", options)
    return _compile(_prefix(arch) + source, [*options, f"-use-pch={image.name}", f"-pch-dir={image.parent}"])


def prime(arch: str) -> None:
    """Begin to precompile the headers of an architecture, in a thread: `ready` waits for it.

    Whatever goes wrong there, kernels are compiled without.
    """
    thread = threading.Thread(target=_prime, args=(arch,), daemon=True)
    _primings.append(thread)
    thread.start()


def ready() -> None:
    """Wait for what was begun. A process must not fork while one of its threads compiles."""
    while _primings:
        _primings.pop().join()


_images: dict[str, Path] = {}
"""Precompiled headers by architecture, of this process and its forks."""
_primings: list[threading.Thread] = []
_one_at_a_time = threading.Lock()


def _prime(arch: str) -> None:
    with _one_at_a_time:
        try:
            image = Path(tempfile.mkdtemp(prefix="headers-")) / f"{arch}.pch"
            _compile(
                _prefix(arch), [*_options(arch, {}), f"-create-pch={image.name}", f"-pch-dir={image.parent}"]
            )
        except (CompilerFailed, Diagnosed, OSError):
            return
        if image.is_file():
            _images[arch] = image


def _prefix(arch: str) -> str:
    names = (_STANDARD, *(f"tl_templates/cuda/{name}" for name in (*_PREFIX[arch], *_EVERY)))
    return "".join(f"#include <{name}>\n" for name in names) + "#pragma nv_hdrstop\n"


def _options(arch: str, configs: Mapping[str, bool | int | str]) -> list[str]:
    return [
        f"-arch={arch.replace('sm_', 'compute_')}", "-default-device", "-pch-messages=false",
        *common_options(configs),
    ]  # fmt: skip


@functools.cache
def _library() -> ctypes.CDLL:
    """NVRTC, with its built-ins beside it: it finds them by name, once they are loaded."""
    folder = headers.nvrtc_folder()
    builtins = headers.nvrtc_builtins(folder) if folder else None
    if folder is None or builtins is None:
        raise Diagnosed("tool-missing", tool="nvrtc")
    try:
        ctypes.CDLL(os.fspath(builtins), ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(os.fspath(folder / headers.NVRTC))
    except OSError:
        raise Diagnosed("tool-missing", tool="nvrtc") from None
    library.nvrtcSetPCHHeapSize(ctypes.c_size_t(HEAP_BYTES))
    return library


def _compile(source: str, options: Sequence[str]) -> str:
    library, program = _library(), ctypes.c_void_p()
    if library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None):
        raise CompilerFailed("NVRTC takes no program")
    try:
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCompileProgram(program, len(options), words):
            raise CompilerFailed(_text(library, program, "ProgramLog"))
        return _text(library, program, "PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode(errors="replace")
