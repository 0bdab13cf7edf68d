"""The kernels. g++ keeps the order of every sum and vectorises no call of libm, and nobody asks it to be less
exact: so sums run in lanes, and exp is written out.
"""

import math

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
    """A row at a time, in two passes over it: the mean first, then the variance around the mean."""
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


@tilegate.kernel(
    "operators:attention",
    dynamic=("B", "S", "L"),
    specialize={"H": 12, "D": 32, "mask": (False, True)},
    constants={"keys": 32, "lanes": 8},
)
@tilelang.jit
def attention_rows(B, S, L, H, D, mask, keys, lanes):
    """One query meets `keys` keys at a time, with a running maximum; what it may not see is skipped.

    A query that may look nowhere gives zeros, as in torch.
    """
    assert D % lanes == 0, "a query is walked in whole steps of all lanes"
    qb, qh, qs, kb, kh, ks, vb, vh, vs, mb, mh, ms = T.dynamic(
        "qb, qh, qs, kb, kh, ks, vb, vh, vs, mb, mh, ms"
    )
    q_type = T.StridedTensor((B, H, S, D), (qb, qh, qs, 1), "float32")
    k_type = T.StridedTensor((B, H, L, D), (kb, kh, ks, 1), "float32")
    v_type = T.StridedTensor((B, H, L, D), (vb, vh, vs, 1), "float32")
    mask_type = T.StridedTensor((B, 1, S, L), (mb, mh, ms, 1), "bool")
    out_type = T.Tensor((B, S, H, D), "float32")
    scale, lowest, unseen = 1.0 / math.sqrt(D), -1e38, -3e38  # from lowest to unseen, exp is 0

    @T.macro
    def attend(Q, K, V, M, O, b, h, s):
        query = T.alloc_local((D,), "float32")
        part = T.alloc_local((lanes,), "float32")
        weight = T.alloc_local((keys,), "float32")
        result = T.alloc_local((D,), "float32")
        total = T.alloc_local((1,), "float32")
        top = T.alloc_local((1,), "float32")
        shrink = T.alloc_local((1,), "float32")
        for d in T.serial(D):
            query[d] = Q[b, h, s, d] * scale
        T.clear(result)
        T.clear(total)
        T.fill(top, lowest)
        for first in T.serial(0, L, keys):
            shrink[0] = top[0]
            T.fill(weight, unseen)
            for i in T.serial(T.min(keys, L - first)):
                if M is None or M[b, 0, s, first + i]:
                    T.clear(part)
                    for step, lane in T.grid(D // lanes, lanes):
                        part[lane] += query[step * lanes + lane] * K[b, h, first + i, step * lanes + lane]
                    weight[i] = T.float32(0)
                    for lane in T.serial(lanes):
                        weight[i] += part[lane]
                    top[0] = T.max(top[0], weight[i])
            for i in T.serial(keys):
                weight[i] = exp(weight[i] - top[0])

            shrink[0] = exp(shrink[0] - top[0])
            total[0] *= shrink[0]
            for d in T.serial(D):
                result[d] *= shrink[0]
            for i in T.serial(T.min(keys, L - first)):
                if M is None or weight[i] > 0:
                    total[0] += weight[i]
                    for d in T.serial(D):
                        result[d] += weight[i] * V[b, h, first + i, d]
        for d in T.serial(D):
            O[b, s, h, d] = T.if_then_else(total[0] > 0, result[d] / total[0], 0.0)

    if mask:

        @T.prim_func
        def rows(Q: q_type, K: k_type, V: v_type, M: mask_type, O: out_type):
            with T.Kernel(B, H, S) as (b, h, s):
                attend(Q, K, V, M, O, b, h, s)
    else:

        @T.prim_func
        def rows(Q: q_type, K: k_type, V: v_type, O: out_type):
            with T.Kernel(B, H, S) as (b, h, s):
                attend(Q, K, V, None, O, b, h, s)

    return rows


@tilegate.kernel("operators:gelu", dynamic=("tokens", "width"))
@tilelang.jit
def gelu_rows(tokens, width):
    """By the normal distribution's tail beyond |x|: 1 + erf(x) would cancel where x is negative."""

    @T.prim_func
    def rows(X: T.Tensor((tokens, width), "float32"), Y: T.Tensor((tokens, width), "float32")):
        with T.Kernel(tokens) as row:
            for i in T.serial(width):
                size = T.max(X[row, i], -X[row, i])
                Y[row, i] = T.max(X[row, i], 0.0) - size * normal_tail(size)

    return rows


POWER_OF_2 = (1.8775767e-3, 8.9893397e-3, 5.5826318e-2, 2.4015361e-1, 6.9315308e-1, 9.9999994e-1)
"""2**x for 0 <= x < 1, the highest power first; relative error below 2e-7 with the 7 digits TileLang prints."""

MILLS = (
    0.038323303, -0.16889856, 0.22810674, -0.075872814, 0.14209723, 0.094870518, 0.12187241, 0.11949442,
    6.7727642e-06,
)  # fmt: skip
"""P(X > x) * exp(x**2 / 2) for a normal X, in powers of 1 / (1 + 0.3 * x); likewise below 3e-7 up to x = 13."""


def exp(x):
    """e**x for x <= 0: whole powers of 2 by their bits, the rest by a polynomial. Below 2**-126 it is 0."""
    power = T.max(x * math.log2(math.e), -127.0)
    whole = T.floor(power)
    bits = (T.cast(whole, "int32") + 127) * 2**23
    return polynomial(POWER_OF_2, power - whole) * T.reinterpret(bits, "float32")


def normal_tail(x):
    """P(X > x) for a normal X and x >= 0."""
    return exp(x * x * -0.5) * polynomial(MILLS, 1.0 / (1.0 + 0.3 * x))


def polynomial(coefficients, x):
    """By Horner's rule."""
    total = T.float32(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + T.float32(coefficient)
    return total
