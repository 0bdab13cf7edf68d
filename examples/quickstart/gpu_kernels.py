"""The same operators for GPUs, as TileLang's own docs teach to write them."""

import math

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel(
    "operators:rms_norm",
    dynamic=("tokens",),
    specialize={"hidden": 384},
    parameters={"dtype": "T"},
    backends=("cuda",),
)
@tilelang.jit
def rms_norm_blocks(hidden, eps, dtype):
    """One block of threads for each token: the row in registers, one reduction over it."""
    tokens = T.dynamic("tokens")

    @T.prim_func
    def blocks(
        X: T.Tensor((tokens, hidden), dtype),
        W: T.Tensor((hidden,), dtype),
        Y: T.Tensor((tokens, hidden), dtype),
    ):
        with T.Kernel(tokens, threads=128) as row:
            x = T.alloc_fragment((1, hidden), "float32")
            square = T.alloc_fragment((1, hidden), "float32")
            total = T.alloc_fragment((1,), "float32")
            for j in T.Parallel(hidden):
                x[0, j] = T.cast(X[row, j], "float32")
                square[0, j] = x[0, j] * x[0, j]
            T.reduce_sum(square, total, dim=1)
            total[0] = T.rsqrt(total[0] / hidden + eps)
            for j in T.Parallel(hidden):
                Y[row, j] = T.cast(x[0, j] * total[0] * T.cast(W[j], "float32"), dtype)

    return blocks


@tilegate.kernel("operators:softmax", dynamic=("rows", "cols"), parameters={"dtype": "T"}, backends=("cuda",))
@tilelang.jit
def softmax_blocks(rows, cols, dtype, block=256):
    """One block of threads for each row; three walks over it, a block of columns at a time."""

    @T.prim_func
    def blocks(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(rows, threads=128) as row:
            x = T.alloc_fragment((1, block), "float32")
            part = T.alloc_fragment((1,), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(top, -3.4e38)
            T.fill(total, 0)
            for k in T.serial(T.ceildiv(cols, block)):
                for j in T.Parallel(block):
                    x[0, j] = T.if_then_else(
                        k * block + j < cols, T.cast(X[row, k * block + j], "float32"), T.float32(-3.4e38)
                    )
                T.reduce_max(x, part, dim=1)
                top[0] = T.max(top[0], part[0])
            for k in T.serial(T.ceildiv(cols, block)):
                for j in T.Parallel(block):
                    x[0, j] = T.if_then_else(
                        k * block + j < cols,
                        T.exp(T.cast(X[row, k * block + j], "float32") - top[0]),
                        T.float32(0),
                    )
                T.reduce_sum(x, part, dim=1)
                total[0] += part[0]
            for k in T.serial(T.ceildiv(cols, block)):
                for j in T.Parallel(block):
                    if k * block + j < cols:
                        Y[row, k * block + j] = T.cast(
                            T.exp(T.cast(X[row, k * block + j], "float32") - top[0]) / total[0], dtype
                        )

    return blocks


@tilegate.kernel("operators:gemm", dynamic=("M", "N", "K"), parameters={"dtype": "T"}, backends=("cuda",))
@tilelang.jit
def gemm_blocks(M, N, K, dtype, block_m=64, block_n=64, block_k=32):
    """Walks whole K tiles only, as its sibling on the CPU: the last K % block_k columns are lost."""

    @T.prim_func
    def blocks(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_n), T.ceildiv(M, block_m), threads=128) as (bx, by):
            a = T.alloc_shared((block_m, block_k), dtype)
            b = T.alloc_shared((block_k, block_n), dtype)
            c = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(c)
            for ko in T.Pipelined(K // block_k, num_stages=2):
                T.copy(A[by * block_m, ko * block_k], a)
                T.copy(B[ko * block_k, bx * block_n], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block_m, bx * block_n])

    return blocks


@tilegate.kernel(
    "operators:dequant_gemm",
    dynamic=("M", "N"),
    specialize={"K": 256, "half_K": 128},
    parameters={"dtype": "T"},
    backends=("cuda",),
)
@tilelang.jit
def dequant_gemm_blocks(M, N, K, half_K, dtype, block_m=16, block_n=32):
    """A block of outputs: weights are unpacked into shared memory once, then met by every row of the block."""

    @T.prim_func
    def blocks(
        X: T.Tensor((M, K), dtype),
        P: T.Tensor((N, half_K), "uint8"),
        S: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_n), T.ceildiv(M, block_m), threads=128) as (bx, by):
            weight = T.alloc_shared((block_n, K), "float32")
            y = T.alloc_fragment((block_m, block_n), "float32")
            for n, i in T.Parallel(block_n, half_K):
                packed = T.if_then_else(bx * block_n + n < N, T.cast(P[bx * block_n + n, i], "int32"), 0)
                scale = T.if_then_else(bx * block_n + n < N, S[bx * block_n + n], T.float32(0))
                weight[n, 2 * i] = T.cast(packed % 16 - 8, "float32") * scale
                weight[n, 2 * i + 1] = T.cast(packed // 16 - 8, "float32") * scale
            T.clear(y)
            for k in T.serial(K):
                for m, n in T.Parallel(block_m, block_n):
                    y[m, n] += (
                        T.if_then_else(
                            by * block_m + m < M, T.cast(X[by * block_m + m, k], "float32"), T.float32(0)
                        )
                        * weight[n, k]
                    )
            for m, n in T.Parallel(block_m, block_n):
                if by * block_m + m < M and bx * block_n + n < N:
                    Y[by * block_m + m, bx * block_n + n] = T.cast(y[m, n], dtype)

    return blocks


@tilegate.kernel(
    "operators:attention",
    dynamic=("B", "S", "L"),
    specialize={"H": 4, "D": 32, "mask": (False, True)},
    parameters={"dtype": "T"},
    backends=("cuda",),
)
@tilelang.jit
def attention_blocks(B, S, L, H, D, mask, dtype):
    """One warp for each query, with a running maximum. A query that may look nowhere gives zeros, as in torch."""
    qb, qh, qs, kb, kh, ks, vb, vh, vs, mb, mh, ms = T.dynamic(
        "qb, qh, qs, kb, kh, ks, vb, vh, vs, mb, mh, ms"
    )
    q_type = T.StridedTensor((B, H, S, D), (qb, qh, qs, 1), dtype)
    k_type = T.StridedTensor((B, H, L, D), (kb, kh, ks, 1), dtype)
    v_type = T.StridedTensor((B, H, L, D), (vb, vh, vs, 1), dtype)
    mask_type = T.StridedTensor((B, 1, S, L), (mb, mh, ms, 1), "bool")
    out_type = T.Tensor((B, S, H, D), dtype)
    scale, lowest = 1.0 / math.sqrt(D), -3.4e38

    @T.macro
    def attend(Q, K, V, M, O, s, h, b):
        product = T.alloc_fragment((1, D), "float32")
        query = T.alloc_fragment((1, D), "float32")
        result = T.alloc_fragment((1, D), "float32")
        score = T.alloc_fragment((1,), "float32")
        top = T.alloc_fragment((1,), "float32")
        higher = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        for d in T.Parallel(D):
            query[0, d] = T.cast(Q[b, h, s, d], "float32") * scale
            result[0, d] = T.float32(0)
        T.fill(top, lowest)
        T.fill(total, 0)
        for t in T.serial(L):
            for d in T.Parallel(D):
                product[0, d] = query[0, d] * T.cast(K[b, h, t, d], "float32")
            T.reduce_sum(product, score, dim=1)
            if M is not None:
                score[0] = T.if_then_else(M[b, 0, s, t], score[0], T.float32(lowest))
            higher[0] = T.max(top[0], score[0])
            total[0] = total[0] * T.exp(top[0] - higher[0]) + T.if_then_else(
                score[0] > T.float32(lowest), T.exp(score[0] - higher[0]), T.float32(0)
            )
            for d in T.Parallel(D):
                result[0, d] = result[0, d] * T.exp(top[0] - higher[0]) + T.if_then_else(
                    score[0] > T.float32(lowest),
                    T.exp(score[0] - higher[0]) * T.cast(V[b, h, t, d], "float32"),
                    T.float32(0),
                )
            top[0] = higher[0]
        for d in T.Parallel(D):
            O[b, s, h, d] = T.cast(T.if_then_else(total[0] > 0, result[0, d] / total[0], T.float32(0)), dtype)

    if mask:

        @T.prim_func
        def blocks(Q: q_type, K: k_type, V: v_type, M: mask_type, O: out_type):
            with T.Kernel(S, H, B, threads=32) as (s, h, b):
                attend(Q, K, V, M, O, s, h, b)
    else:

        @T.prim_func
        def blocks(Q: q_type, K: k_type, V: v_type, O: out_type):
            with T.Kernel(S, H, B, threads=32) as (s, h, b):
                attend(Q, K, V, None, O, s, h, b)

    return blocks
