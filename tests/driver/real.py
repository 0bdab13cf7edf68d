"""TileLang's own host code for kernels of several kinds, printed as JSON by a process of its own: importing
TileLang takes seconds, and changes the process."""

import json
import sys

import tilelang.language as T  # noqa: N812 - as TileLang's own pages write it
import tvm
from tvm.target import Target

from tilegate.build.cuda.lower import lower
from tilegate.records.canonical import encode

ARCH = "sm_90a"


def gemm():
    M = T.dynamic("m")

    @T.prim_func
    def body(
        A: T.Tensor((M, 128), "float16"), B: T.Tensor((128, 128), "float16"), C: T.Tensor((M, 128), "float16")
    ):
        with T.Kernel(2, T.ceildiv(M, 64), threads=128) as (bx, by):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[by * 64, k * 32], A_shared)
                T.copy(B[k * 32, bx * 64], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 64, bx * 64])

    return body


def workspace():
    N = T.dynamic("n")

    @T.prim_func
    def body(x: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32")):
        W = T.alloc_global((N,), "float32")
        with T.Kernel(T.ceildiv(N, 256), threads=256) as bx:
            for i in T.Parallel(256):
                if bx * 256 + i < N:
                    W[bx * 256 + i] = x[bx * 256 + i] * 2.0
        with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
            for i in T.Parallel(128):
                if bx * 128 + i < N:
                    y[bx * 128 + i] = W[bx * 128 + i] + 1.0

    return body


def cluster():
    N = T.dynamic("n")

    @T.prim_func
    def body(x: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 256), threads=256, cluster_dims=(2, 1, 1)) as bx:
            for i in T.Parallel(256):
                if bx * 256 + i < N:
                    y[bx * 256 + i] = x[bx * 256 + i] * 2.0

    return body


def window():
    @T.prim_func
    def body(x: T.Tensor((1024,), "float32"), y: T.Tensor((1024,), "float32")):
        with T.Kernel(4, threads=256) as bx:
            T.annotate_l2_hit_ratio({x: 0.5})
            for i in T.Parallel(256):
                y[bx * 256 + i] = x[bx * 256 + i] * 2.0

    return body


def cooperative():
    @T.prim_func
    def body(x: T.Tensor((1024,), "float32"), y: T.Tensor((1024,), "float32")):
        with T.Kernel(4, threads=256) as bx:
            for i in T.Parallel(256):
                y[bx * 256 + i] = x[bx * 256 + i] * 2.0
            T.sync_grid()
            for i in T.Parallel(256):
                y[bx * 256 + i] += x[bx * 256 + i]

    return body


def programmatic():
    @T.prim_func
    def body(x: T.Tensor((1024,), "float32"), y: T.Tensor((1024,), "float32")):
        with T.Kernel(4, threads=256) as bx:
            T.pdl_sync()
            for i in T.Parallel(256):
                y[bx * 256 + i] = x[bx * 256 + i] * 2.0

    return body


if __name__ == "__main__":
    told = {}
    for make in (gemm, workspace, cluster, window, cooperative, programmatic):
        with Target({"kind": "cuda", "arch": ARCH}):
            ir = tvm.ir.save_json(make()).encode()
        lowered = lower(ir, ARCH, {}, shared_bytes=227 * 1024)
        told[make.__name__] = {
            "host": lowered.host,
            "device": lowered.device,
            "kernels": [json.loads(encode(k)) for k in lowered.kernels],
        }
    sys.stdout.write(json.dumps(told))
