"""The layer norm of BERT-like encoders: plain PyTorch, with the contract that a kernel must keep."""

import torch

import tilegate

TOKENS = (2, 3, 7, 13, 31, 64, 150, 333, 512, 1000, 2048, 3264, 4800, 8192)
"""A batch is padded to its longest sentence: tokens = sentences x length. The model takes 256 tokens, and
sentence-transformers 32 sentences at a time: 8192 is the most it ever asks for."""


@tilegate.operator(
    inputs={"x": "T[tokens, hidden]", "weight": "T[hidden]", "bias": "T[hidden]"},
    outputs={"y": "T[tokens, hidden]"},
    dtypes={"T": ("float32",)},
    attributes={"eps": float},
    tolerance=tilegate.Tolerance(reduces=("hidden",)),
    served=[{"tokens": tokens, "hidden": 384} for tokens in TOKENS],
)
def layer_norm(x, weight, bias, eps=1e-12):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
