"""Doctor: what this machine lacks, and what to type to mend it."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sqlite3
import sys

from tilegate.processor import local_processor
from tilegate.records.report import Check, DoctorReport
from tilegate.sandbox import Ending, Job, run_job
from tilegate.sandbox.policy import DESCRIBE

SERVING, BUILDING = "serving", "building"


def doctor() -> DoctorReport:
    """Look at the machine, the packages and the isolation that a job really gets."""
    return DoctorReport(checks=(*_python(), *_packages(), *_tools(), _processor(), _isolation()))


def probe(inputs: object, emit: object) -> None:
    """A job that does nothing: its isolation is the finding."""


def _python() -> list[Check]:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    return [
        Check(name="python", ok=good, found=version, mend="" if good else "install Python 3.11 or newer"),
        Check(name="sqlite", ok=True, found=sqlite3.sqlite_version, needed_for=BUILDING),
        Check(
            name="system",
            ok=sys.platform == "linux",
            found=f"{platform.system()} {platform.machine()}",
            mend="" if sys.platform == "linux" else "CPU artifacts are served on Linux only",
        ),
    ]


def _packages() -> list[Check]:
    wanted = {
        "torch": (SERVING, "pip install 'torch>=2.6'"),
        "apache-tvm-ffi": (SERVING, "pip install tilegate"),
        "msgspec": (SERVING, "pip install tilegate"),
        "tilelang": (BUILDING, "pip install 'tilegate[build]'"),
    }
    found: list[Check] = []
    for package, (use, mend) in wanted.items():
        version = _version(package)
        found.append(
            Check(
                name=package,
                ok=version is not None,
                found=version or "absent",
                mend="" if version else mend,
                needed_for=use,
            )
        )
    return [*found, _pair()]


def _pair() -> Check:
    """TileLang and its ffi must be of one set: a patch release apart, the import ends the process."""
    tilelang, ffi = _version("tilelang"), _version("apache-tvm-ffi")
    wanted = next((r for r in _requirements("tilelang") if r.startswith("apache-tvm-ffi")), "")
    pinned = wanted.partition("==")[2].split(";")[0].strip(" ()")
    good = not pinned or pinned == ffi
    return Check(
        name="tilelang with apache-tvm-ffi",
        ok=good,
        found=f"{tilelang or 'absent'} with {ffi or 'absent'}",
        mend="" if good else f"pip install apache-tvm-ffi=={pinned}",
        needed_for=BUILDING,
    )


def _requirements(package: str) -> list[str]:
    try:
        return importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tools() -> list[Check]:
    return [
        Check(
            name=tool,
            ok=shutil.which(tool) is not None,
            found="present" if shutil.which(tool) else "absent",
            mend="" if shutil.which(tool) else "apt-get install gcc g++",
            needed_for=BUILDING,
        )
        for tool in ("gcc", "g++")
    ]


def _processor() -> Check:
    device = local_processor()
    good = device.arch != "none"
    return Check(
        name="processor",
        ok=good,
        found=str(device),
        mend="" if good else "calls go to the references: no CPU target runs here",
        needed_for=SERVING,
    )


def _isolation() -> Check:
    result = run_job(Job(task="tilegate.pipeline.doctor:probe", inputs={}), DESCRIBE)
    good = result.ending is Ending.FINISHED and result.isolation.level == "namespaces"
    mend = "run where unprivileged user namespaces are allowed, or as root"
    return Check(
        name="isolation of jobs",
        ok=good,
        found=str(result.isolation),
        mend="" if good else mend,
        needed_for=BUILDING,
    )
