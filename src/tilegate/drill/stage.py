"""The host's side of a drill: canaries that are planted, looked at after each attack, and removed.

Nothing here outlives the `with`, and nothing that was there before is changed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import stat
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from tilegate.drill.canary import Guard
from tilegate.drill.listeners import Listeners
from tilegate.drill.planted import Planted
from tilegate.drill.props import Props
from tilegate.drill.rings import Rings
from tilegate.drill.survivors import end_survivors
from tilegate.records.isolation import Level
from tilegate.sandbox import slots
from tilegate.sandbox.syscalls import NUMBERS

_FOLDERS = ("/", "/run", "/dev", "/usr/lib", "/etc", "/opt", "/srv")
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")  # noqa: S108 (looked into on purpose)
"""Where programs like to write, and where what is written gets read."""
_SERVICES = (
    "/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
    "/run/crio/crio.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify",
    "/run/snapd.socket", "/run/libvirt/libvirt-sock", "/dev/log",
)  # fmt: skip


class Stage:
    """Canaries in place.

    Attributes:
        lacks: what could not be planted here, with the reason, by the name that probes need it under.
    """

    def __init__(self, level: Level, ours: ExitStack) -> None:
        self.lacks: dict[str, str] = {}
        self._token = f"drill-{secrets.token_hex(16)}"
        self._name = f"tilegate-drill-{secrets.token_hex(6)}"
        self._signals = 0
        folder = tempfile.mkdtemp(prefix="tilegate-drill-")
        Path(folder).chmod(0o711)  # its canaries are to be reached: only their own modes keep anybody out
        self._planted = Planted(Path(folder), self._token, self.lacks)
        ours.callback(self._planted.remove)
        self._planted.plant()
        self._listeners = Listeners(Path(folder), self._name, ours)
        self._rings = Rings(self._token, self._name, self.lacks, ours)
        self._canary = Guard(_user(level, ours), self._token, self._planted.secret)
        ours.callback(self._canary.end)
        ours.callback(self._sweep)
        self._jobs = Path(folder, "jobs")
        self._jobs.mkdir()
        self._jobs.chmod(0o711)
        ours.enter_context(_temporary_folder(self._jobs))
        ours.enter_context(self._tempting())
        self._count_signals(ours)
        self._devices = tuple(_devices())
        self._services = tuple(path for path in _SERVICES if _is_socket(path))
        self._note_lacks()

    @property
    def import_path(self) -> str:
        return str(self._planted.toolchain)

    def props(self) -> Props:
        """Whole again, for the next attack."""
        self._canary.awake()
        secret = self._planted.secret.stat()
        return Props(
            token=self._token,
            name=self._name,
            folder=str(self._planted.folder),
            toolchain=self.import_path,
            outside=tuple(str(path) for path in self._outside()),
            installed=tuple(_installed()),
            devices=self._devices,
            services=self._services,
            hostname=os.uname().nodename,
            abstract=self._listeners.abstract,
            tcp_port=self._listeners.tcp_port,
            udp_port=self._listeners.udp_port,
            shm_key=self._rings.shm_key,
            key=self._rings.key,
            terminal=self._rings.terminal,
            handle=self._planted.handle,
            secret_device=secret.st_dev,
            secret_inode=secret.st_ino,
            drill=os.getpid(),
            pid_namespace=os.readlink("/proc/self/ns/pid"),  # noqa: PTH115 (the link is no path)
            canary=self._canary.told(),
        )

    def traces(self) -> list[str]:
        """What an attack has left, and mend it."""
        found = [*self._planted.changes(), *self._listeners.heard(), *self._rings.changes()]
        if state := self._canary.harmed():
            found.append(f"the canary was {state}")
        if self._signals:
            found.append("the drill was signalled")
            self._signals = 0
        found += self._sweep()
        found += [f"left {path.name} in the folder for temporary files" for path in self._jobs.iterdir()]
        if found:
            self._planted.plant()
        return found

    def _sweep(self) -> list[str]:
        found = []
        for path in self._outside():
            if os.path.lexists(path):
                path.unlink()
                found.append(f"wrote {path}")
        found += [f"process {pid} outlived it" for pid in end_survivors(self._name)]
        return found

    def _outside(self) -> list[Path]:
        return [
            Path(folder, f"{self._name}{end}") for folder in (*_FOLDERS, *_SHARED) for end in ("", "-shm")
        ]

    @contextlib.contextmanager
    def _tempting(self) -> Iterator[None]:
        """Secrets in this process's own environment, and an open file that a child could inherit."""
        planted = {
            "TILEGATE_DRILL_SECRET": self._token,
            "SSH_AUTH_SOCK": str(self._planted.folder / "agent.sock"),
        }
        before = {name: os.environ.get(name) for name in planted}
        os.environ.update(planted)
        opened = os.open(self._planted.secret, os.O_RDONLY)
        os.set_inheritable(opened, True)
        try:
            yield
        finally:
            os.close(opened)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _count_signals(self, ours: ExitStack) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.lacks["signals"] = "signals can be counted in the main thread only"
            return

        def count(_number: int, _frame: FrameType | None) -> None:
            self._signals += 1

        ours.callback(signal.signal, signal.SIGURG, signal.signal(signal.SIGURG, count))

    def _note_lacks(self) -> None:
        numbers = NUMBERS.get(os.uname().machine, {})
        for name in ("creat", "iopl", "modify_ldt", "arch_prctl"):
            if name not in numbers:
                self.lacks[f"call:{name}"] = "this machine has no such call"
        for need, names in {
            "memory devices": ("mem", "port", "kmem"), "kmsg": ("kmsg",), "kvm": ("kvm", "vhost", "vsock"),
            "fuse": ("fuse",), "userfaultfd": ("userfaultfd",), "tty0": ("tty0",),
            "disks": ("sd", "vd", "nvme", "xvd", "loop", "zram"),
        }.items():  # fmt: skip
            if not any(Path(path).name.startswith(names) for path in self._devices):
                self.lacks[need] = "this machine has no such device"
        if not self._services:
            self.lacks["services"] = "no such service listens on this machine"
        if not _has_route():
            self.lacks["route"] = "this machine has no way out itself"


@contextlib.contextmanager
def staged(level: Level) -> Iterator[Stage]:
    """Canaries for the length of a `with`, for attacks from jobs of a level."""
    with ExitStack() as ours:
        yield Stage(level, ours)


def _user(level: Level, ours: ExitStack) -> int:
    """Of the canary process: as close to a job's as can be.

    That is the job's own where it has the caller's. A user that a job has to itself is nobody else's, so there
    the canary stands for another job, with a slot of its own.
    """
    return (
        ours.enter_context(slots.claimed()) if level is not Level.NONE and slots.switchable() else os.getuid()
    )


@contextlib.contextmanager
def _temporary_folder(folder: Path) -> Iterator[None]:
    """Jobs make their folders here, so that what stays behind is seen."""
    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _installed() -> Iterator[str]:
    yield os.path.realpath(sys.executable)
    for name in ("os.py", "encodings/__init__.py", "site.py"):
        yield str(Path(sysconfig.get_path("stdlib"), name))
    for name in ("msgspec/__init__.py", "torch/__init__.py", "tilelang/__init__.py"):
        path = Path(sysconfig.get_path("platlib"), name)
        if path.exists():
            yield str(path)
    yield from (
        path
        for path in ("/bin/sh", "/usr/bin/gcc", "/usr/lib/os-release", "/etc/ld.so.cache")
        if _exists(path)
    )


def _exists(path: str) -> bool:
    return Path(path).exists()


def _devices() -> Iterator[str]:
    for entry in Path("/dev").iterdir():
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(entry.stat().st_mode) or stat.S_ISBLK(entry.stat().st_mode):
                yield str(entry)


def _is_socket(path: str) -> bool:
    try:
        return Path(path).is_socket()
    except OSError:
        return False


def _has_route() -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.connect(("192.0.2.1", 80))  # of a datagram socket: the way is looked up, nothing is sent
    except OSError:
        return False
    return True
