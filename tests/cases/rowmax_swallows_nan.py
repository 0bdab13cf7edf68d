"""A running maximum by comparison: no comparison with NaN is true, so NaN is passed over."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel("case_contracts:row_max_of_finite", dynamic=("M",), specialize={"N": 8})
@tilegate.kernel("case_contracts:row_max", dynamic=("M",), specialize={"N": 8})
@tilelang.jit
def rowmax_swallows_nan(M, N):
    @T.prim_func
    def largest(x: T.Tensor((M, N), "float32"), y: T.Tensor((M,), "float32")):
        with T.Kernel(M) as row:
            best = T.alloc_local((1,), "float32")
            best[0] = -T.infinity("float32")
            for j in T.serial(N):
                if x[row, j] > best[0]:
                    best[0] = x[row, j]
            y[row] = best[0]

    return largest
