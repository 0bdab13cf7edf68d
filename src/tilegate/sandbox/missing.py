"""When the isolation that was asked for cannot be had: which piece is missing, and what mends it. Pure."""

from __future__ import annotations

from tilegate.errors import SandboxError
from tilegate.records.isolation import Level

MENDS = {
    "bubblewrap": "apt-get install bubblewrap (0.8 or later), or your distribution's package of that name",
    "user namespaces": "allow them: sysctl user.max_user_namespaces=10000; on older Debian"
    " kernel.unprivileged_userns_clone=1; on Ubuntu an AppArmor profile for bwrap, or"
    " kernel.apparmor_restrict_unprivileged_userns=0",
    "namespaces": "run where bubblewrap may make namespaces",
    "proc": "let the container mount proc (docker: --security-opt systempaths=unconfined)",
    "landlock": "use Linux 5.13 or later, with landlock among the kernel's lsm=",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or aarch64",
    "another user": "run as an ordinary user",
    "readable interpreter": "use a Python that every user may read, such as the system's",
}
"""What mends a missing piece, by its name."""

_WORDS = (
    ("Unknown option", "bubblewrap"),
    ("new namespace", "user namespaces"),
    ("uid map", "user namespaces"),
    ("userns", "user namespaces"),
    ("mount proc", "proc"),
    ("Can't find source path", "readable interpreter"),
    ("unshare: ", "readable interpreter"),
)
"""What bubblewrap says, and the piece it lacked."""


def lacking(level: Level, piece: str, why: str) -> SandboxError:
    """The error for a piece that is not there. Without it nothing foreign is run."""
    weaker = "; or choose less: --isolation reduced" if level is Level.FULL else ""
    return SandboxError(
        f"jobs cannot be isolated as asked ({level.value}): {piece} is missing",
        where="this machine; `tilegate doctor` shows every piece",
        why=why,
        next_step=MENDS.get(piece, "see `tilegate doctor`") + weaker,
    )


def piece_in(words: str) -> str | None:
    """Which piece a failed start complains of, if it is one that is known."""
    return next((piece for said, piece in _WORDS if said in words), None)
