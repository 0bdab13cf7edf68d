"""What a release comes to on one machine, told when it is loaded: a call is too late to learn of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilegate.runtime.force import artifact_name
from tilegate.runtime.load import Loaded, Table
from tilegate.runtime.unserved import Unserved


@dataclass(frozen=True, slots=True)
class InUse:
    """What a release comes to on this machine."""

    version: int
    devices: tuple[str, ...]
    """All that were looked at: GPUs only where the release has something for them."""
    served: dict[str, tuple[str, ...]]
    """By operator: its artifacts, and where each runs."""
    references: dict[str, str]
    """Declared operators that no artifact here serves, and why."""
    skipped: tuple[str, ...]
    """Artifacts of the release that do not run here, or not on all devices, and why."""

    def __str__(self) -> str:
        lines = [f"release {self.version} on {', '.join(self.devices)}"]
        lines += [f"  {name}: {one}" for name, found in self.served.items() for one in found]
        lines += [f"  {name}: the reference ({why})" for name, why in self.references.items()]
        return "\n".join([*lines, *(f"  not here: {why}" for why in self.skipped)])


def in_use(table: Table, answers: Mapping[str, object]) -> InUse:
    """What a table comes to, given what answers for each declared operator."""
    unserved = {name: one.reason.value for name, one in answers.items() if isinstance(one, Unserved)}
    return InUse(
        version=table.release.version,
        devices=tuple(f"{place} ({place.device.arch}, {place.device.model})" for place in table.places),
        served={
            name: tuple(_told(one, table) for one in table.loaded[name])
            for name in answers
            if name in table.loaded and name not in unserved
        },
        references=unserved,
        skipped=tuple(str(one) for one in table.skipped),
    )


def _told(one: Loaded, table: Table) -> str:
    where = ", ".join(str(place) for place in table.places if place.number in one.places)
    return f"{artifact_name(one.candidate)} on {where}"
