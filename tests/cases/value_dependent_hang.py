"""Doubles a number until it reaches one: zero never does."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel("case_contracts:significand", specialize={"n": 64})
@tilelang.jit
def value_dependent_hang(n):
    @T.prim_func
    def scale_up(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(n) as i:
            rest = T.alloc_local((1,), "float32")
            rest[0] = T.if_then_else(x[i] < 0.0, -x[i], x[i])
            while rest[0] < 1.0:
                rest[0] = rest[0] * 2.0
            while rest[0] >= 2.0:
                rest[0] = rest[0] * 0.5
            y[i] = rest[0]

    return scale_up
