"""When a compile worker makes precompiled headers before it forks, and the room that they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilegate.build.cuda.nvrtc import IMAGE_BYTES, WORTH_PRIMING
from tilegate.records.isolation import JobPolicy
from tilegate.records.target import Target

_MODULES = "tilegate.build.cuda.primed"


def primed(targets: Sequence[Target], compiler: str | None) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """What a worker imports first and last, and bytes of scratch beyond the usual: nothing where it does not pay.

    Args:
        targets: of the artifacts that the worker is to make.
        compiler: for CUDA; only NVRTC has use for headers.
    """
    if compiler != "nvrtc":
        return (), (), 0
    counted = Counter(target.arch for target in targets if target.backend == "cuda")
    archs = [arch for arch, count in counted.items() if count >= WORTH_PRIMING]
    if not archs:
        return (), (), 0
    return tuple(f"{_MODULES}.{arch}" for arch in archs), (f"{_MODULES}.ready",), IMAGE_BYTES * len(archs)


def with_room(policy: JobPolicy, scratch_bytes: int) -> JobPolicy:
    """The policy with room for headers: they lie in memory, in the workers' scratch folder."""
    if not scratch_bytes:
        return policy
    limits = policy.limits
    return policy.within(
        scratch_bytes=limits.scratch_bytes + scratch_bytes,
        file_bytes=max(limits.file_bytes, IMAGE_BYTES),
        job_bytes=limits.job_bytes + scratch_bytes,
    )
