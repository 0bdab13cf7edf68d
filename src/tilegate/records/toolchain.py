"""The toolchain is a set, not one version."""

from __future__ import annotations

from tilegate.records.canonical import Document, digest_of, encode


class Toolchain(Document, frozen=True, tag="tilegate.toolchain/1"):
    """Version of every member: tilelang, apache-tvm-ffi, torch, z3-solver, python, gcc, g++, tilegate.

    Of CUDA compilers it names the one that is used: nvrtc with ptxas, or nvcc; neither where there is none.
    """

    versions: dict[str, str]

    @property
    def device_compiler(self) -> str | None:
        """What compiles for CUDA: `nvrtc` or `nvcc`."""
        return next((name for name in ("nvrtc", "nvcc") if name in self.versions), None)

    @property
    def digest(self) -> str:
        return digest_of(encode(self))
