"""A folder for a job's temporary files, where it has no file system of its own. It goes when the job goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def scratch_folder(owner: int | None) -> Iterator[str]:
    """A new folder that only its owner may enter: `owner`, or whoever runs this."""
    folder = tempfile.mkdtemp(prefix="tilegate-")
    try:
        if owner is not None:
            os.chown(folder, owner, owner)
        yield folder
    finally:
        _remove(folder)


def _remove(folder: str) -> None:
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        # Read-only folders, or a tree deeper than the interpreter's stack. Neither tool follows links.
        for tool in (("chmod", "-R", "u+rwx"), ("rm", "-rf")):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(  # noqa: S603 (two fixed tools on a folder of our own)
                    [*tool, "--", folder],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=60,
                    check=False,
                )
