"""A matmul that sums whole slabs of 32 columns: what is left of K behind the last one is lost."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel("case_contracts:gemm", dynamic=("M", "N", "K"))
@tilelang.jit
def gemm_k_tail(M, N, K, width=16, depth=32):
    @T.prim_func
    def slabs(
        a: T.Tensor((M, K), "float32"), b: T.Tensor((K, N), "float32"), c: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(M, T.ceildiv(N, width)) as (row, block):
            total = T.alloc_local((width,), "float32")
            T.clear(total)
            for slab in T.serial(K // depth):
                for k, lane in T.grid(depth, width):
                    if block * width + lane < N:
                        total[lane] += a[row, slab * depth + k] * b[slab * depth + k, block * width + lane]
            for lane in T.serial(width):
                if block * width + lane < N:
                    c[row, block * width + lane] = total[lane]

    return slabs
