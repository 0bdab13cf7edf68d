"""The kernel: a row at a time, in two passes over it. The mean first, then the variance around the mean."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel(
    "operators:layer_norm",
    dynamic=("tokens",),
    specialize={"hidden": 384},
    parameters={"dtype": "T"},
    constants={"lanes": 16},
)
@tilelang.jit
def layer_norm_rows(hidden, eps, dtype, lanes):
    """Sums run in `lanes` partial sums each: a compiler may not reorder one, but it may vectorise many."""
    assert hidden % lanes == 0, "a row is walked in whole steps of all lanes"
    tokens = T.dynamic("tokens")

    @T.prim_func
    def rows(
        X: T.Tensor((tokens, hidden), dtype),
        W: T.Tensor((hidden,), dtype),
        B: T.Tensor((hidden,), dtype),
        Y: T.Tensor((tokens, hidden), dtype),
    ):
        with T.Kernel(tokens) as row:
            part = T.alloc_local((lanes,), "float32")
            mean = T.alloc_local((1,), "float32")
            scale = T.alloc_local((1,), "float32")

            T.clear(part)
            for step, lane in T.grid(hidden // lanes, lanes):
                part[lane] += X[row, step * lanes + lane]
            T.reduce_sum(part, mean)
            mean[0] = mean[0] / hidden

            T.clear(part)
            for step, lane in T.grid(hidden // lanes, lanes):
                centred = X[row, step * lanes + lane] - mean[0]
                part[lane] += centred * centred
            T.reduce_sum(part, scale)
            scale[0] = T.rsqrt(scale[0] / hidden + eps)

            for i in T.serial(hidden):
                Y[row, i] = (X[row, i] - mean[0]) * scale[0] * W[i] + B[i]

    return rows
