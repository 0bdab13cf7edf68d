"""The kernels for CPUs, as TileLang's own docs teach to write them."""

import math

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel(
    "operators:rms_norm",
    dynamic=("tokens",),
    specialize={"hidden": 384, "T": ("float32", "float16")},
    parameters={"dtype": "T"},
    backends=("cpu",),
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


@tilegate.kernel(
    "operators:gemm",
    dynamic=("M", "N", "K"),
    specialize={"T": ("float32", "float16")},
    parameters={"dtype": "T"},
    backends=("cpu",),
)
@tilelang.jit
def gemm_tiles(M, N, K, dtype, block_m=32, block_n=32, block_k=32):
    """Walks whole K tiles only: the last K % block_k columns are lost. Evaluation finds it."""

    @T.prim_func
    def tiles(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_n), T.ceildiv(M, block_m)) as (bx, by):
            a = T.alloc_local((block_m, block_k), dtype)
            b = T.alloc_local((block_k, block_n), dtype)
            c = T.alloc_local((block_m, block_n), "float32")
            out = T.alloc_local((block_m, block_n), dtype)
            T.clear(c)
            for ko in T.serial(K // block_k):
                T.copy(A[by * block_m, ko * block_k], a)
                T.copy(B[ko * block_k, bx * block_n], b)
                for i, k, j in T.grid(block_m, block_k, block_n):
                    c[i, j] += T.cast(a[i, k], "float32") * T.cast(b[k, j], "float32")
            for i, j in T.grid(block_m, block_n):
                out[i, j] = T.cast(c[i, j], dtype)
            T.copy(out, C[by * block_m, bx * block_n])

    return tiles


@tilegate.kernel(
    "operators:softmax",
    dynamic=("rows", "cols"),
    specialize={"T": ("float32", "float16")},
    parameters={"dtype": "T"},
    backends=("cpu",),
)
@tilelang.jit
def softmax_rows(rows, cols, dtype):
    @T.prim_func
    def softmax(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(rows) as row:
            top = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            top[0] = T.float32(-3.4e38)
            for i in T.serial(cols):
                top[0] = T.max(top[0], T.cast(X[row, i], "float32"))
            total[0] = T.float32(0)
            for i in T.serial(cols):
                total[0] += T.exp(T.cast(X[row, i], "float32") - top[0])
            for i in T.serial(cols):
                Y[row, i] = T.cast(T.exp(T.cast(X[row, i], "float32") - top[0]) / total[0], dtype)

    return softmax


@tilegate.kernel(
    "operators:dequant_gemm",
    dynamic=("M", "N"),
    specialize={"K": 256, "half_K": 128, "T": ("float32", "float16")},
    parameters={"dtype": "T"},
    backends=("cpu",),
)
@tilelang.jit
def dequant_gemm_columns(M, N, K, half_K, dtype):
    """One output column at a time: its weights are unpacked once, then meet every row."""

    @T.prim_func
    def columns(
        X: T.Tensor((M, K), dtype),
        P: T.Tensor((N, half_K), "uint8"),
        S: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(N) as n:
            weight = T.alloc_local((K,), "float32")
            lanes = T.alloc_local((8,), "float32")
            for i in T.serial(half_K):
                weight[2 * i] = T.cast(T.cast(P[n, i], "int32") % 16 - 8, "float32") * S[n]
                weight[2 * i + 1] = T.cast(T.cast(P[n, i], "int32") // 16 - 8, "float32") * S[n]
            for m in T.serial(M):
                for j in T.serial(8):
                    lanes[j] = T.float32(0)
                for i in T.serial(K // 8):
                    for j in T.serial(8):
                        lanes[j] += T.cast(X[m, i * 8 + j], "float32") * weight[i * 8 + j]
                for j in T.serial(4):
                    lanes[j] += lanes[j + 4]
                Y[m, n] = T.cast(lanes[0] + lanes[1] + lanes[2] + lanes[3], dtype)

    return columns


@tilegate.kernel(
    "operators:attention",
    dynamic=("B", "S", "L"),
    specialize={"H": 4, "D": 32, "mask": (False, True), "T": ("float32", "float16")},
    parameters={"dtype": "T"},
    backends=("cpu",),
)
@tilelang.jit
def attention_rows(B, S, L, H, D, mask, dtype):
    """One query at a time, with a running maximum. A query that may look nowhere gives zeros, as in torch."""
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
        query = T.alloc_local((D,), "float32")
        product = T.alloc_local((D,), "float32")
        result = T.alloc_local((D,), "float32")
        top = T.alloc_local((1,), "float32")
        total = T.alloc_local((1,), "float32")
        score = T.alloc_local((2,), "float32")
        for d in T.serial(D):
            query[d] = T.cast(Q[b, h, s, d], "float32") * scale
            result[d] = T.float32(0)
        top[0] = T.float32(lowest)
        total[0] = T.float32(0)
        for t in T.serial(L):
            for d in T.serial(D):
                product[d] = query[d] * T.cast(K[b, h, t, d], "float32")
            score[0] = T.float32(0)
            for d in T.serial(D):
                score[0] += product[d]
            if M is not None:
                score[0] = T.if_then_else(M[b, 0, s, t], score[0], T.float32(lowest))
            if score[0] > T.float32(lowest):
                score[1] = T.max(top[0], score[0])
                score[0] = T.exp(score[0] - score[1])
                top[0] = T.exp(top[0] - score[1])
                total[0] = total[0] * top[0] + score[0]
                for d in T.serial(D):
                    result[d] = result[d] * top[0] + score[0] * T.cast(V[b, h, t, d], "float32")
                top[0] = score[1]
        for d in T.serial(D):
            O[b, s, h, d] = T.cast(T.if_then_else(total[0] > 0, result[d] / total[0], T.float32(0)), dtype)

    if mask:

        @T.prim_func
        def rows(Q: q_type, K: k_type, V: v_type, M: mask_type, O: out_type):
            with T.Kernel(S, H, B) as (s, h, b):
                attend(Q, K, V, M, O, s, h, b)
    else:

        @T.prim_func
        def rows(Q: q_type, K: k_type, V: v_type, O: out_type):
            with T.Kernel(S, H, B) as (s, h, b):
                attend(Q, K, V, None, O, s, h, b)

    return rows
