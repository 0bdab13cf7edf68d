"""Which candidates of a release a device serves, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tilegate.records.policy import Policy
from tilegate.records.release import Candidate
from tilegate.records.target import CUDA_ARCHS, X86_64_LEVELS, DeviceClass, Target, runs_on

T = TypeVar("T")


def unfit(candidate: Candidate, policy: Policy, device: DeviceClass) -> str:
    """Why a candidate may not serve on a device, in words; empty where it may."""
    if not runs_on(candidate.target, device):
        return f"built for {candidate.target}; this is {device}"
    if policy.same_processor_model and device not in candidate.devices:
        models = ", ".join(sorted({d.model for d in candidate.devices}))
        return f"evaluated on {models}; this is {device.model}"
    return ""


def preferred(found: Iterable[tuple[Target, T]]) -> list[T]:
    """The best instruction set first; within one, the order given, which is the release's. No device runs code
    for two backends, so how those stand to each other does not matter.
    """
    levels = [*CUDA_ARCHS, *X86_64_LEVELS]
    return [one for _, one in sorted(found, key=lambda pair: -levels.index(pair[0].arch))]
