"""Kernels built for CUDA targets without a GPU, all of a file in one sandbox for each job; and what is missing."""

import fcntl
import os
import shutil
import struct

import pytest

from tests.elaborations import closure_of
from tilegate.build import jobs
from tilegate.build.cuda import headers
from tilegate.build.toolchain import read_toolchain
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import decode, encode
from tilegate.records.target import Target
from tilegate.records.trace import CompilerTrace
from tilegate.rules.expansion import expand

NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
NVRTC = headers.nvrtc_folder() if headers.toolkit() and NVCC else None
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="not installed: nvcc")
needs_nvrtc = pytest.mark.skipif(
    NVRTC is None,
    reason="not installed: nvidia-cuda-nvrtc 13 beside the headers and ptxas of the CUDA toolkit",
)


def build_all(folder, cases, *, way=None, parallel=2):
    """What became of each case: `Built` or a compiler trace, by its name.

    Args:
        folder: holds the kernels' modules.
        cases: (contract, binding, target) by name; each with one specialization.
        way: `nvrtc` or `nvcc`.
        parallel: how many jobs run at once.
    """
    asked, sources, targets = [], {}, {}
    for name, (contract, binding, target) in cases.items():
        closure, files = closure_of(folder, binding)
        sources |= files
        [one] = expand(binding, contract)
        targets[name] = Target.parse(target)
        asked.append(jobs.Asked(closure, contract, one, targets[name].lowering))
    found = dict(zip(cases, jobs.elaborate(asked, sources, parallel=parallel), strict=True))
    good = [name for name, one in found.items() if isinstance(one, jobs.Elaborated)]
    pairs = [(found[name], targets[name]) for name in good]
    with jobs.compiler([target for _, target in pairs], read_toolchain(way), parallel=parallel) as compiled:
        made = compiled(pairs)
    return found | dict(zip(good, made, strict=True))


def built_once(tmp_path_factory, name, kernels, cases):
    """`build_all`, once for all processes of a test run: the first to come does it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            (folder / "kernels.py").write_text(kernels)
            for number, one in enumerate(build_all(folder, cases).values()):
                record = one.manifest if isinstance(one, jobs.Built) else one
                (folder / f"{number}.json").write_bytes(encode(record))
                if isinstance(one, jobs.Built):
                    (folder / f"{number}.so").write_bytes(one.library)
            (folder / "done").touch()
    return {case: _read(folder, number) for number, case in enumerate(cases)}


def _read(folder, number):
    record, library = (folder / f"{number}.json").read_bytes(), folder / f"{number}.so"
    if library.exists():
        return jobs.Built(decode(Manifest, record, where="a manifest"), library.read_bytes())
    return decode(CompilerTrace, record, where="a trace")


def embedded_cubin(library):
    """The device binary inside a library: an ELF file of machine 190, to the end of its section headers."""
    at = library.index(b"\x7fELF", 4)
    assert struct.unpack_from("<H", library, at + 18)[0] == 190
    headers_at = struct.unpack_from("<Q", library, at + 40)[0]
    size, count = struct.unpack_from("<HH", library, at + 58)
    return library[at : at + headers_at + size * count]
