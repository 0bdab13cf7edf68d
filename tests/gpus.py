"""Serving on GPUs that this machine lacks: parts whose launcher calls the stand-in driver, and tensors that pass
for torch's own. The call sites, the guard and the launcher are the product's.
"""

from __future__ import annotations

import torch

from tests import world
from tests.driver.hosts import SCALE, SCALE_KERNEL
from tests.driver.standin import DeviceTensor, library_bytes, standin
from tilegate.device import Gpu, cuda_class
from tilegate.records.artifact import ABI, Manifest
from tilegate.records.canonical import blob_of
from tilegate.records.target import Target
from tilegate.runtime import compiled, opaque

H200 = cuda_class(9, 0, "NVIDIA H200")
L4 = cuda_class(8, 9, "NVIDIA L4")
T4 = cuda_class(7, 5, "Tesla T4")


class GpuTensor(DeviceTensor):
    """Says of itself what torch would. Its arithmetic tells that the reference was asked."""

    def __init__(self, *shape, device=0, bits=32):
        super().__init__(*shape, device=device, bits=bits)
        self.shape, self.dtype = shape, {32: torch.float32, 64: torch.float64}[bits]
        self.device, self.is_cuda, self.requires_grad = torch.device("cuda", device), True, False
        self.touched = 0

    def get_device(self):
        return self.device.index

    def is_neg(self):
        return False

    def is_inference(self):
        return False

    def numel(self):
        return torch.Size(self.shape).numel()

    def stride(self):
        return torch.empty(self.shape, device="meta").stride()

    def __rmul__(self, factor):
        return f"reference times {factor}"

    def mul_(self, factor):
        self.touched = factor
        return self


def part(
    contract, arch="sm_90a", *, host=SCALE, kernels=(SCALE_KERNEL,), classes=(), kernel="body", cubin=b""
):
    """An artifact for a CUDA architecture: over the stand-in driver, or with a cubin over the real one."""
    host = f"/* {arch} {kernel} */{host}"
    driver = None if cubin else standin().path
    identity, library = library_bytes(contract, host, kernels, driver=driver, cubin=cubin)
    manifest = Manifest(
        abi=ABI,
        elaboration=world.elaboration_of(contract, kernel=kernel),
        target=Target.parse(f"cuda:{arch}"),
        toolchain=world.TOOLCHAIN,
        isolation=(world.ISOLATION,),
        identity=identity,
        library=blob_of(library),
        kernels=tuple(kernels),
    )
    return world.Part(contract, manifest, library, world.candidate_of(manifest, *classes))


def pretend(monkeypatch, driver, *devices, speaks="13.0"):
    names = compiled.torch_names()
    likewise = {
        "_tg_Tensor": GpuTensor,
        "_tg_Parameter": torch.Tensor,  # tensors of the processor are still served
        "_tg_empty_like": lambda x: (
            GpuTensor(*x.shape, device=x.get_device()) if x.is_cuda else torch.empty_like(x)
        ),
        "_tg_touched": lambda x: setattr(x, "touched", x.touched + 1),
    }
    for module in (compiled, opaque):
        monkeypatch.setattr(module, "torch_names", lambda: names | likewise)
    found = tuple(Gpu(device, 0, {"cuda driver": speaks}) for device in devices)
    monkeypatch.setattr("tilegate.device.gpus", lambda: found)
    return driver
