"""What a shared library would do by being opened, read from its bytes: the build refuses more than ours.

ELF64 as in the System V gABI, chapters 4 and 5: only the dynamic section is read.
"""

from __future__ import annotations

import struct

ALLOWED_LIBRARIES = frozenset({"libc.so.6", "libm.so.6"})

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RELA, _DT_RELASZ, _DT_INIT, _DT_FINI = 0, 1, 5, 7, 8, 12, 13
_DT_RPATH, _DT_RUNPATH, _DT_INIT_ARRAY, _DT_FINI_ARRAY, _DT_INIT_ARRAYSZ, _DT_FINI_ARRAYSZ = (
    15,
    29,
    25,
    26,
    27,
    28,
)
_DT_PREINIT_ARRAY, _DT_JMPREL, _DT_PLTRELSZ, _DT_AUDIT, _DT_FILTER, _DT_AUXILIARY = (
    32, 23, 2, 0x6FFFFEFC, 0x7FFFFFFF, 0x7FFFFFFD,
)  # fmt: skip
_R_X86_64_IRELATIVE = 37
_RUNS_AT_OPEN = {
    _DT_INIT: "an init function", _DT_FINI: "a fini function", _DT_INIT_ARRAY: "constructors",
    _DT_FINI_ARRAY: "destructors", _DT_PREINIT_ARRAY: "preinit functions",
}  # fmt: skip
_LOOKS_ELSEWHERE = {
    _DT_RPATH: "an RPATH", _DT_RUNPATH: "a RUNPATH", _DT_AUDIT: "an audit library",
    _DT_FILTER: "a filter library", _DT_AUXILIARY: "an auxiliary library",
}  # fmt: skip


def objections(library: bytes) -> tuple[str, ...]:
    """Why a library must not be opened; empty where it holds nothing but code, data and plain relocations."""
    try:
        return _objections(library)
    except (struct.error, ValueError, IndexError):
        return ("it is not an ELF64 shared library",)


def _objections(library: bytes) -> tuple[str, ...]:
    segments = _segments(library)
    dynamic = _dynamic(library, segments)
    found = [
        f"it has {what}" for tag, what in {**_RUNS_AT_OPEN, **_LOOKS_ELSEWHERE}.items() if tag in dynamic
    ]
    strings = _at(library, segments, dynamic[_DT_STRTAB][0])
    for offset in dynamic.get(_DT_NEEDED, []):
        name = library[strings + offset : library.index(b"\0", strings + offset)].decode("ascii", "replace")
        if name not in ALLOWED_LIBRARIES:
            found.append(f"it needs {name}")
    for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table in dynamic and _has_ifunc(
            library, _at(library, segments, dynamic[table][0]), dynamic[size][0]
        ):
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
    return [(kind, offset, address, length) for kind, _, offset, address, _, length in headers]


def _dynamic(library: bytes, segments: list[tuple[int, int, int, int]]) -> dict[int, list[int]]:
    offset, length = next((o, n) for kind, o, _, n in segments if kind == _PT_DYNAMIC)
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


def _has_ifunc(library: bytes, offset: int, size: int) -> bool:
    return any(
        struct.unpack_from("<Q", library, at + 8)[0] & 0xFFFFFFFF == _R_X86_64_IRELATIVE
        for at in range(offset, offset + size, 24)
    )
