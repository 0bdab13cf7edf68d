"""A tensor whose framework has the DLPack exchange API, as torch has: tvm_ffi asks it for the stream."""

from __future__ import annotations

import ctypes

from tests.driver.standin import DeviceTensor, _DLTensor, _new_capsule

asked: list[tuple[int, int]] = []
"""(device type, ordinal) of each question for a stream."""


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_FromObject = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
_Stream = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI of dlpack.h 1.2."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("from_object", _FromObject),
        ("to_object", ctypes.c_void_p),
        ("borrow", ctypes.c_void_p),
        ("stream", _Stream),
    ]


@_FromObject
def _from_object(tensor: ExchangedTensor, out: object) -> int:
    versioned = _Versioned(major=1, minor=1)
    managed = type("Holder", (), {"tensor": versioned.tensor})
    tensor.fill(managed)
    tensor.kept.append(versioned)
    out[0] = ctypes.addressof(versioned)  # type: ignore[index] # a ctypes pointer
    return 0


@_Stream
def _current_stream(kind: int, ordinal: int, out: object) -> int:
    asked.append((kind, ordinal))
    out[0] = (ordinal + 1) << 16 | 5  # type: ignore[index] # a ctypes pointer
    return 0


_NAME = b"dlpack_exchange_api"
"""Kept: the capsule holds no more than its address."""
_api = _Exchange(major=1, minor=3, from_object=_from_object, stream=_current_stream)


class ExchangedTensor(DeviceTensor):
    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_api), _NAME, None)

    def __init__(self, *shape: int, device: int = 0) -> None:
        super().__init__(*shape, device=device)
        self.kept: list[_Versioned] = []
