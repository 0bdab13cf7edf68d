"""How an attack speaks to the kernel, and how it says what came of it."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilegate.drill.props import Props
from tilegate.records.drill import Claim, Said
from tilegate.sandbox.syscalls import NUMBERS

Attack = Callable[[Props], Claim]

REFUSALS = frozenset(
    {
        errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS,  # no
        errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENXIO, errno.ENODEV,  # nothing there
        errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT, errno.ECONNREFUSED, errno.EADDRNOTAVAIL,
        errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EXDEV, errno.ENOTTY, errno.ENOTSUP,
    }
)  # fmt: skip
"""What an error must say to count as a refusal. Any other (EINVAL, EBADF, EFAULT) may be the attack's own fault."""

_UNREACHED = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def escaped(detail: str) -> Claim:
    return Claim(said=Said.ESCAPED, detail=detail)


def refused(detail: str) -> Claim:
    return Claim(said=Said.REFUSED, detail=detail)


def tried(detail: str) -> Claim:
    return Claim(said=Said.TRIED, detail=detail)


def unable(detail: str) -> Claim:
    return Claim(said=Said.UNABLE, detail=detail)


def made(attempt: Callable[[], Claim]) -> Claim:
    """The attack's own word, or what its error means. An error that is no refusal never passes for one."""
    try:
        return attempt()
    except OSError as error:
        name = spelled(error.errno)
        return refused(name) if error.errno in REFUSALS else unable(f"{name}: {error}")
    except Exception as error:  # noqa: BLE001 (an attack that fails by itself proves nothing: it is told)
        return unable(f"{type(error).__name__}: {error}")


def spelled(number: int | None) -> str:
    return errno.errorcode.get(number or 0, str(number))


def syscall(name: str, *arguments: Any) -> int:
    """The call itself, below libc. Words are unsigned 64 bits.

    Raises:
        OSError: as the kernel says.
    """
    number = NUMBERS[os.uname().machine].get(name)
    if number is None:
        raise OSError(errno.ENOSYS, f"{name} is no call of this machine")
    words = [ctypes.c_ulong(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]
    answer = int(libc.syscall(ctypes.c_long(number), *words))
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return answer


def reaches(name: str, *arguments: Any) -> Claim:
    """Whether a call that is of no use to a build gets as far as the kernel's own code for it."""
    try:
        answer = syscall(name, *arguments)
    except OSError as error:
        word = spelled(error.errno)
        return refused(word) if error.errno in _UNREACHED else escaped(f"the kernel took it up: {word}")
    return escaped(f"{name} returned {answer}")


def after(claim: Claim, call: Callable[..., object], *arguments: Any) -> Claim:
    """The claim, once the call has gone well."""
    call(*arguments)
    return claim


def each(*attempts: Callable[[], Claim]) -> Claim:
    """Several ways to one end: the first that works, or else what all of them said, the least certain first."""
    claims = []
    for attempt in attempts:
        claims.append(made(attempt))
        if claims[-1].said is Said.ESCAPED:
            return claims[-1]
    words = {claim.said for claim in claims}
    word = next(w for w in (Said.UNABLE, Said.TRIED, Said.REFUSED) if w in words)
    return Claim(said=word, detail=", ".join(dict.fromkeys(claim.detail for claim in claims)))


def reads(path: str, token: str) -> Claim:
    """Whether a file can be read, and is the planted one."""
    with Path(path).open("rb") as file:
        found = token.encode() in file.read(1 << 16)
    return escaped(f"read {path}") if found else refused("another file stands there")


def in_child(attempt: Callable[[], Claim]) -> Claim:
    """The attempt in a child of this process, which it may leave in any state."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        claim = made(attempt)
        os.write(writer, f"{claim.said.value} {claim.detail}"[:4000].encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        word, _, detail = stream.read().decode(errors="replace").partition(" ")
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return refused(f"ended by signal {os.WTERMSIG(status)}")
    return Claim(said=Said(word), detail=detail)


def canary(props: Props) -> int:
    """Number of the canary process.

    Raises:
        ProcessLookupError: here the number is another process's.
    """
    try:
        name = Path(f"/proc/{props.canary.pid}/comm").read_text(encoding="ascii").strip()
    except PermissionError:
        return props.canary.pid
    except FileNotFoundError:
        raise ProcessLookupError(errno.ESRCH, "the canary cannot be seen") from None
    if name != props.canary.name:
        raise ProcessLookupError(errno.ESRCH, "another process has the number")
    return props.canary.pid
