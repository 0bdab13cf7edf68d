"""Load: a verified release becomes a table of open artifacts. Everything slow or doubtful happens here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilegate.errors import ToolError, TrustError
from tilegate.library import Library, Rows, open_library
from tilegate.records.artifact import ABI, Manifest
from tilegate.records.canonical import Blob, decode
from tilegate.records.contract import Contract
from tilegate.records.release import Candidate, Release
from tilegate.records.target import X86_64_LEVELS, DeviceClass, runs_on


@dataclass(frozen=True, slots=True)
class Loaded:
    """One artifact, open, with the rows its guard reads."""

    candidate: Candidate
    manifest: Manifest
    library: Library
    rows: Rows


@dataclass(frozen=True, slots=True)
class Skipped:
    """A candidate of the release that this machine does not serve, and why."""

    candidate: Candidate
    why: str


@dataclass(frozen=True, slots=True)
class Table:
    """What this process may run: decided once, for this release on this device."""

    release: Release
    device: DeviceClass
    contracts: dict[str, Contract]
    """By operator name."""
    loaded: dict[str, tuple[Loaded, ...]]
    """By operator name, the best instruction set first; within it, the release's order."""
    skipped: tuple[Skipped, ...]


def load(release: Release, open_blob: Callable[[Blob], bytes], device: DeviceClass) -> Table:
    """Open what the release lists for this device. Nothing is written, compiled or fetched.

    1. Contracts are read: a call site compares their digests with the live operators.
    2. A candidate for another device, or evidenced on another processor where policy minds, is skipped.
    3. Its manifest must agree with the release about operator, contract, target and library.
    4. The library is read once, hashed by the opener, opened from that memory, and its identity compared.
    5. A library that the system's loader refuses is skipped: its calls go to the reference.

    Raises:
        TrustError: any digest, size or identity differs. Nothing of the release is used then.
    """
    contracts = [decode(Contract, open_blob(blob), where=blob.digest) for blob in release.contracts]  # (1)
    loaded: dict[str, list[Loaded]] = {}
    skipped: list[Skipped] = []
    for candidate in release.candidates:
        why = _unfit(candidate, release, device)  # (2)
        if why:
            skipped.append(Skipped(candidate, why))
            continue
        manifest = _manifest(candidate, open_blob)  # (3)
        try:
            library = open_library(open_blob(candidate.library), identity=manifest.identity)  # (4)
        except ToolError as error:
            skipped.append(Skipped(candidate, error.what))  # (5)
            continue
        rows = Rows(candidate.classes, manifest.symbols)
        loaded.setdefault(candidate.operator, []).append(Loaded(candidate, manifest, library, rows))
    levels = list(X86_64_LEVELS)
    return Table(
        release=release,
        device=device,
        contracts={contract.name: contract for contract in contracts},
        loaded={
            name: tuple(sorted(found, key=lambda one: -levels.index(one.candidate.target.arch)))
            for name, found in loaded.items()
        },
        skipped=tuple(skipped),
    )


def _unfit(candidate: Candidate, release: Release, device: DeviceClass) -> str:
    if not runs_on(candidate.target, device):
        return f"built for {candidate.target}; this is {device}"
    if release.policy.same_processor_model and device not in candidate.devices:
        models = ", ".join(sorted({d.model for d in candidate.devices}))
        return f"evaluated on {models}; this is {device.model}"
    return ""


def _manifest(candidate: Candidate, open_blob: Callable[[Blob], bytes]) -> Manifest:
    manifest = decode(Manifest, open_blob(candidate.manifest), where=candidate.manifest.digest)
    said = (manifest.abi, manifest.operator, manifest.elaboration.contract, manifest.target, manifest.library)
    listed = (ABI, candidate.operator, candidate.contract, candidate.target, candidate.library)
    if said != listed:
        raise TrustError(
            "a manifest and the release disagree about an artifact",
            where=f"blobs/{candidate.manifest.digest.replace(':', '/')}",
            why="operator, contract, target, library or ABI differ",
            next_step="take the release from where it was promoted",
        )
    return manifest
