"""A grid of whole tiles of 16 rows: the rows behind the last one keep whatever memory held before."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel("case_contracts:negate_rows", dynamic=("M",), specialize={"N": 24})
@tilelang.jit
def partial_grid_stale_output(M, N, tile=16):
    @T.prim_func
    def negate(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(M // tile) as block:
            for i, j in T.grid(tile, N):
                y[block * tile + i, j] = -x[block * tile + i, j]

    return negate
