"""What a cubin says of itself: architecture, kernels, their parameters, and the functions it calls but has not.

ELF64 with NVIDIA's `.nv.info` sections: a list of attributes, each a format byte, a kind byte, and 16 bits
that are the value, or the length of what follows. Kinds and layouts as `cuobjdump -elf` (CUDA 13.0) shows them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tilegate.errors import RecordError

_EM_CUDA = 190
_SHT_SYMTAB = 2
_SHN_UNDEF = 0
_SIZED = 0x04
"""The format of an attribute whose 16 bits are a length."""
_KPARAM_INFO = 0x17
_INFO = ".nv.info."
_TEXT = ".text."


@dataclass(frozen=True, slots=True)
class CubinKernel:
    parameters: tuple[int, ...]
    """Size of each, in bytes, in order."""
    code_bytes: int


@dataclass(frozen=True, slots=True)
class Cubin:
    arch: int
    """90 for sm_90 and sm_90a."""
    kernels: dict[str, CubinKernel]
    undefined: frozenset[str]
    """Functions that the driver supplies: `__assertfail` where there is an assert, `vprintf`, malloc."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


def read_cubin(data: bytes) -> Cubin:
    """Read the facts of a cubin.

    Raises:
        RecordError: it is none.
    """
    try:
        return _read(data)
    except (struct.error, ValueError, LookupError) as error:
        raise RecordError("the device binary is no cubin", why=str(error)) from None


def _read(data: bytes) -> Cubin:
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != _EM_CUDA:
        raise ValueError("not an ELF64 file for CUDA")
    sections = list(_sections(data))
    info = {s.name.removeprefix(_INFO): s for s in sections if s.name.startswith(_INFO)}
    kernels = {
        name: CubinKernel(
            parameters=_parameters(data, info[name]),
            code_bytes=section.size,
        )
        for section in sections
        if section.name.startswith(_TEXT) and (name := section.name.removeprefix(_TEXT)) in info
    }
    [symbols] = [s for s in sections if s.kind == _SHT_SYMTAB]
    flags = struct.unpack_from("<I", data, 48)[0]
    # CUDA 13 writes ABI version 8, with the architecture in bits 8 to 15; before it stood in bits 0 to 7.
    arch = flags >> 8 & 0xFF if data[8] >= 8 else flags & 0xFF  # noqa: PLR2004 - said above
    return Cubin(arch, kernels, _undefined(data, symbols, sections[symbols.link]))


def _sections(data: bytes) -> Iterator[_Section]:
    start = struct.unpack_from("<Q", data, 40)[0]
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    names = headers[names_at][4]
    for name, kind, _, _, offset, length, link, *_ in headers:
        yield _Section(_string(data, names + name), kind, offset, length, link)


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("ascii", "replace")


def _parameters(data: bytes, section: _Section) -> tuple[int, ...]:
    """Sizes by ordinal. The packed word holds the size above 18 bits of placement."""
    found: dict[int, int] = {}
    at, end = section.offset, section.offset + section.size
    while at < end:
        form, kind, value = struct.unpack_from("<BBH", data, at)
        if form == _SIZED and kind == _KPARAM_INFO:
            _, ordinal, _, packed = struct.unpack_from("<IHHI", data, at + 4)
            found[ordinal] = packed >> 18
        at += 4 + (value if form == _SIZED else 0)
    if sorted(found) != list(range(len(found))):
        raise ValueError("parameters are missing")
    return tuple(size for _, size in sorted(found.items()))


def _undefined(data: bytes, symbols: _Section, strings: _Section) -> frozenset[str]:
    found = set()
    for at in range(symbols.offset + 24, symbols.offset + symbols.size, 24):
        name, _, _, section = struct.unpack_from("<IBBH", data, at)
        if section == _SHN_UNDEF and name:
            found.add(_string(data, strings.offset + name))
    return frozenset(name for name in found if not name.startswith("."))
