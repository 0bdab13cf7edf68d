"""Removing what nothing names, beside writers that go on and under kills at any moment.

1. gc holds the workspace alone from before its first look until its last removal. A writer holds it together
   with others for one span: from the first blob that a record names to the record itself. So gc sees all
   of a span or nothing of it, and what it sees without a name was left by a writer that died.
2. Whoever writes piece by piece, without a span, has a time of grace: a blob that was put less than an hour
   ago is kept with all that it names. Putting content that is there already makes it young again (`ctime`), and
   does so under the same lock: gc has removed the content before, and it is written anew, or sees it young.
3. Nothing is removed before what names it (`rules.retention`, law 4), and before all else the index goes: it is
   filled anew from what is left. Killed in between, gc leaves a workspace in which nothing is missing, and the
   next gc goes on. And it needs no room: a full disk is where it is called for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tilegate.store.files import BLOB_FOLDER, store_error, sync_folder
from tilegate.store.workspace import Workspace

GRACE_S = 3600.0
"""Nobody takes an hour between a blob and what names it: a build's steps end within minutes."""


def sweep(workspace: Workspace, waves: Sequence[Sequence[str]], leftovers: Iterable[Path]) -> None:
    """Remove blobs, wave after wave, and leftovers. The caller holds the workspace alone.

    Raises:
        StoreError: the disk does not let go of one. What was not removed is whole, and counts.
    """
    if any(waves):
        workspace.index.discard()
    for wave in waves:
        if wave:
            _remove(workspace.blobs.path(digest) for digest in wave)
            sync_folder(workspace.root / BLOB_FOLDER)  # a power cut keeps the waves in order as well
    _remove(leftovers)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise store_error(
                error,
                what="cannot remove a file",
                where=path,
                next_step="make its folder writable, then run this again",
            ) from None
