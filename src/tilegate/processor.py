"""The processor of this machine, as a device class. Read once, from /proc/cpuinfo."""

from __future__ import annotations

from pathlib import Path

from tilegate.records.target import DeviceClass, cpu_level

CPUINFO = Path("/proc/cpuinfo")


def local_processor() -> DeviceClass:
    """This machine's CPU. An unknown or older one has the architecture `none`, which no target runs on."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return parse_cpuinfo(text)


def parse_cpuinfo(text: str) -> DeviceClass:
    """The first processor of a /proc/cpuinfo."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    level = cpu_level(frozenset(fields.get("flags", "").split()))
    return DeviceClass(backend="cpu", arch=level or "none", model=fields.get("model name", "unknown"))
