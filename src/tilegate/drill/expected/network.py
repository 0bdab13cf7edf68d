"""Through sockets."""

from tilegate.drill.expected.reasons import AS_CALLER, FILTERED
from tilegate.drill.probe import Probe, blocked, depends, escapes, split
from tilegate.records.drill import Theme

_T = Theme.NETWORK
_EMPTY = blocked("sockets cannot be made, and the job's network has nothing in it")
_NO_SOCKETS = blocked("sockets cannot be made")
_REACHED = escapes("the network is the caller's")
_FAMILY = depends("as the kernel was built")

NETWORK = (
    Probe("tcp", _T, "connects to a server of the host's", _EMPTY, _NO_SOCKETS, _REACHED),
    Probe(
        "udp", _T, "sends to a server of the host's, as one asks for a name", _EMPTY, _NO_SOCKETS, _REACHED
    ),
    Probe("unix-path", _T, "connects to a socket in a folder", _EMPTY, _NO_SOCKETS, _REACHED),
    Probe("unix-abstract", _T, "connects to a socket without a file", _EMPTY, _NO_SOCKETS, _REACHED),
    Probe(
        "datagram-from-pair",
        _T,
        "sends from one end of a pair to a socket of the host's",
        FILTERED,
        FILTERED,
        _REACHED,
    ),
    Probe(
        "cloud-metadata",
        _T,
        "looks for a way to 169.254.169.254; nothing is sent",
        _EMPTY,
        _NO_SOCKETS,
        _REACHED,
        needs=("route",),
    ),
    Probe(
        "internet",
        _T,
        "looks for a way out; nothing is sent",
        _EMPTY,
        _NO_SOCKETS,
        _REACHED,
        needs=("route",),
    ),
    Probe(
        "services",
        _T,
        "connects to the host's container engines and message buses",
        _EMPTY,
        _NO_SOCKETS,
        split(root=_REACHED, user=depends("as their modes are")),
        needs=("services",),
    ),
    Probe("listen", _T, "waits for somebody outside", _EMPTY, _NO_SOCKETS, _REACHED, needs=("route",)),
    Probe(
        "socket-call",
        _T,
        "makes a socket below every library",
        _EMPTY,
        _NO_SOCKETS,
        _REACHED,
        needs=("route",),
    ),
    Probe("netlink", _T, "makes a socket that configures networks", FILTERED, FILTERED, _FAMILY),
    Probe("packet", _T, "makes a socket that sees every packet", FILTERED, FILTERED, AS_CALLER),
    Probe("raw", _T, "makes a socket for packets of its own", FILTERED, FILTERED, AS_CALLER),
    Probe("vsock", _T, "makes a socket from a virtual machine to its host", FILTERED, FILTERED, _FAMILY),
    Probe("crypto-socket", _T, "makes a socket to the kernel's ciphers", FILTERED, FILTERED, _FAMILY),
    Probe("rare-sockets", _T, "makes sockets of five rare families", FILTERED, FILTERED, _FAMILY),
)
