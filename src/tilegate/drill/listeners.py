"""Sockets of the host's, on which nobody should be heard."""

from __future__ import annotations

import contextlib
import os
import socket
from contextlib import ExitStack
from pathlib import Path


class Listeners:
    """They are looked at between attacks; until then the kernel keeps who came."""

    def __init__(self, folder: Path, name: str, ours: ExitStack) -> None:
        self.abstract = name
        self._ours = ours
        tcp = self._make("TCP", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = self._make("UDP", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self.tcp_port: int = tcp.getsockname()[1]
        self.udp_port: int = udp.getsockname()[1]
        self._all = {"TCP": tcp, "UDP": udp}
        for file in ("service.sock", "agent.sock"):
            self._all[file] = self._make(file, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / file))
        self._all["an abstract socket"] = self._make(
            "", socket.AF_UNIX, socket.SOCK_STREAM, b"\0" + name.encode()
        )
        self._all["datagram.sock"] = self._make(
            "", socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "datagram.sock")
        )
        self._all["an abstract datagram socket"] = self._make(
            "", socket.AF_UNIX, socket.SOCK_DGRAM, b"\0" + f"{name}-datagram".encode()
        )
        for file in ("service.sock", "agent.sock", "datagram.sock"):
            (folder / file).chmod(0o777)

    def heard(self) -> list[str]:
        """Where somebody came since the last time."""
        return [f"was heard on {name}" for name, listener in self._all.items() if _came(listener)]

    def _make(
        self, _name: str, family: int, kind: int, address: tuple[str, int] | str | bytes
    ) -> socket.socket:
        made = self._ours.enter_context(socket.socket(family, kind))
        made.bind(address)
        made.setblocking(False)
        if kind == socket.SOCK_STREAM:
            made.listen()
        return made


def _came(listener: socket.socket) -> bool:
    came = False
    with contextlib.suppress(BlockingIOError):
        while True:
            if listener.type == socket.SOCK_STREAM:
                os.close(listener.accept()[0].detach())
            else:
                listener.recv(1 << 12)
            came = True
    return came
