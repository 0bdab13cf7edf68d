"""The kernels, as TileLang's own docs teach to write them."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel(
    "operators:rms_norm", dynamic=("tokens",), specialize={"hidden": 384}, parameters={"dtype": "T"}
)
@tilelang.jit
def rms_norm_rows(hidden, eps, dtype):
    tokens = T.dynamic("tokens")

    @T.prim_func
    def rows(
        X: T.Tensor((tokens, hidden), dtype),
        W: T.Tensor((hidden,), dtype),
        Y: T.Tensor((tokens, hidden), dtype),
    ):
        with T.Kernel(tokens) as row:
            total = T.alloc_local((1,), "float32")
            total[0] = T.float32(0)
            for i in T.serial(hidden):
                total[0] += T.cast(X[row, i], "float32") * T.cast(X[row, i], "float32")
            total[0] = T.rsqrt(total[0] / hidden + eps)
            for i in T.serial(hidden):
                Y[row, i] = T.cast(T.cast(X[row, i], "float32") * total[0] * T.cast(W[i], "float32"), dtype)

    return rows


@tilegate.kernel("operators:gemm", dynamic=("M", "N", "K"))
@tilelang.jit
def gemm_tiles(M, N, K, block_m=32, block_n=32, block_k=32):
    """Walks whole K tiles only: the last K % block_k columns are lost. Evaluation finds it."""

    @T.prim_func
    def tiles(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_n), T.ceildiv(M, block_m)) as (bx, by):
            a = T.alloc_local((block_m, block_k), "float32")
            b = T.alloc_local((block_k, block_n), "float32")
            c = T.alloc_local((block_m, block_n), "float32")
            T.clear(c)
            for ko in T.serial(K // block_k):
                T.copy(A[by * block_m, ko * block_k], a)
                T.copy(B[ko * block_k, bx * block_n], b)
                for i, k, j in T.grid(block_m, block_k, block_n):
                    c[i, j] += a[i, k] * b[k, j]
            T.copy(c, C[by * block_m, bx * block_n])

    return tiles
