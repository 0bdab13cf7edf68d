"""One file, written whole and read whole: what the blobs, the index and the layout share about the disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tilegate.errors import StoreError

TEMPORARY = "tmp-"
"""Prefix of files that are being written. A killed process leaves them; no reader looks at them."""

BLOB_FOLDER = "blobs/sha256"

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")

_WHY = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "it is read-only for this user"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "the disk is full"),
    **dict.fromkeys((errno.EFBIG,), "the file is larger than this process may write"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), "something else stands in its place"),
    errno.EAGAIN: "another tilegate command is at work on it",
}

_POLL_S = 0.002


def store_error(error: OSError, *, what: str, where: Path, next_step: str) -> StoreError:
    """What the disk said, in words: what could not be done, where, why, and what to do next."""
    why = _WHY.get(error.errno or 0, error.strerror or str(error))
    return StoreError(what, where=str(where), why=why, next_step=next_step)


def blob_name(digest: str) -> str:
    """`blobs/sha256/<hex>`, relative to the root.

    Raises:
        ValueError: not a digest. Nothing else ever becomes part of a path.
    """
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ValueError(f"{digest[:100]!r} is not a sha256 digest")
    return f"{BLOB_FOLDER}/{match[1]}"


def make_folder(folder: Path) -> None:
    """Make a folder and its parents so that a power cut does not take them back.

    Raises:
        OSError: what the disk said.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path, *, alone: bool, wait_s: float | None = None) -> Iterator[None]:
    """Hold a folder: together with whoever else does, or alone. The kernel lets go of it for whoever dies.

    A process may hold a folder again while it does, as long as nobody asks to be alone there.

    Args:
        folder: an existing folder.
        alone: nobody else may hold it meanwhile.
        wait_s: None waits for as long as it takes.

    Raises:
        StoreError: others held it for all of `wait_s`, or it cannot be opened.
    """
    try:
        descriptor = _lock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, wait_s)
    except OSError as error:
        wait = "wait until the other tilegate command on this workspace has ended, then run this again"
        raise store_error(error, what="cannot lock the workspace", where=folder, next_step=wait) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, kind: int, wait_s: float | None) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    until = None if wait_s is None else time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, kind if until is None else kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if until is not None and time.monotonic() >= until:
                    raise
                time.sleep(_POLL_S)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Put content under a name: after a kill or a power cut the name has its old content or the new one.

    Raises:
        OSError: what the disk said. The name is as it was.
    """
    make_folder(path.parent)
    temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    # Read-only by mode, so that no editor changes content under its digest by accident.
    descriptor = os.open(temporary, flags, 0o444)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            # The kernel stamps files in steps of milliseconds; the order of writes needs a finer clock.
            now = time.time_ns()
            os.utime(descriptor, ns=(now, now))
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def ensure_whole(root: Path, name: str, data: bytes) -> None:
    """Put content under a name unless it is there already. Damaged content, or a link, is replaced.

    Content that is there keeps its place in the order of writing (mtime), and is young again (ctime).

    Raises:
        OSError: what the disk said.
    """
    path = root / name
    try:
        there = read_whole(root, name, max_bytes=len(data)) == data
    except OSError:
        there = False
    if there:
        status = path.lstat()
        with contextlib.suppress(OSError):  # not ours, or read-only: then gc of this user cannot take it
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
        # Another process may have given it its name a moment ago; from now on we rely on it as well.
        sync_folder(path.parent)
    else:
        write_whole(path, data)


def read_whole(root: Path, name: str, max_bytes: int | None = None) -> bytes:
    """The content of a regular file below `root`. No symbolic link is followed on the way from `root`.

    Args:
        root: an existing folder; it may itself be reached through a link.
        name: relative, with forward slashes, of trusted spelling.
        max_bytes: a larger file is not read.

    Raises:
        OSError: it is not there, not a regular file, or larger than `max_bytes` (EFBIG).
    """
    *folders, last = name.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(folder, flags, dir_fd=here)
            os.close(here)
            here = below
        # Without O_NONBLOCK a FIFO that somebody put there would hold us forever.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(last, flags, dir_fd=here)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a symbolic link stands there") from None
        raise
    finally:
        os.close(here)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if max_bytes is not None and status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, more than the {max_bytes} allowed")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # One byte more than there should be: a file that grows meanwhile fails its digest.
            return file.read(status.st_size + 1)
    finally:
        os.close(descriptor)
