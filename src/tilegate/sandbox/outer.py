"""Run by path, before a job: joins its cgroup, and as root shows another user what lies in folders shut to it.

An interpreter under /root, or in somebody's private home, cannot be bound by an unprivileged bubblewrap. In a
mount namespace of its own, each shut folder is covered by an empty one that holds the needed trees, read-only,
at the same paths. Nothing of the machine changes. Standard library only: this runs before anything is found.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

NEW_MOUNTS = 0x00020000
READ_ONLY, NO_SUID, NO_DEVICES, REMOUNT, BIND, MOVE, RECURSIVE, PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    8192,
    16384,
    1 << 18,
)

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    more = data.encode() if data is not None else None
    if _libc.mount(*words, ctypes.c_ulong(flags), more) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount: {os.strerror(number)}", target)


def open_up(shut: list[str], needed: list[str]) -> None:
    """Cover each shut folder, but for the needed trees in it."""
    if _libc.unshare(NEW_MOUNTS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    mount(None, "/", None, RECURSIVE | PRIVATE)
    for folder in shut:
        inside = [path for path in needed if Path(path).is_relative_to(folder)]
        held = [os.open(path, os.O_PATH) for path in inside]
        mount("tmpfs", folder, "tmpfs", NO_SUID | NO_DEVICES, "mode=0755,size=1m")
        for path, descriptor in zip(inside, held, strict=True):
            _show(f"/proc/self/fd/{descriptor}", Path(path))
            os.close(descriptor)
        mount(None, folder, None, REMOUNT | BIND | READ_ONLY | NO_SUID | NO_DEVICES)


def _show(source: str, path: Path) -> None:
    is_folder = Path(source).is_dir()
    os.umask(0o022)
    (path if is_folder else path.parent).mkdir(parents=True, exist_ok=True)
    if not is_folder:
        path.touch()
    mount(source, str(path), None, BIND | RECURSIVE)
    mount(None, str(path), None, REMOUNT | BIND | READ_ONLY | NO_SUID | NO_DEVICES)


def main() -> None:
    order = json.loads(sys.argv[1])
    for door in order["doors"]:
        Path(door).write_text("0")
    if order["shut"]:
        open_up(order["shut"], order["needed"])
    if order["uid"] is not None:
        os.setgroups([])
        os.setresgid(order["uid"], order["uid"], order["uid"])
        os.setresuid(order["uid"], order["uid"], order["uid"])
    os.umask(0o077)
    os.execve(order["command"][0], order["command"], order["environment"])  # noqa: S606


if __name__ == "__main__":
    main()
