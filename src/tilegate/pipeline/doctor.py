"""Doctor: what this machine lacks, and what to type to mend it."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sqlite3
import sys

from tilegate.errors import SandboxError
from tilegate.processor import local_processor
from tilegate.records.report import Check, DoctorReport
from tilegate.sandbox import DESCRIBE, Ending, Job, Level, bubblewrap, landlock, run_job, seccomp
from tilegate.sandbox.missing import MENDS

SERVING, BUILDING = "serving", "building"


def doctor() -> DoctorReport:
    """Look at the machine, the packages and the isolation that a job really gets."""
    return DoctorReport(checks=(*_python(), *_packages(), *_tools(), _processor(), *_isolation()))


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


def _isolation() -> list[Check]:
    """The pieces of the sandbox, and whether they hold together: what stops a job is told in the same words."""
    bwrap, abi = bubblewrap.program(), landlock.abi()
    pieces = {
        "bubblewrap": (bwrap is not None, bubblewrap.version(bwrap) if bwrap else "absent"),
        "landlock": (abi > 0, f"ABI {abi}" if abi else "absent"),
        "seccomp": (seccomp.available(), "filters" if seccomp.available() else "absent"),
    }
    found = [
        Check(name=name, ok=ok, found=said, mend="" if ok else MENDS[name], needed_for=BUILDING)
        for name, (ok, said) in pieces.items()
    ]
    return [*found, *(_trial(level) for level in (Level.FULL, Level.REDUCED))]


def _trial(level: Level) -> Check:
    name = f"isolation {level.value}"
    try:
        result = run_job(Job(task="tilegate.pipeline.doctor:probe", inputs={}), DESCRIBE.at(level))
    except SandboxError as error:
        return Check(name=name, ok=False, found=error.why, mend=error.next_step, needed_for=BUILDING)
    good = result.ending is Ending.FINISHED
    mend = "" if good else "look at what the job printed: tilegate drill sandbox"
    return Check(name=name, ok=good, found=str(result.isolation), mend=mend, needed_for=BUILDING)
