"""Files with secrets, and files that must not change."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import struct
from pathlib import Path

_AT_FDCWD = -100
_HANDLE_BYTES = 128


class Planted:
    """A folder of canary files. Modes keep nobody out, but where a canary is about them."""

    def __init__(self, folder: Path, token: str, lacks: dict[str, str]) -> None:
        self.folder = folder
        self.toolchain = folder / "toolchain"
        self.secret = folder / "secret.txt"
        self.handle = b""
        self._token = token
        self._lacks = lacks
        self._before: dict[str, tuple[int, int, bytes]] = {}

    def plant(self) -> None:
        """Put everything back as it is meant to be."""
        for name in ("toolchain", "open", "store", "cache", "home"):
            _remove(self.folder / name)
        secret = f"{self._token}\n".encode()
        self._write("secret.txt", secret, 0o644)
        self._write("private.txt", secret, 0o600)
        self._write("home/.ssh/id_ed25519", secret, 0o644)
        self._write("home/.aws/credentials", secret, 0o644)
        self._write("open/file.txt", b"as it was\n", 0o666)
        self._write("toolchain/tilegate_drill_canary/__init__.py", b"AS_IT_WAS = True\n", 0o666)
        self._write("toolchain/tilegate_drill_canary/__pycache__/__init__.pyc", b"as it was\n", 0o666)
        self._write("toolchain/private.txt", secret, 0o600)
        self._write("store/blobs/canary", b"as it was\n", 0o666)
        self._write("cache/kernel_lib.so", b"as it was\n", 0o666)
        if os.geteuid():
            self._lacks["root"] = "only root can plant it"
        else:
            self._plant_program()
        self._take_handle()
        self._before = self._look()

    def changes(self) -> list[str]:
        now = self._look()
        names = sorted(set(now) | set(self._before))
        return [f"changed {name}" for name in names if now.get(name) != self._before.get(name)]

    def remove(self) -> None:
        _remove(self.folder)

    def _write(self, name: str, content: bytes, mode: int) -> None:
        path = self.folder / name
        for folder in reversed(path.relative_to(self.folder).parents[:-1]):
            (self.folder / folder).mkdir(exist_ok=True)
            (self.folder / folder).chmod(0o777)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    def _plant_program(self) -> None:
        """One that would run as root, whoever starts it: it only says who it is."""
        program = shutil.which("id", path="/usr/bin:/bin")
        if program is None:
            self._lacks["program"] = "there is no `id` to copy"
            return
        target = self.folder / "id"
        target.unlink(missing_ok=True)
        shutil.copyfile(program, target)
        target.chmod(0o4755)

    def _take_handle(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(struct.pack("<Ii", _HANDLE_BYTES, 0) + bytes(_HANDLE_BYTES))
        mount = ctypes.c_int()
        if libc.name_to_handle_at(_AT_FDCWD, str(self.secret).encode(), buffer, ctypes.byref(mount), 0):
            self._lacks["handle"] = f"no handles on this file system: {os.strerror(ctypes.get_errno())}"
            return
        self.handle = buffer.raw[: 8 + struct.unpack_from("<I", buffer.raw)[0]]

    def _look(self) -> dict[str, tuple[int, int, bytes]]:
        """Mode, owner and content of all that an attack could change, by path."""
        found = {}
        for name in ("toolchain", "open", "store", "cache", "home"):
            for folder, folders, files in os.walk(self.folder / name):
                for path in (Path(folder, entry) for entry in (*folders, *files)):
                    about = path.lstat()
                    content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
                    found[str(path.relative_to(self.folder))] = (about.st_mode, about.st_uid, content)
        for name in ("secret.txt", "private.txt"):
            path = self.folder / name
            found[name] = (
                (path.lstat().st_mode, path.lstat().st_uid, path.read_bytes())
                if path.exists()
                else (0, 0, b"")
            )
        return found


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
