"""From the bytes of a release statement to a release that may be loaded."""

from __future__ import annotations

from collections.abc import Iterator

from tilegate.errors import RecordError, TrustError
from tilegate.records.canonical import Blob, decode, digest_of
from tilegate.records.release import Release


def verify(statement: bytes, *, allow_unsigned: bool) -> Release:
    """The release that a statement is, once it deserves belief.

    1. It is signed. Signatures are not made yet, so only `allow_unsigned` lets a statement pass.
    2. It is a release of this schema, in canonical bytes.
    3. No digest is listed with two sizes, and no contract twice.
    4. Every candidate's contract is listed.
    5. Every candidate has a shape class: without one it could serve nothing.
    6. No artifact stands twice for the same operator.

    Whether blobs are the bytes that are listed is asked when they are opened, not here.

    Raises:
        TrustError: naming the first step that fails. The cause is the RecordError where step 2 fails.
    """
    digest = digest_of(statement)
    if not allow_unsigned:  # (1)
        raise TrustError(
            "the release is not signed",
            where=digest,
            why="nobody vouches for what it lists",
            next_step="pass allow_unsigned=True while developing",
        )
    try:
        release = decode(Release, statement, where=digest)  # (2)
    except RecordError as error:
        raise TrustError(
            "the release statement cannot be read",
            where=digest,
            why=f"{error.what}: {error.why}",
            next_step=error.next_step or "take the release again from where it was promoted",
        ) from error
    for fault in _faults(release):
        raise TrustError(
            "the release statement contradicts itself",
            where=digest,
            why=fault,
            next_step="promote again; a statement is never edited by hand",
        )
    return release


def _faults(release: Release) -> Iterator[str]:
    sizes: dict[str, int] = {}
    for blob in _blobs(release):  # (3)
        if sizes.setdefault(blob.digest, blob.size) != blob.size:
            yield f"{blob.digest} is listed with {sizes[blob.digest]} and with {blob.size} bytes"
    contracts = [blob.digest for blob in release.contracts]
    if len(set(contracts)) != len(contracts):
        yield "a contract is listed twice"
    seen: set[tuple[str, str]] = set()
    for candidate in release.candidates:
        name = f"kernel {candidate.kernel} of {candidate.operator} for {candidate.target}"
        if candidate.contract not in contracts:  # (4)
            yield f"{name} is bound to the contract {candidate.contract}, which is not listed"
        if not candidate.classes:  # (5)
            yield f"{name} has no shape class"
        key = (candidate.operator, candidate.manifest.digest)
        if key in seen:  # (6)
            yield f"{name} is listed twice with the same artifact"
        seen.add(key)


def _blobs(release: Release) -> Iterator[Blob]:
    yield from release.contracts
    for candidate in release.candidates:
        yield candidate.manifest
        yield candidate.library
        yield from candidate.evaluations
