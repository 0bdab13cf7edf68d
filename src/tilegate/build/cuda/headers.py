"""Where headers and NVRTC lie: TileLang's templates, CUTLASS, the CUDA toolkit. Found, never asked for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

USUAL = Path("/usr/local/cuda")
NVRTC = "libnvrtc.so.13"
_BUILTINS = "libnvrtc-builtins.so.13.*"


def toolkit() -> Path | None:
    """The CUDA toolkit: where nvcc is, or the usual place."""
    found = shutil.which("nvcc")
    places = [Path(found).resolve().parents[1]] if found else []
    return next((p for p in (*places, USUAL) if (p / "include/cuda_fp16.h").is_file()), None)


def nvrtc_folder() -> Path | None:
    """Where NVRTC and its built-in functions lie together: the wheel nvidia-cuda-nvrtc, or the toolkit."""
    return next((f for f in _libraries() if (f / NVRTC).is_file() and nvrtc_builtins(f)), None)


def nvrtc_builtins(folder: Path) -> Path | None:
    """The built-in functions beside NVRTC, whose name holds the minor version."""
    return next(iter(sorted(folder.glob(_BUILTINS))), None)


def nvrtc_version() -> str:
    """Of the wheel, `13.0.88`; of the toolkit, by the file that the library's name stands for."""
    folder = nvrtc_folder()
    if folder is None:
        return "absent"
    if "nvidia" in folder.parts:
        try:
            return importlib.metadata.version("nvidia-cuda-nvrtc")
        except importlib.metadata.PackageNotFoundError:
            return "unknown"
    return (folder / NVRTC).resolve().name.removeprefix("libnvrtc.so.")


def include_options() -> tuple[str, ...]:
    """Of a compiler: TileLang's templates first."""
    spec = importlib.util.find_spec("tilelang")
    root = Path(spec.origin).parent if spec and spec.origin else Path()
    cuda = (toolkit() or USUAL) / "include"
    folders = (root / "src", root / "3rdparty/cutlass/include", cuda, cuda / "cccl")
    return tuple(f"-I{folder}" for folder in folders)


def _libraries() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place) / "cu13/lib"
        yield Path(place) / "cuda_nvrtc/lib"
    yield (toolkit() or USUAL) / "lib64"
