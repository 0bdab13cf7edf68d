"""Five operators: plain PyTorch, with the contract that a kernel must keep."""

import torch

import tilegate


@tilegate.operator(
    inputs={"x": "T[tokens, hidden]", "weight": "T[hidden]"},
    outputs={"y": "T[tokens, hidden]"},
    dtypes={"T": ("float32", "float16", "bfloat16")},
    attributes={"eps": float},
    tolerance=tilegate.Tolerance(reduces=("hidden",)),
    served=[
        {"tokens": tokens, "hidden": 384, "T": dtype}
        for tokens in (1, 7, 128, 512)
        for dtype in ("float32", "float16")
    ],
)
def rms_norm(x, weight, eps=1e-6):
    scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    return (x.float() * scale * weight.float()).to(x.dtype)


@tilegate.operator(
    inputs={"a": "T[M, K]", "b": "T[K, N]"},
    outputs={"c": "T[M, N]"},
    dtypes={"T": ("float32", "float16", "bfloat16")},
    tolerance=tilegate.Tolerance(reduces=("K",)),
    served=[
        {"M": rows, "N": cols, "K": depth, "T": dtype}
        for rows, cols, depth in ((64, 64, 128), (100, 96, 256), (64, 64, 100))
        for dtype in ("float32", "float16")
    ],
)
def gemm(a, b):
    return a @ b


@tilegate.operator(
    inputs={"x": "T[rows, cols]"},
    outputs={"y": "T[rows, cols]"},
    dtypes={"T": ("float32", "float16", "bfloat16")},
    tolerance=tilegate.Tolerance(reduces=("cols",)),
    served=[
        {"rows": rows, "cols": cols, "T": dtype}
        for rows, cols in ((1, 1000), (12, 64), (100, 500))
        for dtype in ("float32", "float16")
    ],
)
def softmax(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


@tilegate.operator(
    inputs={"x": "T[M, K]", "packed": "uint8[N, half_K]", "scale": "float32[N]"},
    outputs={"y": "T[M, N]"},
    dtypes={"T": ("float32", "float16", "bfloat16")},
    tolerance=tilegate.Tolerance(reduces=("K",)),
    served=[
        {"M": rows, "K": 256, "half_K": 128, "N": 96, "T": dtype}
        for rows in (1, 16, 100)
        for dtype in ("float32", "float16")
    ],
)
def dequant_gemm(x, packed, scale):
    """Weights of 4 bits, two in a byte, the low half first; 8 means zero, one scale per output column."""
    nibbles = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    weight = (nibbles.to(scale.dtype) - 8) * scale[:, None]
    return (x.to(scale.dtype) @ weight.T).to(x.dtype)


@tilegate.operator(
    inputs={
        "q": "T[B, H, S, D] strided",
        "k": "T[B, H, L, D] strided",
        "v": "T[B, H, L, D] strided",
        "mask": "bool[B, 1, S, L] strided optional",
    },
    outputs={"out": "T[B, S, H, D]"},
    dtypes={"T": ("float32", "float16", "bfloat16")},
    tolerance=tilegate.Tolerance(reduces=("L",)),
    served=[
        {"B": batch, "H": 4, "S": length, "L": length, "D": 32, "mask": masked, "T": dtype}
        for batch, length in ((1, 9), (2, 64))
        for masked in (False, True)
        for dtype in ("float32", "float16")
    ],
)
def attention(q, k, v, mask=None):
    """q, k and v are views of (batch, length, heads, dim), never contiguous; where mask is False, no look."""
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).contiguous()
