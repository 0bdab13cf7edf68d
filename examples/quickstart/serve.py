"""The serving side: what a program that calls the operators does, and what it can ask.

Run it after `tilegate build`, `tilegate evaluate` and `tilegate promote` in this folder.
"""

from pathlib import Path

import torch
from operators import gemm, rms_norm

import tilegate

RELEASE = Path(__file__).parent / "release"

a, b = torch.randn(64, 128), torch.randn(128, 64)
ragged_a, ragged_b = torch.randn(64, 100), torch.randn(100, 64)
x, weight = torch.randn(7, 384), torch.nn.Parameter(torch.ones(384))

before = gemm(a, b)  # no release is in use: this is the PyTorch below @tilegate.operator

tilegate.use(RELEASE, allow_unsigned=True)

torch.testing.assert_close(gemm(a, b), before)  # a tested binary
assert torch.equal(gemm(ragged_a, ragged_b), ragged_a @ ragged_b)  # the reference: no evidence for K=100
with torch.no_grad():
    rms_norm(x, weight)  # a tested binary
rms_norm(x, weight)  # the reference: a kernel has no gradient

print("explain(): who answers one call, and why\n")
for one in (tilegate.explain(gemm, a, b), tilegate.explain(gemm, ragged_a, ragged_b)):
    print(f"  {one.operator}: {one.kernel or 'the reference'}")
    print(f"    {one.shape_class or one.misses[0]}")

print("\nstats(): who answered since use()\n")
for name, counts in tilegate.stats().items():
    print(f"  {name}: {counts.hit_rate:.0%} served by tested binaries")
    for who, calls in (counts.hits | counts.misses).items():
        print(f"    {calls} x {who}")

print("\npreflight(): which of the workloads that we say we serve will miss\n")
for prediction in tilegate.preflight():
    mark = "ok  " if prediction.miss is None else "MISS"
    why = "" if prediction.miss is None else f": {prediction.miss.reason.value}"
    print(f"  {mark}  {prediction.line.operator}, {prediction.line.workload}{why}")
