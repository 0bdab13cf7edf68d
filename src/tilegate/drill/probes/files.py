"""At files outside the job, and with tricks inside its own folder."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tilegate.drill.probes.attempt import after, each, escaped, libc, reads, refused, spelled, syscall, tried
from tilegate.drill.props import Props
from tilegate.records.drill import Claim

_DEPTH = 300
_WHITEOUT = 4
_FOLLOW = 0x400
_SET_ID = stat.S_ISUID | stat.S_ISGID


def _each_file(paths: tuple[str, ...], touch: Callable[[str], Claim]) -> Claim:
    return each(*(partial(touch, path) for path in paths))


def _create(path: str) -> Claim:
    with Path(path).open("xb") as file:
        file.write(b"drill")
    return tried("written")


def _append(path: str) -> Claim:
    with Path(path).open("ab") as file:
        file.write(b"\n# drill\n")
    return tried("written")


def write_outside(props: Props) -> Claim:
    return _each_file(props.outside, _create)


def write_open_folder(props: Props) -> Claim:
    return _create(f"{props.open_folder}/new")


def overwrite_secret(props: Props) -> Claim:
    return _append(f"{props.open_folder}/file.txt")


def truncate_file(props: Props) -> Claim:
    os.truncate(f"{props.open_folder}/file.txt", 0)
    return tried("truncated")


def list_outside(props: Props) -> Claim:
    names = {entry.name for entry in Path(props.folder).iterdir()}
    return escaped("sees the secret") if "secret.txt" in names else refused(f"sees {sorted(names)}")


def poison_package(props: Props) -> Claim:
    return each(
        lambda: _append(f"{props.package}/__init__.py"),
        lambda: _create(f"{props.package}/planted.py"),
    )


def poison_bytecode(props: Props) -> Claim:
    return each(
        lambda: _append(f"{props.package}/__pycache__/__init__.pyc"),
        lambda: _create(f"{props.package}/__pycache__/planted.pyc"),
    )


def plant_pth(props: Props) -> Claim:
    """Python runs such a file whenever it starts."""
    return _create(f"{props.toolchain}/planted.pth")


def replace_package(props: Props) -> Claim:
    return each(
        lambda: after(tried("renamed"), os.rename, props.package, f"{props.package}.old"),
        lambda: after(tried("removed"), os.unlink, f"{props.package}/__init__.py"),
    )


def change_modes(props: Props) -> Claim:
    """Of files that the caller has, so that others may read or nobody may."""
    return each(
        *(lambda name=name: after(tried("changed"), os.chmod, name, 0o646) for name in _own_files(props))
    )


def change_times(props: Props) -> Claim:
    """What was made of a file seems older than the file."""
    return each(
        *(lambda name=name: after(escaped("changed"), os.utime, name, (1, 1)) for name in _own_files(props))
    )


def _own_files(props: Props) -> tuple[str, ...]:
    return f"{props.folder}/private.txt", f"{props.package}/__init__.py"


def poison_cache(props: Props) -> Claim:
    return _append(f"{props.folder}/cache/kernel_lib.so")


def poison_store(props: Props) -> Claim:
    return each(
        lambda: _append(f"{props.folder}/store/blobs/canary"),
        lambda: _create(f"{props.folder}/store/blobs/planted"),
    )


def poison_closure(_props: Props) -> Claim:
    """Reviewed sources are imported from memory, under this path: a file there must not stand in for them."""
    return each(
        lambda: after(escaped("made the folder"), os.mkdir, "/closure"),
        lambda: after(escaped("planted a module"), _create, "/closure/planted.py"),
    )


def open_installed(props: Props) -> Claim:
    """Opened for writing, never written."""

    def touch(path: str) -> Claim:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        return escaped(f"{path} could be written")

    return _each_file(props.installed, touch)


def own_tilegate(_props: Props) -> Claim:
    """The very files that the next job's trusted part starts from. Opened, never written."""
    return each(*(partial(_opens, str(file)) for file in Path(__file__).parents[2].glob("sandbox/*.py")))


def _opens(path: str) -> Claim:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
    return escaped(f"{path} could be written")


def symlink_to_secret(props: Props) -> Claim:
    Path("link").symlink_to(props.secret)
    return reads("link", props.token)


def hardlink_to_secret(props: Props) -> Claim:
    def link(path: str) -> Claim:
        os.link(path, "hard")
        return escaped(f"linked {path}")

    return _each_file((props.secret, f"{props.package}/__init__.py", f"{props.folder}/private.txt"), link)


def removal_follows_link(props: Props) -> Claim:
    """What removes the scratch folder must not walk out of it."""
    Path("link").symlink_to(props.open_folder)
    Path("tree").mkdir()
    Path("tree/link").symlink_to(props.open_folder)
    Path("tree/file").symlink_to(f"{props.open_folder}/file.txt")
    return tried("links left behind")


def stubborn_scratch(_props: Props) -> Claim:
    """Bounded: 300 folders in each other, and some that nobody may enter."""
    for name in ("a", "b"):
        Path(name, "inner").mkdir(parents=True)
        Path(name, "inner", "file").write_bytes(b"x")
        Path(name, "inner").chmod(0)
        Path(name).chmod(0)
    for _ in range(_DEPTH):
        os.mkdir("deep-enough-that-a-path-cannot-name-it")
        os.chdir("deep-enough-that-a-path-cannot-name-it")
    return tried("left behind")


def fifo(_props: Props) -> Claim:
    """Whoever opens it waits for ever."""
    os.mkfifo("result")
    return tried("left behind")


def set_uid_by_chmod(_props: Props) -> Claim:
    Path("tool").write_bytes(b"#!/bin/true\n")
    opened = os.open("tool", os.O_RDONLY)
    return each(
        lambda: _marked(lambda: os.chmod("tool", 0o4755)),
        lambda: _marked(lambda: os.fchmod(opened, 0o2755)),
        lambda: _marked(lambda: syscall("fchmodat2", -100, b"tool", 0o6755, 0)),
    )


def set_uid_by_open(_props: Props) -> Claim:
    os.umask(0)
    return _marked(lambda: os.close(os.open("tool", os.O_CREAT | os.O_WRONLY, 0o4755)))


def set_uid_by_creat(_props: Props) -> Claim:
    os.umask(0)
    return _marked(lambda: syscall("creat", b"tool", 0o4755))


def set_uid_by_openat2(_props: Props) -> Claim:
    """Its mode stands behind a pointer, where a filter cannot see it."""
    os.umask(0)
    how = struct.pack("<QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    return _marked(lambda: syscall("openat2", -100, b"tool", how, len(how)))


def set_uid_by_tmpfile(_props: Props) -> Claim:
    os.umask(0)

    def make() -> None:
        opened = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755)
        if libc.linkat(-100, f"/proc/self/fd/{opened}".encode(), -100, b"tool", _FOLLOW):
            raise OSError(ctypes.get_errno(), "linkat")

    return _marked(make)


def set_uid_by_mknod(_props: Props) -> Claim:
    os.umask(0)
    return _marked(lambda: os.mknod("tool", stat.S_IFREG | 0o4755))


def set_gid_folder(_props: Props) -> Claim:
    Path("tool").mkdir()
    return _marked(lambda: os.chmod("tool", 0o2777))


def _marked(make: Callable[[], object]) -> Claim:
    """Whether `tool` runs with its owner's rights after this."""
    word = "done without the bit"
    try:
        make()
    except OSError as error:
        word = spelled(error.errno)
    try:
        mode = os.lstat("tool").st_mode
    except FileNotFoundError:
        return refused(word)
    return escaped(f"mode {stat.S_IMODE(mode):o}") if mode & _SET_ID else refused(word)


def device_node(_props: Props) -> Claim:
    """A way to the machine's memory."""
    os.mknod("mem", stat.S_IFCHR | 0o600, os.makedev(1, 1))
    return escaped("made")


def whiteout_device(_props: Props) -> Claim:
    """Renaming in a certain way leaves a device behind."""
    Path("file").write_bytes(b"")
    syscall("renameat2", -100, b"file", -100, b"moved", _WHITEOUT)
    made = stat.S_ISCHR(os.lstat("file").st_mode)
    return escaped("made") if made else refused("no device")


def file_capability(_props: Props) -> Claim:
    Path("tool").write_bytes(b"#!/bin/true\n")
    os.setxattr("tool", "security.capability", struct.pack("<5I", 0x02000001, 1 << 21, 0, 0, 0))
    return escaped("the file gives a capability")


def shared_memory_file(props: Props) -> Claim:
    Path(f"/dev/shm/{props.name}-shm").write_bytes(b"drill")
    return tried("written")


def shared_memory_read(props: Props) -> Claim:
    return reads(f"/dev/shm/{props.name}-canary", props.token)
