"""Out through sockets. The host listens itself; nothing is sent to anybody else."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

from tilegate.drill.probes.attempt import each, escaped, refused, spelled, syscall, tried, unable
from tilegate.drill.props import Props
from tilegate.records.drill import Claim

_PATIENCE_S = 2.0
_METADATA = "169.254.169.254"
_PUBLIC = "192.0.2.1"
"""Of the block that is kept for documents: nobody has it."""
_AF_TIPC, _AF_ALG, _AF_VSOCK, _AF_XDP = 30, 38, 40, 44


def _send(family: int, kind: int, address: tuple[str, int] | str | bytes, data: bytes) -> Claim:
    with socket.socket(family, kind) as made:
        made.settimeout(_PATIENCE_S)
        made.connect(address)
        made.send(data)
    return tried("sent")


def tcp(props: Props) -> Claim:
    return _send(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", props.tcp_port), b"drill")


def udp(props: Props) -> Claim:
    """As a name server would be asked, which is a way out for data as well."""
    return _send(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", props.udp_port), b"drill")


def unix_path(props: Props) -> Claim:
    return _send(socket.AF_UNIX, socket.SOCK_STREAM, f"{props.folder}/service.sock", b"drill")


def unix_abstract(props: Props) -> Claim:
    """A name without a file."""
    return _send(socket.AF_UNIX, socket.SOCK_STREAM, b"\0" + props.abstract.encode(), b"drill")


def datagram_from_pair(props: Props) -> Claim:
    """One end of a pair of sockets may name any other as its receiver."""
    for address in (f"{props.folder}/datagram.sock", b"\0" + f"{props.abstract}-datagram".encode()):
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with one, other:
            one.sendto(b"drill", address)
    return tried("sent")


def cloud_metadata(_props: Props) -> Claim:
    """Gives credentials to whoever asks. Only the way is looked up: nothing is sent."""
    return _way_to(_METADATA)


def internet(_props: Props) -> Claim:
    """Only the way is looked up: nothing is sent."""
    return _way_to(_PUBLIC)


def _way_to(address: str) -> Claim:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.connect((address, 80))  # of a datagram socket: the kernel looks for a route, and that is all
    except OSError as error:
        word = spelled(error.errno)
        if word != "ENETUNREACH":
            raise
        others = _interfaces() - {"lo"}
        return (
            unable(f"no route, but {', '.join(sorted(others))}") if others else refused("no interface but lo")
        )
    return escaped(f"there is a route to {address}")


def _interfaces() -> set[str]:
    lines = Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


def services(props: Props) -> Claim:
    """Container engines, message buses: reaching one is often as good as being root. Connected, nothing is sent."""

    def reach(path: str) -> Claim:
        with socket.socket(socket.AF_UNIX) as made:
            made.settimeout(_PATIENCE_S)
            made.connect(path)
        return escaped(path)

    return each(*(partial(reach, path) for path in props.services))


def listen(_props: Props) -> Claim:
    """Wait for somebody outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.bind(("0.0.0.0", 0))
        made.listen()
        others = _interfaces() - {"lo"}
    return escaped(f"listening on {', '.join(sorted(others))}") if others else refused("no interface but lo")


def _makes(family: int, kind: int, protocol: int = 0) -> Claim:
    socket.socket(family, kind, protocol).close()
    return escaped("made one")


def netlink(_props: Props) -> Claim:
    """The way to configure networks, and a large piece of the kernel."""
    return each(*(partial(_makes, socket.AF_NETLINK, socket.SOCK_RAW, n) for n in (0, 12, 16)))


def packet(_props: Props) -> Claim:
    return _makes(socket.AF_PACKET, socket.SOCK_RAW, 0x300)


def raw(_props: Props) -> Claim:
    return each(
        lambda: _makes(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        lambda: _makes(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
    )


def vsock(_props: Props) -> Claim:
    """From a virtual machine to its host."""
    return _makes(_AF_VSOCK, socket.SOCK_STREAM)


def crypto_socket(_props: Props) -> Claim:
    """The kernel's ciphers, with a history of holes."""
    return _makes(_AF_ALG, socket.SOCK_SEQPACKET)


def rare_sockets(_props: Props) -> Claim:
    return each(*(partial(_makes, n, socket.SOCK_STREAM) for n in (_AF_TIPC, 31, 36, 41)), _xdp)


def _xdp() -> Claim:
    return _makes(_AF_XDP, socket.SOCK_RAW)


def socket_call(_props: Props) -> Claim:
    """Below every library."""
    syscall("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
    others = _interfaces() - {"lo"}
    return escaped("made one") if others else refused("made one, in a network with nothing in it")
