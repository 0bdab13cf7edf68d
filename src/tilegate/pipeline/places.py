"""Where artifacts can run on this machine: its processor, and its GPU where one is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilegate.evaluate.devices import driven, find_gpu, versions
from tilegate.processor import local_processor
from tilegate.records.isolation import JobPolicy
from tilegate.records.target import DeviceClass, Target, runs_on
from tilegate.sandbox.trees import nodes


@dataclass(frozen=True, slots=True)
class Place:
    """One device, and how jobs run there."""

    device: DeviceClass
    versions: dict[str, str]
    policy: JobPolicy

    @property
    def on_gpu(self) -> bool:
        return self.device.backend != "cpu"


class Places:
    """The devices of this machine. A GPU's driver is asked, in a job, only where a target needs it.

    Args:
        targets: what is to be run.
        policy: of workers on the processor. Those on a GPU run at level `gpu`, unless it is `none`.

    Raises:
        SandboxError, ToolError: the driver cannot be asked.
    """

    def __init__(self, targets: Iterable[Target], policy: JobPolicy) -> None:
        self.processor = Place(local_processor(), versions(), policy)
        self._all = [self.processor]
        if any(target.backend == "cuda" for target in targets) and nodes():
            on_gpu = driven(policy)
            gpu = find_gpu(on_gpu)
            if gpu is not None:
                self._all.append(Place(gpu.device, versions() | gpu.versions, on_gpu))

    def for_target(self, target: Target) -> Place | None:
        """Where a target can run, or None."""
        return next((place for place in self._all if runs_on(target, place.device)), None)
