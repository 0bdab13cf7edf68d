"""Divides factors of two out of every number, one at a time: zero never runs out of them."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel("case_contracts:odd_part", specialize={"n": 64})
@tilelang.jit
def value_dependent_hang(n):
    @T.prim_func
    def halve(x: T.Tensor((n,), "int32"), y: T.Tensor((n,), "int32")):
        with T.Kernel(n) as i:
            rest = T.alloc_local((1,), "int32")
            rest[0] = x[i]
            while rest[0] % 2 == 0:
                rest[0] = rest[0] // 2
            y[i] = rest[0]

    return halve
