"""What the parent and the keeper inside say to each other: one record a message, over a socket that no task holds.

parent -> keeper   Start (with three descriptors: inputs, results, output), Stop
keeper -> parent   Ready or Lacking, once; Started and Ended, once for each part
"""

from __future__ import annotations

import socket

import msgspec

from tilegate.records.canonical import Record
from tilegate.records.isolation import Isolation, Level, Limits

MESSAGE_BYTES = 1 << 16


class Order(Record, frozen=True):
    """What the trusted start of the child is told, as its argument."""

    level: Level
    limits: Limits
    control_fd: int
    uid: int
    """Its user id, as the host counts it."""
    cgroup: bool
    own_user: bool
    """True where no other program of the machine runs as that user, as the kernel counts processes."""
    parent: int
    """Process that the child must not outlive."""
    parents: dict[str, str]
    """Namespaces of the parent, by kind: the child is apart where its own differ."""
    reads: tuple[str, ...]
    """All that it may read."""
    devices: tuple[str, ...]
    """Device nodes that it may use."""
    memory_files: bool
    scratch: str
    """Folder for temporary files."""
    warm: tuple[str, ...]
    """Modules to import once, before the first part is forked."""


class Start(Record, frozen=True, tag="start"):
    part: int
    task: str


class Stop(Record, frozen=True, tag="stop"):
    part: int


class Ready(Record, frozen=True, tag="ready"):
    isolation: Isolation


class Lacking(Record, frozen=True, tag="lacking"):
    """The isolation that was asked for cannot be had; nothing foreign has run."""

    piece: str
    why: str


class Started(Record, frozen=True, tag="started"):
    part: int
    pid: int
    """In the innermost namespace."""


class Ended(Record, frozen=True, tag="ended"):
    part: int
    status: int
    """As `os.waitpid` gives it."""


Asked = Start | Stop
Told = Ready | Lacking | Started | Ended


def write(message: Asked | Told) -> bytes:
    return msgspec.json.encode(message, order="sorted")


def asked(data: bytes) -> Asked:
    return msgspec.json.decode(data, type=Asked, strict=True)


def told(data: bytes) -> Told:
    """A message of the keeper.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: it is none.
    """
    return msgspec.json.decode(data, type=Told, strict=True)


def pair() -> tuple[socket.socket, socket.socket]:
    """The parent's end and the keeper's. Messages keep their bounds."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
