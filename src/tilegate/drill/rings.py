"""Canaries that are no files: a shared segment, a key, a queue, a terminal."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import pty
import secrets
import termios
import tty
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tilegate.sandbox.syscalls import NUMBERS

_IPC_CREAT, _IPC_EXCL, _IPC_RMID = 0o1000, 0o2000, 0
_KEYCTL_SETPERM, _KEYCTL_REVOKE, _USER_KEYRING = 5, 3, -4
_FOR_ALL = 0x3F3F3F3F
_SEGMENT_BYTES = 4096


class Rings:
    """Each is left out, with a reason, where the kernel does not give one."""

    shm_key = 0
    key = 0
    terminal = ""

    def __init__(self, token: str, name: str, lacks: dict[str, str], ours: ExitStack) -> None:
        self._token = token.encode()
        self._name = name
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._segment = 0
        self._other_end = self._inner_end = -1
        for need, plant in (
            ("segment", self._plant_segment), ("key", self._plant_key), ("queue", self._plant_queue),
            ("terminal", self._plant_terminal), ("shm", self._plant_file),
        ):  # fmt: skip
            try:
                plant(ours)
            except OSError as error:
                lacks[need] = f"it could not be planted: {error.strerror}"

    def changes(self) -> list[str]:
        found = []
        if self._segment and ctypes.string_at(self._segment, len(self._token)) != self._token:
            ctypes.memmove(self._segment, self._token, len(self._token))
            found.append("changed the shared segment")
        if self.terminal:
            for end, what in (
                (self._inner_end, "typed into the terminal"),
                (self._other_end, "wrote on the terminal"),
            ):
                waiting = array.array("i", [0])
                fcntl.ioctl(end, termios.FIONREAD, waiting)
                if waiting[0]:
                    os.read(end, waiting[0])
                    found.append(what)
        return found

    def _plant_segment(self, ours: ExitStack) -> None:
        self.shm_key = secrets.randbelow(1 << 30) + 1
        number = self._said(
            self._libc.shmget(self.shm_key, ctypes.c_size_t(_SEGMENT_BYTES), _IPC_CREAT | _IPC_EXCL | 0o666)
        )
        ours.callback(self._libc.shmctl, number, _IPC_RMID, None)
        self._libc.shmat.restype = ctypes.c_void_p
        address = self._libc.shmat(number, None, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._segment = int(address)
        ours.callback(self._libc.shmdt, ctypes.c_void_p(self._segment))
        ctypes.memmove(self._segment, self._token, len(self._token))

    def _plant_key(self, ours: ExitStack) -> None:
        """In the user's ring, for everybody: a number is all that is needed to read it."""
        numbers = NUMBERS[os.uname().machine]
        call = self._libc.syscall
        ring = ctypes.c_long(_USER_KEYRING)
        text = f"{self._name}-canary".encode()
        size = ctypes.c_size_t(len(self._token))
        self.key = self._said(call(numbers["add_key"], b"user", text, self._token, size, ring))
        ours.callback(call, numbers["keyctl"], _KEYCTL_REVOKE, ctypes.c_long(self.key))
        self._said(
            call(numbers["keyctl"], _KEYCTL_SETPERM, ctypes.c_long(self.key), ctypes.c_ulong(_FOR_ALL))
        )

    def _plant_queue(self, ours: ExitStack) -> None:
        path = f"/{self._name}".encode()
        queue = self._said(self._libc.mq_open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666, None))
        ours.callback(self._libc.mq_unlink, path)
        ours.callback(os.close, queue)
        os.fchmod(queue, 0o666)

    def _plant_terminal(self, ours: ExitStack) -> None:
        self._other_end, self._inner_end = pty.openpty()
        ours.callback(os.close, self._other_end)
        ours.callback(os.close, self._inner_end)
        tty.setraw(self._inner_end)
        self.terminal = os.ttyname(self._inner_end)
        os.fchmod(self._inner_end, 0o666)

    def _plant_file(self, ours: ExitStack) -> None:
        path = Path(f"/dev/shm/{self._name}-canary")  # noqa: S108 (shared on purpose)
        path.write_bytes(self._token)
        ours.callback(path.unlink, missing_ok=True)
        path.chmod(0o644)

    def _said(self, answer: int) -> int:
        if answer < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return answer
