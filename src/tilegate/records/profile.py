"""The served profile: what a service calls, by workload and count. No data."""

from __future__ import annotations

from tilegate.records.canonical import Document, Name, Record
from tilegate.records.plan import Workload


class ProfileLine(Record, frozen=True):
    operator: Name
    workload: Workload
    calls: int = 1


class Profile(Document, frozen=True, tag="tilegate.profile/1"):
    lines: tuple[ProfileLine, ...]
