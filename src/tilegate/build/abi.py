"""The header that tells the guard what the arguments of one artifact must be."""

from __future__ import annotations

from tilegate.records.artifact import Elaboration, TensorAbi
from tilegate.records.contract import DTYPES

_DLPACK_CODE = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
"""DLDataTypeCode of dlpack.h."""


def dlpack_dtype(dtype: str) -> tuple[int, int]:
    """Code and bits of a dtype, as DLPack numbers them."""
    family = dtype.rstrip("0123456789")
    return _DLPACK_CODE[family], DTYPES[dtype] * 8


def abi_header(elaboration: Elaboration, *, identity: str, device_type: int) -> str:
    """C text of `abi.h`: tensors, symbols, entry and identity of one artifact."""
    dims = [_dims(i, tensor, elaboration.symbols) for i, tensor in enumerate(elaboration.tensors)]
    rows = [_row(i, tensor) for i, tensor in enumerate(elaboration.tensors)]
    return "\n".join(
        [
            "#include <stdint.h>",
            f"#define TG_TENSORS {len(elaboration.tensors)}",
            f"#define TG_SYMBOLS {len(elaboration.symbols)}",
            f"#define TG_MAX_NDIM {max(1, *(len(t.dims) for t in elaboration.tensors))}",
            f"#define TG_DEVICE {device_type}",
            f'#define TG_IDENTITY "{identity}"',
            f"#define TG_HOST_ENTRY __tvm_ffi_{elaboration.entry}",
            "typedef struct { int32_t symbol; int64_t extent; } tg_dim;",
            "typedef struct { uint8_t dtype_code, dtype_bits, written, strided; int32_t ndim;",
            "                 const tg_dim *dims; } tg_tensor;",
            *dims,
            "static const tg_tensor tg_tensors[TG_TENSORS] = {",
            *rows,
            "};",
            "",
        ]
    )


def _dims(i: int, tensor: TensorAbi, symbols: tuple[str, ...]) -> str:
    cells = [f"{{{symbols.index(d)}, 0}}" if isinstance(d, str) else f"{{-1, {d}}}" for d in tensor.dims]
    return f"static const tg_dim tg_dims_{i}[] = {{{', '.join(cells) or '{-1, 0}'}}};"


def _row(i: int, tensor: TensorAbi) -> str:
    code, bits = dlpack_dtype(tensor.dtype)
    return f"  {{{code}, {bits}, {int(tensor.written)}, {int(tensor.strided)}, {len(tensor.dims)}, tg_dims_{i}}}, /* {tensor.name} */"
