"""One symbol for three tensors. The compiler reads it off the first, and nobody compares the others."""

import tilelang
import tilelang.language as T

import tilegate


@tilegate.kernel("case_contracts:shifted", dynamic=("n",))
@tilelang.jit
def dyn_second_arg_short(n, block=64):
    @T.prim_func
    def shift_all(
        x: T.Tensor((n,), "float32"), shift: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")
    ):
        with T.Kernel(T.ceildiv(n, block)) as b:
            for i in T.serial(block):
                if b * block + i < n:
                    y[b * block + i] = x[b * block + i] + shift[b * block + i]

    return shift_all
