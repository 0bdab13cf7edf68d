"""The job that asks which GPU an evaluation would run on: the driver is not opened outside of jobs."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Mapping

from tilegate.device import gpus
from tilegate.errors import ToolError
from tilegate.evaluate.requests import FoundGpu
from tilegate.records.canonical import decode, encode
from tilegate.records.isolation import JobPolicy, Level
from tilegate.sandbox import Ending, Job, last_words, run_job

ADDRESS_BYTES = 1 << 46
"""A GPU's driver reserves addresses by the terabyte: no limit of theirs means anything."""

PACKAGES = ("torch", "apache-tvm-ffi", "tilegate")


def driven(policy: JobPolicy) -> JobPolicy:
    """The policy for the same work on a GPU: at level `gpu`, unless no isolation is asked for."""
    level = policy.level if policy.level is Level.NONE else Level.GPU
    return policy.at(level).within(memory_bytes=ADDRESS_BYTES)


def look(_inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """Sends one `gpu` frame, or none where there is no GPU."""
    for gpu in gpus()[:1]:
        found = FoundGpu(device=gpu.device, versions=dict(gpu.versions), l2_bytes=gpu.l2_bytes)
        emit("gpu", encode(found))


def find_gpu(policy: JobPolicy) -> FoundGpu | None:
    """The GPU that jobs under this policy get, or None where they get none.

    Raises:
        ToolError: the job that asks the driver did not end as it should.
    """
    result = run_job(Job(task="tilegate.evaluate.devices:look", inputs={}), policy)
    if result.ending is not Ending.FINISHED:
        raise ToolError(
            "the GPU's driver could not be asked",
            where=str(result.isolation),
            why=last_words(result.output) or f"the job ended: {result.ending.value}",
            next_step="tilegate doctor; nvidia-smi",
        )
    for name, data in result.frames:
        if name == "gpu":
            return decode(FoundGpu, data, where="what a job says of the GPU")
    return None


def versions() -> dict[str, str]:
    """Of what an evaluation runs with, read without importing any of it; `absent` where it is not installed."""
    found = {"kernel": platform.release(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found
