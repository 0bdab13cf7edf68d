"""The compiler's flags make a kernel faster, never different."""

import ctypes
import subprocess

import pytest
import torch

from tilegate.build.compile import COMMON

ARITHMETIC = """
#include <math.h>
__attribute__((visibility("default"))) void run(const float *x, float *y, int n) {
  float total = 0;
  for (int i = 0; i < n; ++i) total += x[i];
  y[0] = total;
  for (int i = 0; i < n; ++i) {
    float low = x[i] > -87.0f ? x[i] : -87.0f;
    float chosen = x[i] != x[i] ? 1.0f : x[i] < 0.0f ? floorf(low) * 3.0f : sqrtf(x[i]);
    y[1 + i] = chosen;
    y[1 + n + i] = 1.0f / (1.0f / x[i]) + 0.0f * (x[i] - x[i]);
    y[1 + 2 * n + i] = (x[i] + 16777216.0f) - 16777216.0f;
  }
}
"""


def results(folder, *flags):
    """What the code gives on ordinary and on odd numbers, all NaNs made one."""
    folder.mkdir()
    (folder / "code.c").write_text(ARITHMETIC)
    command = ["gcc", "-shared", "-fPIC", "-ffp-contract=off", *flags, "code.c", "-o", "code.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    odd = [0.0, -0.0, 1e-45, -1e-45, 1e-39, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]
    x = torch.cat((torch.tensor(odd), torch.randn(1000, generator=torch.Generator().manual_seed(1)) * 100))
    totals = []
    for inputs in (x, x[len(odd) :]):  # with odd numbers every sum is NaN
        y = torch.empty(1 + 3 * inputs.numel())
        ctypes.CDLL(str(folder / "code.so")).run(
            ctypes.c_void_p(inputs.data_ptr()), ctypes.c_void_p(y.data_ptr()), inputs.numel()
        )
        totals.append(torch.where(y.isnan(), float("nan"), y).view(torch.int32))
    return torch.cat(totals)


@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_flags_change_no_bit_of_a_result(tmp_path, level):
    plain = results(tmp_path / "plain", "-O0")
    assert torch.equal(results(tmp_path / "ours", level, "-march=x86-64-v3", *COMMON), plain)


@pytest.mark.parametrize(
    "flags", [("-ffinite-math-only",), ("-fassociative-math", "-fno-signed-zeros"), ("-freciprocal-math",)]
)
def test_parts_of_fast_math_change_results(tmp_path, flags):
    """What the test above would see. (-ffast-math itself would change how this process rounds, too.)"""
    plain = results(tmp_path / "plain", "-O0")
    assert not torch.equal(results(tmp_path / "fast", "-O3", *flags, *COMMON), plain)
