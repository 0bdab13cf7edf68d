"""Which files a job sees, found on this machine: the interpreter, its packages, system libraries, compilers."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilegate.records.isolation import Reads

PACKAGE = Path(__file__).parents[1]
"""tilegate itself: both sides of the wall run the same."""
LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/etc/ld.so.cache")
PROGRAMS = ("/usr/bin", "/usr/include", "/usr/libexec", "/etc/alternatives", "/usr/local/cuda")
"""Where compilers usually are; those that PATH finds elsewhere are shown besides."""
ALIASES = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
"""Links into /usr on most systems, folders of their own on some."""
SYSTEM = (Path("/usr"), Path("/usr/local"))
"""Prefixes too large to be shown as a whole."""
DRIVERS = ("/usr/local/nvidia", "/usr/share/nvidia", "/etc/nvidia", "/proc/driver/nvidia", "/sys")
"""What CUDA's driver reads beside the system's libraries."""
TOOLS = ("gcc", "g++", "ld", "nvcc")
CUDA_PROGRAMS = "/usr/local/cuda/bin"


def visible(reads: Iterable[Reads], more: Sequence[str] = ()) -> tuple[Path, ...]:
    """Files and folders that a job may read, none inside another, each as it is spelled and as it really is."""
    wanted = [PACKAGE, *_python(), *map(Path, LIBRARIES), *map(Path, more)]
    wanted += [alias for alias in map(Path, ALIASES) if alias.is_dir() and not alias.is_symlink()]
    if Reads.COMPILERS in reads:
        wanted += [*map(Path, PROGRAMS), *_tool_folders()]
    if Reads.DRIVER in reads:
        wanted += map(Path, DRIVERS)
    spelled = {Path(os.path.abspath(path)) for path in wanted if path.exists()}  # noqa: PTH100 - links stay
    return _outermost(spelled | {path.resolve() for path in spelled})


def nodes() -> tuple[Path, ...]:
    """Device nodes of the GPUs' driver."""
    return tuple(
        path for path in sorted(Path("/dev").glob("nvidia*")) if path.is_char_device() or path.is_dir()
    )


def aliases() -> dict[str, str]:
    """Links at the root of the file system, with where they point."""
    return {alias: os.readlink(alias) for alias in ALIASES if Path(alias).is_symlink()}  # noqa: PTH115


def search_path(reads: Iterable[Reads], seen: Sequence[Path]) -> str:
    """PATH of a job: the caller's, as far as the job sees it, and CUDA's programs where it may compile."""
    here = [Path(entry) for entry in os.get_exec_path() if Path(entry).is_absolute()]
    cuda = [Path(CUDA_PROGRAMS)] if Reads.COMPILERS in reads and Path(CUDA_PROGRAMS).is_dir() else []
    kept = [path for path in (*cuda, *here) if any(path.is_relative_to(tree) for tree in seen)]
    return os.pathsep.join(dict.fromkeys(map(str, kept)))


def _python() -> list[Path]:
    executable = Path(sys.executable)
    links = [executable]
    while links[-1].is_symlink():
        links.append(links[-1].parent / links[-1].readlink())
    prefixes = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    paths = sysconfig.get_paths()
    packages = [Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packages += [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return [*links, *packages, *(prefix for prefix in prefixes if prefix not in SYSTEM)]


def _tool_folders() -> list[Path]:
    """Where a compiler lives outside the system's folders: all that was installed with it."""
    found = [Path(tool).resolve() for name in TOOLS if (tool := shutil.which(name))]
    return [tool.parents[1] for tool in found if tool.parents[1] not in (*SYSTEM, Path("/"))]


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    kept: list[Path] = []
    for path in sorted(paths):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return tuple(kept)


def shut(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Folders above or at these paths that another user may not pass through."""
    closed: dict[Path, None] = {}
    for path in paths:
        for folder in (*reversed(path.parents), path):
            if folder.is_dir() and not folder.stat().st_mode & 0o001:
                closed[folder] = None
                break
    return tuple(closed)
