"""A process of the host's with a secret in its environment, its memory and an open file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

from tilegate.drill.props import Canary
from tilegate.errors import SandboxError

_CODE = """
import ctypes, json, os, signal, sys
token, secret, name, uid = sys.argv[1:]
file = os.open(secret, os.O_RDONLY)
signal.signal(signal.SIGURG, lambda *_: os.write(1, b"signalled\\n"))
libc = ctypes.CDLL(None)
libc.prctl(15, name.encode(), 0, 0, 0)
if os.getuid() == 0 and int(uid):
    os.setgroups([])
    os.setresgid(int(uid), int(uid), int(uid))
    os.setresuid(int(uid), int(uid), int(uid))
libc.prctl(4, 1, 0, 0, 0)
libc.prctl(1, signal.SIGKILL, 0, 0, 0)
held = ctypes.create_string_buffer(token.encode())
print(json.dumps([ctypes.addressof(held), file]), flush=True)
while sys.stdin.buffer.read(1):
    pass
"""
"""It ends when its standard input does, or with the drill. It can be traced: nobody but a sandbox protects it."""


class Guard:
    """The canary, and what has become of it."""

    def __init__(self, uid: int, token: str, secret: Path) -> None:
        self._uid = uid
        self._token = token
        self._secret = secret
        self._process: subprocess.Popen[bytes] | None = None
        self._canary: Canary | None = None

    def told(self) -> Canary:
        if self._canary is None:
            self.awake()
        return cast("Canary", self._canary)

    def awake(self) -> None:
        """See that it lives and runs, a new one where it does not."""
        if self._process is not None and self.harmed() is None:
            return
        self.end()
        name = f"tgd-{secrets.token_hex(5)}"
        self._process = subprocess.Popen(  # noqa: S603 (our own program)
            [sys.executable, "-I", "-S", "-c", _CODE, self._token, str(self._secret), name, str(self._uid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"TILEGATE_DRILL_SECRET": self._token},
            start_new_session=True,
        )
        line = self._out().readline()
        if not line:
            raise SandboxError(
                "the drill's canary process did not start",
                where=sys.executable,
                next_step="see that this interpreter runs `-I -S -c pass`",
            )
        address, descriptor = json.loads(line)
        os.set_blocking(self._out().fileno(), False)
        self._canary = Canary(pid=self._process.pid, name=name, address=address, descriptor=descriptor)

    def harmed(self) -> str | None:
        """What was done to it, in a word. Once it is told, it is made good."""
        process = self._process
        if process is None:
            return None
        if process.poll() is not None:
            return "killed"
        if self._state() in ("T", "t"):
            os.kill(process.pid, signal.SIGCONT)
            return "stopped"
        if self._out().read():
            return "signalled"
        return None

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._process = None

    def _out(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process and self._process.stdout)

    def _state(self) -> str:
        pid = cast("subprocess.Popen[bytes]", self._process).pid
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
