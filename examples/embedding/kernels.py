"""One row at a time, in two passes: the mean, then the variance around it, then the row itself."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel(
    "operators:layer_norm",
    dynamic=("tokens",),
    specialize={"hidden": 384},
    parameters={"dtype": "T"},
    constants={"lanes": 32},
)
@tilelang.jit
def layer_norm_rows(hidden, eps, dtype, lanes):
    """Sums run in `lanes` partial sums: a compiler may not reorder one, but it may vectorise many."""
    assert hidden % lanes == 0, "the last lanes would be lost"
    steps = hidden // lanes
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

            for lane in T.serial(lanes):
                part[lane] = T.float32(0)
            for step in T.serial(steps):
                for lane in T.serial(lanes):
                    part[lane] += T.cast(X[row, step * lanes + lane], "float32")
            mean[0] = T.float32(0)
            for lane in T.serial(lanes):
                mean[0] += part[lane]
            mean[0] = mean[0] / hidden

            for lane in T.serial(lanes):
                part[lane] = T.float32(0)
            for step in T.serial(steps):
                for lane in T.serial(lanes):
                    part[lane] += (T.cast(X[row, step * lanes + lane], "float32") - mean[0]) * (
                        T.cast(X[row, step * lanes + lane], "float32") - mean[0]
                    )
            scale[0] = T.float32(0)
            for lane in T.serial(lanes):
                scale[0] += part[lane]
            scale[0] = T.rsqrt(scale[0] / hidden + eps)

            for i in T.serial(hidden):
                Y[row, i] = T.cast(
                    (T.cast(X[row, i], "float32") - mean[0]) * scale[0] * T.cast(W[i], "float32")
                    + T.cast(B[i], "float32"),
                    dtype,
                )

    return rows
