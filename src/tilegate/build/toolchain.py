"""The toolchain that is installed, read without importing any of it."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess

from tilegate.build.cuda import headers
from tilegate.records.toolchain import Toolchain
from tilegate.sandbox.trees import CUDA_PROGRAMS

TOOLCHAIN_PACKAGES = ("tilelang", "apache-tvm-ffi", "torch", "z3-solver", "tilegate")


_RELEASE = re.compile(r"V(\d+\.\d+\.\d+)")


def read_toolchain(device_compiler: str | None = None) -> Toolchain:
    """Versions of the set, read without importing any of it.

    Args:
        device_compiler: `nvrtc` or `nvcc`; without, NVRTC where it and ptxas are of one release, else nvcc. Only
            what is used is named, so the digest tells artifacts of the two ways apart.
    """
    versions = {"python": platform.python_version()}
    for package in TOOLCHAIN_PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    for tool in ("gcc", "g++"):
        path = shutil.which(tool)
        versions[tool] = _version(path) if path else "absent"
    return Toolchain(versions=versions | _device_compiler(device_compiler))


def _device_compiler(wanted: str | None) -> dict[str, str]:
    nvrtc = headers.nvrtc_version() if headers.nvrtc_folder() else None
    ptxas, nvcc = _release("ptxas"), _release("nvcc")
    both = nvrtc is not None and ptxas is not None
    if both and (wanted == "nvrtc" or (wanted is None and nvrtc == ptxas)):
        return {"nvrtc": str(nvrtc), "ptxas": str(ptxas)}
    return {"nvcc": nvcc} if nvcc and wanted != "nvrtc" else {}


def _release(tool: str) -> str | None:
    """`13.0.88`, as CUDA's tools say it."""
    path = shutil.which(tool) or shutil.which(tool, path=CUDA_PROGRAMS)
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=20)  # noqa: S603
    found = _RELEASE.search(done.stdout.decode("ascii", "replace"))
    return found[1] if found else "unknown"


def _version(path: str) -> str:
    done = subprocess.run([path, "-dumpfullversion"], capture_output=True, check=False, timeout=20)  # noqa: S603
    return done.stdout.decode("ascii", "replace").strip()[:32] or "unknown"
