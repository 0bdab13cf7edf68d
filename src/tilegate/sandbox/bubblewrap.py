"""The command that starts a job under bubblewrap: every namespace by name, and nothing that is not listed.

`--unshare-all` is not used: where user namespaces were exhausted it went on in the same one and returned 0
(bubblewrap 0.8.0). The environment is cleared twice, for the job and for bubblewrap itself, which is process 1
of the job's namespace and would show its own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilegate.records.isolation import Limits

PROGRAMS = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
"""Never searched in PATH: it is what everything else stands on."""
UID_INSIDE = 1000
SCRATCH = "/tmp"  # noqa: S108 - inside the job's own file system
SHARED_MEMORY_BYTES = 1 << 26

_APART = (
    "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup",
    "--disable-userns", "--assert-userns-disabled",
    "--uid", str(UID_INSIDE), "--gid", str(UID_INSIDE), "--hostname", "tilegate", "--cap-drop", "ALL",
    "--die-with-parent", "--new-session", "--clearenv",
)  # fmt: skip


def program() -> str | None:
    """Path of bubblewrap, or None where it is not installed."""
    return next((path for path in PROGRAMS if _runs(path)), None)


def version(bwrap: str) -> str:
    """What it says of itself: `bubblewrap 0.8.0`."""
    done = subprocess.run(  # noqa: S603 - a program of the system, asked for its version
        [bwrap, "--version"], capture_output=True, text=True, check=False, timeout=20, env={}
    )
    return done.stdout.partition("\n")[0]


def command(
    bwrap: str,
    inner: Sequence[str],
    *,
    reads: Sequence[Path],
    aliases: Mapping[str, str],
    environment: Mapping[str, str],
    limits: Limits,
) -> list[str]:
    """Arguments that run `inner` with `reads` to be seen and `SCRATCH` to be written, both as `limits` say."""
    out = [bwrap, *_APART]
    for name, value in environment.items():
        out += ["--setenv", name, value]
    out += ["--proc", "/proc", "--dev", "/dev"]
    out += ["--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108 - likewise
    out += ["--size", str(limits.scratch_bytes), "--tmpfs", SCRATCH]
    for alias, target in aliases.items():
        out += ["--symlink", target, alias]
    for path in reads:
        out += ["--ro-bind", str(path), str(path)]
    return [*out, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", SCRATCH, "--", *inner]


def _runs(path: str) -> bool:
    try:
        status = Path(path).stat()
    except OSError:
        return False
    return Path(path).is_file() and bool(status.st_mode & 0o001)
