"""Two operators: plain PyTorch, with the contract that a kernel must keep."""

import torch

import tilegate


@tilegate.operator(
    inputs={"x": "T[tokens, hidden]", "weight": "T[hidden]"},
    outputs={"y": "T[tokens, hidden]"},
    dtypes={"T": ("float32", "float16")},
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
    inputs={"a": "float32[M, K]", "b": "float32[K, N]"},
    outputs={"c": "float32[M, N]"},
    tolerance=tilegate.Tolerance(reduces=("K",)),
    served=[
        {"M": 64, "N": 64, "K": 128},
        {"M": 100, "N": 96, "K": 256},
        {"M": 64, "N": 64, "K": 100},
    ],
)
def gemm(a, b):
    return a @ b
