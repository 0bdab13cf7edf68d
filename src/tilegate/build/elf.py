"""What a shared library would do by being opened, read from its bytes: the build refuses more than ours.

ELF64 as in the System V gABI, chapters 4 and 5: only the dynamic section is read.
"""

from __future__ import annotations

import struct

ALLOWED_LIBRARIES = frozenset({"libc.so.6", "libm.so.6"})
LIBC_ONLY = frozenset({"libc.so.6"})
"""Of a library with a device binary: its host part computes nothing, and the driver is opened when it is used."""

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_INIT, _DT_FINI = (
    0, 1, 5, 6, 7, 8, 12, 13,
)  # fmt: skip
_DT_RPATH, _DT_RUNPATH, _DT_INIT_ARRAY, _DT_FINI_ARRAY = 15, 29, 25, 26
_DT_PREINIT_ARRAY, _DT_JMPREL, _DT_PLTRELSZ, _DT_AUDIT, _DT_FILTER, _DT_AUXILIARY = (
    32, 23, 2, 0x6FFFFEFC, 0x7FFFFFFF, 0x7FFFFFFD,
)  # fmt: skip
_R_X86_64_IRELATIVE = 37
_STT_GNU_IFUNC = 10
_RUNS_AT_OPEN = {
    _DT_INIT: "an init function", _DT_FINI: "a fini function", _DT_INIT_ARRAY: "constructors",
    _DT_FINI_ARRAY: "destructors", _DT_PREINIT_ARRAY: "preinit functions",
}  # fmt: skip
_LOOKS_ELSEWHERE = {
    _DT_RPATH: "an RPATH", _DT_RUNPATH: "a RUNPATH", _DT_AUDIT: "an audit library",
    _DT_FILTER: "a filter library", _DT_AUXILIARY: "an auxiliary library",
}  # fmt: skip


def objections(library: bytes, *, allowed: frozenset[str] = ALLOWED_LIBRARIES) -> tuple[str, ...]:
    """Why a library must not be opened; empty where it holds nothing but code, data and plain relocations.

    Args:
        library: the bytes of the file.
        allowed: libraries that it may need.
    """
    try:
        return _objections(library, allowed)
    except (struct.error, ValueError, LookupError, OverflowError):
        return ("it is not a whole ELF64 shared library",)


def _objections(library: bytes, allowed: frozenset[str]) -> tuple[str, ...]:
    segments = _segments(library)
    dynamic = _dynamic(library, segments)
    found = [
        f"it has {what}" for tag, what in {**_RUNS_AT_OPEN, **_LOOKS_ELSEWHERE}.items() if tag in dynamic
    ]
    strings = _at(library, segments, dynamic[_DT_STRTAB][-1])
    for offset in dynamic.get(_DT_NEEDED, []):
        name = library[strings + offset : library.index(b"\0", strings + offset)].decode("ascii", "replace")
        if name not in allowed:
            found.append(f"it needs {name}")
    symbols = _at(library, segments, dynamic[_DT_SYMTAB][-1])
    for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table in dynamic:
            start = _at(library, segments, dynamic[table][-1])
            if _has_ifunc(library, symbols, range(start, start + dynamic[size][-1], 24)):
                found.append("it has indirect functions")
    return tuple(dict.fromkeys(found))


def _segments(library: bytes) -> list[tuple[int, int, int, int]]:
    """(type, file offset, address, file size) of each program header."""
    if library[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", library, 16)[0] != 3:  # noqa: PLR2004 - ET_DYN
        raise ValueError("not a little-endian ELF64 shared object")
    start, size, count = (
        struct.unpack_from("<Q", library, 32)[0],
        *struct.unpack_from("<HH", library, 54),
    )
    headers = [struct.unpack_from("<IIQQQQ", library, start + i * size) for i in range(count)]
    sections = struct.unpack_from("<Q", library, 40)[0]
    size, count = struct.unpack_from("<HH", library, 58)
    ends = [offset + length for _, _, offset, _, _, length in headers]
    if max([*ends, sections + size * count]) > len(library):
        raise ValueError("cut short")
    return [(kind, offset, address, length) for kind, _, offset, address, _, length in headers]


def _dynamic(library: bytes, segments: list[tuple[int, int, int, int]]) -> dict[int, list[int]]:
    """Values of each tag, in order. Read where the loader reads them: by address, not by file offset."""
    [(address, length)] = ((a, n) for kind, _, a, n in segments if kind == _PT_DYNAMIC)
    offset = _at(library, segments, address)
    entries: dict[int, list[int]] = {}
    for at in range(offset, offset + length, 16):
        tag, value = struct.unpack_from("<qQ", library, at)
        if tag == _DT_NULL:
            break
        entries.setdefault(tag & 0xFFFFFFFF if tag > 0 else tag, []).append(value)
    return entries


def _at(library: bytes, segments: list[tuple[int, int, int, int]], address: int) -> int:
    for kind, offset, start, length in segments:
        if kind == _PT_LOAD and start <= address < start + length:
            return offset + address - start
    raise ValueError(f"address {address:#x} lies in no segment of {len(library)} bytes")


def _has_ifunc(library: bytes, symbols: int, relocations: range) -> bool:
    """Whether a resolver runs at opening: by a relocation of its own kind, or of a symbol that is one."""
    for at in relocations:
        info = struct.unpack_from("<Q", library, at + 8)[0]
        kind = library[symbols + 24 * (info >> 32) + 4] & 0xF
        if info & 0xFFFFFFFF == _R_X86_64_IRELATIVE or kind == _STT_GNU_IFUNC:
            return True
    return False
