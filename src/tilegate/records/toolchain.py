"""The toolchain is a set, not one version."""

from __future__ import annotations

from tilegate.records.canonical import Document, digest_of, encode


class Toolchain(Document, frozen=True, tag="tilegate.toolchain/1"):
    """Version of every member: tilelang, apache-tvm-ffi, torch, z3-solver, python, gcc, g++, tilegate."""

    versions: dict[str, str]

    @property
    def digest(self) -> str:
        return digest_of(encode(self))
