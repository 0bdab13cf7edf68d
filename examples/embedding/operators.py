"""Three operators of BERT-like encoders: plain PyTorch, with the contract that a kernel must keep.

sentence-transformers hands over up to 32 sentences at a time, each padded to the longest, and the model takes
256 tokens of a sentence. What is declared as served reaches that far; residues stand for what lies between.
"""

import torch

import tilegate

TOKENS = (2, 13, 64, 333, 1000, 8192)
"""Of a batch: sentences x length."""

BATCHES = (
    (1, 2, False), (1, 64, False), (1, 256, False), (32, 16, False),
    (2, 7, True), (4, 256, True), (32, 128, True),
)  # fmt: skip
"""(sentences, length, whether one of them is padded). Without padding there is no mask."""


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


@tilegate.operator(
    inputs={
        "q": "float32[B, H, S, D] strided",
        "k": "float32[B, H, L, D] strided",
        "v": "float32[B, H, L, D] strided",
        "mask": "bool[B, 1, S, L] strided optional",
    },
    outputs={"out": "float32[B, S, H, D]"},
    tolerance=tilegate.Tolerance(reduces=("L",)),
    served=[
        {"B": sentences, "H": 12, "S": length, "L": length, "D": 32, "mask": padded}
        for sentences, length, padded in BATCHES
    ],
)
def attention(q, k, v, mask=None):
    """q, k and v are views of (batch, length, heads, dim), never contiguous; where mask is False, no look."""
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).contiguous()


@tilegate.operator(
    inputs={"x": "float32[tokens, width]"},
    outputs={"y": "float32[tokens, width]"},
    served=[{"tokens": tokens, "width": 1536} for tokens in TOKENS],
)
def gelu(x):
    return torch.nn.functional.gelu(x)
