"""What an attack is aimed at: the host's canaries, as the job is told of them. Nothing in it is secret."""

from __future__ import annotations

from tilegate.records.canonical import Record


class Canary(Record, frozen=True):
    """A process of the host's that has a secret, of the job's user where that can be had."""

    pid: int
    name: str
    """As /proc tells it: in a namespace of pids the number may be another process's."""
    address: int
    """Where the token stands in its memory."""
    descriptor: int
    """Its open file with a secret."""


class Props(Record, frozen=True):
    """Canaries of one drill. Paths are the host's, absolute."""

    token: str
    """Stands in every planted secret, and nowhere else."""
    name: str
    """Of files, queues and sockets that an attack may make outside; unique to the drill."""
    folder: str
    """Holds the canaries below, with modes that keep nobody out but where said."""
    toolchain: str
    """A folder on the job's search path, with a package in it."""
    outside: tuple[str, ...]
    """Files that do not exist, in folders that programs like to write to."""
    installed: tuple[str, ...]
    """Files of the interpreter, of tilegate and of the system. They may be opened, never changed."""
    devices: tuple[str, ...]
    """Device nodes that the host has."""
    services: tuple[str, ...]
    """Sockets of the system's own services that the host has."""
    hostname: str
    abstract: str
    tcp_port: int
    udp_port: int
    shm_key: int
    key: int
    """Serial number in the kernel's key ring; 0 without."""
    terminal: str
    handle: bytes
    """Of `secret`, as name_to_handle_at gives it; empty without."""
    secret_device: int
    secret_inode: int
    drill: int
    """The process that runs the drill."""
    pid_namespace: str
    """The drill's own."""
    canary: Canary

    @property
    def secret(self) -> str:
        return f"{self.folder}/secret.txt"

    @property
    def open_folder(self) -> str:
        return f"{self.folder}/open"

    @property
    def package(self) -> str:
        return f"{self.toolchain}/tilegate_drill_canary"
