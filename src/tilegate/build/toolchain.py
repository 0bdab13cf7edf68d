"""The toolchain that is installed, read without importing any of it."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess

from tilegate.records.toolchain import Toolchain

TOOLCHAIN_PACKAGES = ("tilelang", "apache-tvm-ffi", "torch", "z3-solver", "tilegate")


def read_toolchain() -> Toolchain:
    """Versions of the set, read without importing any of it."""
    versions = {"python": platform.python_version()}
    for package in TOOLCHAIN_PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    for tool in ("gcc", "g++"):
        path = shutil.which(tool)
        versions[tool] = _version(path) if path else "absent"
    return Toolchain(versions=versions)


def _version(path: str) -> str:
    done = subprocess.run([path, "-dumpfullversion"], capture_output=True, check=False, timeout=20)  # noqa: S603
    return done.stdout.decode("ascii", "replace").strip()[:32] or "unknown"
