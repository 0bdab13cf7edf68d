"""The workspace looked after: check it, rebuild its index, remove what nothing names."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilegate.build.project import load_project
from tilegate.errors import TrustError
from tilegate.pipeline.opened import open_project
from tilegate.pipeline.promote import read_release
from tilegate.records.canonical import decode, peek_schema, schema_of
from tilegate.records.release import Release
from tilegate.records.report import StoreFault, StoreReport
from tilegate.rules.retention import plan_gc, references
from tilegate.store.blobs import Blobs
from tilegate.store.check import Scan, faults_of, leftovers, scan
from tilegate.store.files import BLOB_FOLDER
from tilegate.store.gc import GRACE_S, sweep
from tilegate.store.layout import Layout, layers_of
from tilegate.store.workspace import Workspace


def check(folder: Path) -> StoreReport:
    """Read everything that the workspace and the release of a project hold.

    Raises:
        ProjectError: no project.
        StoreError: the workspace cannot be listed, or others write to it for very long.
    """
    workspace, release = _opened(folder)
    with workspace.blobs.held_alone():
        found = scan(workspace)
        faults = (*faults_of(workspace, found), *_release_faults(release))
    return _report("check", workspace, release, found, faults)


def rebuild(folder: Path) -> StoreReport:
    """Fill the index anew from the blobs, also where it cannot be read any more.

    Raises:
        ProjectError: no project.
        StoreError, RecordError: a blob is damaged. The index is as it was.
    """
    workspace, release = _opened(folder)
    if next(iter(workspace.blobs), None) is not None or (workspace.root / "index.sqlite").exists():
        workspace.rebuild()
    with workspace.blobs.held_alone():
        found = scan(workspace)
        faults = tuple(faults_of(workspace, found))
    return _report("rebuild", workspace, release, found, faults)


def gc(
    folder: Path,
    *,
    keep: Sequence[Path] = (),
    superseded: bool = False,
    dry_run: bool = False,
    grace_s: float = GRACE_S,
) -> StoreReport:
    """Remove blobs that nothing names, and leftovers of killed processes, as `rules.retention` decides.

    Where something cannot be read, nothing is removed: what it names cannot be known.

    Args:
        folder: the project.
        keep: release folders besides release/ in the project. Their earlier releases count as well.
        superseded: let artifacts go too whose source is no longer there, that no release names, and in whose
            evidence nothing failed.
        dry_run: only tell.
        grace_s: what was written less than this ago is kept.

    Raises:
        UsageError: no project; `keep` names no release; with `superseded`, a source that cannot be read.
        TrustError: a release is not what it says it is.
        StoreError: the workspace cannot be listed or written, or others write to it for very long.
    """
    workspace, release = _opened(folder)
    current = _current(folder) if superseded else None
    with workspace.blobs.held_alone():
        found = scan(workspace)
        if found.faults:
            return _report("gc", workspace, release, found, tuple(found.faults))
        now_ns = time.time_ns()
        oldest_young_ns = now_ns - round(grace_s * 1e9)
        waves = plan_gc(
            found.held,
            released=_released(release, keep),
            young=[digest for digest, ns in found.changed_ns.items() if ns > oldest_young_ns],
            current=current,
        )
        old = [(path, size) for path, size, ns in _leftovers(workspace, release) if ns <= oldest_young_ns]
        if not dry_run:
            sweep(workspace, waves, [path for path, _ in old])
    going = [digest for wave in waves for digest in wave]
    removed = Counter(found.held[digest].schema or "content" for digest in going)
    if old:
        removed["leftovers"] = len(old)
    freed = sum(found.sizes[digest] for digest in going) + sum(size for _, size in old)
    return _report("gc", workspace, release, found, removed=dict(removed), freed=freed, dry_run=dry_run)


def _opened(folder: Path) -> tuple[Workspace, Path]:
    """Workspace and release of a project. Its source may be in whatever state."""
    load_project(folder)
    return Workspace(folder.resolve() / ".tilegate"), folder.resolve() / "release"


def _current(folder: Path) -> set[str]:
    opened = open_project(folder)
    return {opened.closure(binding)[0].digest for binding in opened.bindings}


def _leftovers(workspace: Workspace, release: Path) -> Iterator[tuple[Path, int, int]]:
    return leftovers(workspace.root, workspace.root / BLOB_FOLDER, release, release / BLOB_FOLDER)


def _released(release: Path, keep: Sequence[Path]) -> Iterator[str]:
    """What the releases in these folders name, earlier ones included: rolling back is going back to one."""
    read_release(release)
    for folder in keep:
        Layout(folder).open_statement()  # a slip in a folder's name must not remove what it was to keep
        read_release(folder)
    for folder in (release, *keep):
        blobs = Blobs(folder)
        for digest in blobs:
            data = blobs.get(digest)
            if peek_schema(data) == schema_of(Release):
                statement = decode(Release, data, where=str(blobs.path(digest)))
                yield from (reference.digest for reference in references(statement))


def _release_faults(release: Path) -> Iterator[StoreFault]:
    try:
        standing = read_release(release)
    except TrustError as error:
        yield StoreFault(
            kind="corrupt", what=str(release / error.where), why=error.why, next_step=error.next_step
        )
        return
    for layer in layers_of(standing) if standing else ():
        try:
            Layout(release).open_blob(layer.blob)
        except TrustError as error:
            yield StoreFault(
                kind="corrupt", what=str(release / error.where), why=error.why, next_step=error.next_step
            )


def _report(
    action: str,
    workspace: Workspace,
    release: Path,
    found: Scan,
    faults: tuple[StoreFault, ...] = (),
    *,
    removed: dict[str, int] | None = None,
    freed: int = 0,
    dry_run: bool = False,
) -> StoreReport:
    return StoreReport(
        action=action,
        blobs=len(found.held),
        size=sum(found.sizes.values()),
        documents=found.documents,
        leftovers=sum(1 for _ in _leftovers(workspace, release)),
        faults=faults,
        removed=removed or {},
        freed=freed,
        dry_run=dry_run,
    )
