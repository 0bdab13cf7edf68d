"""After the secrets of whoever runs the job. Every one of them was planted for the drill."""

from __future__ import annotations

import ctypes
import os
from functools import partial
from pathlib import Path

from tilegate.drill.probes.attempt import (
    canary,
    each,
    escaped,
    reads,
    refused,
    spelled,
    syscall,
    tried,
    unable,
)
from tilegate.drill.props import Props
from tilegate.records.drill import Claim

_KEYCTL_REVOKE, _KEYCTL_READ, _USER_KEYRING = 3, 11, -4


def environment(props: Props) -> Claim:
    found = [name for name, value in os.environ.items() if props.token in value or "agent.sock" in value]
    return (
        escaped(", ".join(found)) if found else refused(f"{len(os.environ)} variables, none of the caller's")
    )


def environments_of_processes(props: Props) -> Claim:
    said = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if props.token.encode() in (entry / "environ").read_bytes():
                line = (entry / "cmdline").read_bytes()[:60]
                return escaped(f"process {entry.name}: {line!r}")
            said.append("not in it")
        except OSError as error:
            said.append(spelled(error.errno))
    return refused(f"{len(said)} processes: {', '.join(sorted(set(said)))}")


def secret_file(props: Props) -> Claim:
    return reads(props.secret, props.token)


def ssh_key(props: Props) -> Claim:
    return reads(f"{props.folder}/home/.ssh/id_ed25519", props.token)


def cloud_file(props: Props) -> Claim:
    return reads(f"{props.folder}/home/.aws/credentials", props.token)


def private_file(props: Props) -> Claim:
    return reads(f"{props.folder}/private.txt", props.token)


def private_file_in_reach(props: Props) -> Claim:
    return reads(f"{props.toolchain}/private.txt", props.token)


def inherited_descriptor(props: Props) -> Claim:
    for number in range(3, 1024):
        try:
            found = os.fstat(number)
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == (props.secret_device, props.secret_inode):
            return escaped(f"descriptor {number}")
    return refused("none leads to the secret")


def secret_by_handle(props: Props) -> Claim:
    """A handle opens a file without its path, past every folder: what broke out of early containers."""
    handle = ctypes.create_string_buffer(props.handle)
    for place in ("/", os.getcwd(), props.toolchain):
        mount = os.open(place, os.O_RDONLY)
        try:
            file = syscall("open_by_handle_at", mount, handle, os.O_RDONLY)
        finally:
            os.close(mount)
        with open(file, "rb") as opened:
            if props.token.encode() in opened.read(1 << 16):
                return escaped("opened by its handle")
    return unable("the handle led elsewhere")


def key_ring(props: Props) -> Claim:
    buffer = ctypes.create_string_buffer(256)
    syscall("keyctl", _KEYCTL_READ, props.key, buffer, 256, 0)
    return escaped("read a key of the host") if props.token.encode() in buffer.raw else unable("another key")


def key_planted(props: Props) -> Claim:
    """Key rings belong to a user, whatever namespaces it is in: what is put there outlives the job."""
    serial = syscall("add_key", b"user", props.name.encode(), b"x", 1, _USER_KEYRING)
    syscall("keyctl", _KEYCTL_REVOKE, serial, 0, 0, 0)
    return escaped("added one to the user's ring")


def key_requested(props: Props) -> Claim:
    serial = syscall("request_key", b"user", f"{props.name}-canary".encode(), None, 0)
    return escaped(f"found key {serial}")


def accounts(_props: Props) -> Claim:
    with Path("/etc/passwd").open("rb"):
        return escaped("opened /etc/passwd")


def passwords(_props: Props) -> Claim:
    """Opened, never read."""
    with Path("/etc/shadow").open("rb"):
        return escaped("opened /etc/shadow")


def machine_name(props: Props) -> Claim:
    name = os.uname().nodename
    return escaped("the host's name") if name == props.hostname else refused(f"{name!r} is the job's own")


def canary_root(props: Props) -> Claim:
    """Another process's root folder leads into its file system."""
    pid = canary(props)
    secret = props.secret
    return each(*(partial(reads, f"/proc/{pid}/{way}{secret}", props.token) for way in ("root", "cwd")))


def canary_descriptor_path(props: Props) -> Claim:
    return reads(f"/proc/{canary(props)}/fd/{props.canary.descriptor}", props.token)


def agent(props: Props) -> Claim:
    """The socket of an agent that signs for whoever reaches it."""
    import socket

    with socket.socket(socket.AF_UNIX) as made:
        made.connect(f"{props.folder}/agent.sock")
    return tried("connected")
