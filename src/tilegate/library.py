"""Opening an artifact: from bytes in memory to two functions, the same way for evaluation and serving.

The bytes are hashed by the caller, written to a sealed memfd and opened from there: no file exists that
could be changed between the hash and the opening.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import itertools
import os
import sys
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from tilegate.errors import ToolError, TrustError
from tilegate.records.shape import INT32_MAX, Range, ShapeClass

ENTRY = "tilegate_entry"
IDENTITY = "tilegate_identity"

NO_BUILD = "TVM_FFI_DISABLE_TORCH_C_DLPACK"
"""tvm_ffi reads it once, when it is imported."""

_opened = itertools.count(1)


class Rows:
    """The table that the guard in C reads: the rows of some shape classes, each behind a hit counter.

    Layout in 64-bit integers: n, then for each class: hits, alignment, max_elements, dense, (start, stop, step)...
    """

    def __init__(self, classes: Iterable[ShapeClass], symbols: tuple[str, ...]) -> None:
        rows = [c.row(symbols) for c in classes]
        self._width = 4 + 3 * len(symbols)
        self._numbers = array("q", [len(rows), *(n for row in rows for n in (0, *row))])
        self.address = self._numbers.buffer_info()[0]

    @classmethod
    def admitting_all(cls, symbols: tuple[str, ...]) -> Rows:
        """For evaluation: the artifact's own argument checks are all that may refuse."""
        anything = Range(start=0, stop=INT32_MAX)
        axes = dict.fromkeys(symbols, anything)
        return cls([ShapeClass(axes=axes, alignment_bytes=1, max_elements=2**62, dense=False)], symbols)

    def hits(self) -> tuple[int, ...]:
        """Calls that each class has admitted, in order."""
        return tuple(self._numbers[1 :: self._width])


class Library:
    """An open artifact. It is closed when nothing refers to it, or to its entry, any more."""

    def __init__(self, module: Any, entry: Callable[..., int]) -> None:
        self.entry = entry
        """`entry(tensor..., rows.address) -> 0 | refusal`: launches, or refuses by number."""
        self._module = module


def open_library(data: bytes, *, identity: str) -> Library:
    """Open an artifact from the bytes that were hashed.

    Raises:
        TrustError: the library says it is another than its manifest does.
        ToolError: the loader would not have it.
    """
    load = _ffi().get_global_func("ffi.Module.load_from_file.so")
    descriptor = _sealed(data)
    try:
        module = load(_fresh_path(descriptor), "so")
        entry, identify = module[ENTRY], module[IDENTITY]
    except (RuntimeError, AttributeError, KeyError) as error:
        raise ToolError(
            "the system's loader refuses an artifact",
            where=identity,
            why=type(error).__name__,
            next_step="tilegate doctor",
        ) from None
    finally:
        os.close(descriptor)
    found = ctypes.string_at(identify()).decode("ascii", "replace")
    if found != identity:
        raise TrustError(
            "an opened library is not the one its manifest names",
            where=f"identity {identity}",
            why=f"the library says {found[:80]}",
            next_step="take the release again from where it was promoted, or build and evaluate again",
        )
    return Library(module, entry)


def _ffi() -> Any:
    """tvm_ffi, imported so that no compiler starts.

    Where torch cannot hand tensors over natively, and torch_c_dlpack_ext cannot teach it to, importing tvm_ffi
    would build that in C++. Without it tensors go through `__dlpack__`: slower, and right all the same.
    """
    if "tvm_ffi" in sys.modules or _torch_exchanges():
        return importlib.import_module("tvm_ffi")
    before = os.environ.get(NO_BUILD)
    os.environ[NO_BUILD] = "1"
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        if before is None:
            del os.environ[NO_BUILD]
        else:
            os.environ[NO_BUILD] = before


def _torch_exchanges() -> bool:
    """Whether torch has the DLPack exchange API, of itself or from the extension for older ones."""
    for module in ("torch", "torch_c_dlpack_ext"):
        # AttributeError: the extension is for another torch. tvm_ffi would take its build for the cure.
        with contextlib.suppress(ImportError, AttributeError, OSError):
            importlib.import_module(module)
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        if any(hasattr(tensor, f"__{name}_exchange_api__") for name in ("dlpack_c", "c_dlpack")):
            return True
    return False


def _sealed(data: bytes) -> int:
    descriptor = os.memfd_create("tilegate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _fresh_path(descriptor: int) -> str:
    """A path to the descriptor that no library of this process was opened by before.

    glibc takes two libraries for one when their *paths* are equal, even where the first descriptor is long
    closed and its number means another file. So each opening spells the path its own way: the bits of a
    counter as `/.` and `/`, both of which mean nothing to the kernel.
    """
    spelling = "".join("/." if bit == "1" else "/" for bit in f"{next(_opened):b}")
    return f"/proc/self/fd{spelling}/{descriptor}"
