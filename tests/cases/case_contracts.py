"""What the kernels of this folder claim to compute. Each of them has one known fault."""

import torch

import tilegate


@tilegate.operator(
    inputs={"a": "float32[M, K]", "b": "float32[K, N]"},
    outputs={"c": "float32[M, N]"},
    tolerance=tilegate.Tolerance(reduces=("K",)),
    served=[{"M": 16, "N": 16, "K": 64}, {"M": 9, "N": 20, "K": 128}, {"M": 16, "N": 16, "K": 100}],
)
def gemm(a, b):
    return a @ b


@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, served=[{"n": 64}])
def significand(x):
    """|x| over the power of two below it: in [1, 2), and zero for zero."""
    return 2 * torch.frexp(x).mantissa.abs()


@tilegate.operator(
    inputs={"x": "float32[M, N]"},
    outputs={"y": "float32[M, N]"},
    served=[{"M": 32, "N": 24}, {"M": 40, "N": 24}, {"M": 160, "N": 24}],
)
def negate_rows(x):
    return -x


@tilegate.operator(
    inputs={"x": "float32[n]", "shift": "float32[n]"},
    outputs={"y": "float32[n]"},
    served=[{"n": 1000}],
)
def shifted(x, shift):
    return x + shift


ROWS = {"inputs": {"x": "float32[M, N]"}, "outputs": {"y": "float32[M]"}, "served": [{"M": 12, "N": 8}]}


@tilegate.operator(**ROWS, non_finite="propagated")
def row_max(x):
    return x.amax(-1)


@tilegate.operator(**ROWS, non_finite="excluded")
def row_max_of_finite(x):
    return x.amax(-1)
