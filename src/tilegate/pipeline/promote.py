"""Promote: evidence and policy become a release folder, or the reasons why not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tilegate.errors import UsageError
from tilegate.pipeline.evaluate import evidence
from tilegate.pipeline.opened import Opened, open_project
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import blob_of, encode
from tilegate.records.release import Release
from tilegate.records.report import PromotedLine, PromoteReport
from tilegate.rules.promotion import Promotable, Promotion
from tilegate.rules.promotion import promote as decide
from tilegate.store.layout import Layout, write_layout
from tilegate.trust.verify import verify


def promote(folder: Path, *, release: Path | None = None, only: Sequence[str] = ()) -> PromoteReport:
    """Decide over every current artifact, and switch the release folder to what survives.

    Nothing is written when nothing survives: what was released stays released.

    Args:
        folder: the project.
        release: where the release stands or will stand; `release/` in the project by default.
        only: operators or kernels to promote; the others of the source leave the release.

    Raises:
        UsageError: nothing is built.
        TrustError: the release that stands there is not what it says it is.
    """
    opened = open_project(folder, only=only)
    where = release or opened.folder / "release"
    with opened.workspace.blobs.held():  # gc sees what evidence stands for the release, or the release
        return _promote(opened, where)


def _promote(opened: Opened, where: Path) -> PromoteReport:
    standing = read_release(where)
    current = opened.current()
    if not current:
        raise UsageError(
            "there is nothing to promote",
            where=str(opened.folder),
            why="no artifact was built from the source as it stands now",
            next_step="tilegate build && tilegate evaluate",
        )
    version = standing.version + 1 if standing else 1
    promotables = [_promotable(opened, digest, manifest) for digest, manifest in current]
    decided = decide(promotables, opened.policy, version)
    if decided.release is not None:
        write_layout(where, decided.release, _contents(opened, promotables, decided.release))
    return PromoteReport(
        release=str(where) if decided.release else None,
        version=version if decided.release else version - 1,
        lines=_lines(promotables, decided),
        rejected=decided.rejected,
    )


def read_release(where: Path) -> Release | None:
    """The release that stands in a folder, verified; None where there is none yet.

    index.json is the switch: without it a promotion was stopped before there was a release. One that stands
    alone is somebody else's, and no promotion writes over it.
    """
    if not os.path.lexists(where / "index.json"):
        return None
    if not any(os.path.lexists(where / name) for name in ("oci-layout", "blobs")):
        return None
    layout = Layout(where)
    release = verify(
        layout.open_statement(), allow_unsigned=True
    )  # releases are signed from a later version on
    for blob in (*release.contracts, *(b for c in release.candidates for b in (c.manifest, c.library))):
        layout.open_blob(blob)
    return release


def _promotable(opened: Opened, digest: str, manifest: Manifest) -> Promotable:
    contract = opened.declaration(manifest.elaboration.contract).contract
    return Promotable(
        contract=contract,
        contract_blob=blob_of(encode(contract)),
        manifest=manifest,
        manifest_blob=blob_of(encode(manifest)),
        evidence=tuple(
            (blob_of(encode(evaluation)), plan, evaluation)
            for _, plan, evaluation in evidence(opened, digest)
        ),
    )


def _contents(opened: Opened, promotables: Sequence[Promotable], release: Release) -> dict[str, bytes]:
    """Every blob that the release lists, by digest."""
    known: dict[str, bytes] = {}
    for one in promotables:
        known[one.contract_blob.digest] = encode(one.contract)
        known[one.manifest_blob.digest] = encode(one.manifest)
        known |= {blob.digest: encode(evaluation) for blob, _, evaluation in one.evidence}
    for candidate in release.candidates:
        known[candidate.library.digest] = opened.workspace.blobs.get(candidate.library.digest)
    return known


def _lines(promotables: Sequence[Promotable], decided: Promotion) -> tuple[PromotedLine, ...]:
    by_manifest = {one.manifest_blob.digest: one.manifest for one in promotables}
    return tuple(
        PromotedLine(
            operator=candidate.operator,
            kernel=candidate.kernel,
            specialization=by_manifest[candidate.manifest.digest].elaboration.specialization,
            target=str(candidate.target),
            classes=tuple(str(c) for c in candidate.classes),
            notes=decided.notes[candidate.manifest.digest],
        )
        for candidate in (decided.release.candidates if decided.release else ())
    )
