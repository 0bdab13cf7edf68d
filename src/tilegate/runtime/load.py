"""Load: a verified release becomes a table of open artifacts. Everything slow or doubtful happens here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from tilegate.errors import RecordError, ToolError, TrustError
from tilegate.library import Library, Rows, open_library
from tilegate.records.artifact import ABI, Manifest
from tilegate.records.canonical import Blob, Record, decode, encode
from tilegate.records.contract import Contract
from tilegate.records.release import Candidate, Release
from tilegate.records.shape import ShapeClass
from tilegate.records.target import DeviceClass
from tilegate.rules.selection import preferred, unfit

R = TypeVar("R", bound=Record)


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
    """By operator name, in the order in which a call asks them: `layers`, one after the other."""
    skipped: tuple[Skipped, ...]


def load(release: Release, open_blob: Callable[[Blob], bytes], device: DeviceClass) -> Table:
    """Open what the release lists for this device. Nothing is written, compiled or fetched.

    1. Contracts are read, one for each operator: their digests are compared with the live operators.
    2. A candidate for another device, or evidenced on another processor where policy minds, is skipped.
    3. Its manifest must agree with the release about operator, contract, target and library; its contract
       must be the one of its operator, so that no call is answered by evidence for another; its classes
       must range over its axes.
    4. The library is read once, hashed by the opener, opened from that memory, and its identity compared.
    5. A library that the system's loader refuses is skipped: its calls go to the reference.

    Raises:
        TrustError: any digest, size or identity differs. Nothing of the release is used then.
    """
    contracts = _contracts(release, open_blob)  # (1)
    loaded: dict[str, list[Loaded]] = {}
    skipped: list[Skipped] = []
    for candidate in release.candidates:
        why = unfit(candidate, release.policy, device)  # (2)
        if why:
            skipped.append(Skipped(candidate, why))
            continue
        manifest = _manifest(candidate, contracts, open_blob)  # (3)
        try:
            library = open_library(open_blob(candidate.library), identity=manifest.identity)  # (4)
        except ToolError as error:
            skipped.append(Skipped(candidate, error.what))  # (5)
            continue
        rows = Rows(candidate.classes, manifest.symbols)
        loaded.setdefault(candidate.operator, []).append(Loaded(candidate, manifest, library, rows))
    return Table(
        release=release,
        device=device,
        contracts=contracts,
        loaded={
            name: tuple(itertools.chain(*layers(preferred((o.candidate.target, o) for o in found))))
            for name, found in loaded.items()
        },
        skipped=tuple(skipped),
    )


def layers(loaded: Iterable[Loaded]) -> list[tuple[Loaded, ...]]:
    """What one look-up can tell apart: artifacts of a layer fix the same words, each to values of its own.

    A call asks the next layer where the one before had nothing or refused: another kernel, a lower target,
    or an artifact that leaves open what others fix. Given the best first, the best comes first.
    """
    made: list[tuple[frozenset[str], dict[bytes, Loaded]]] = []
    for one in loaded:
        spec = one.manifest.elaboration.specialization
        words, values = frozenset({*spec.axes, *spec.dtypes, *spec.attributes}), encode(spec)
        for known, layer in made:
            if known == words and values not in layer:
                layer[values] = one
                break
        else:
            made.append((words, {values: one}))
    return [tuple(layer.values()) for _, layer in made]


def _contracts(release: Release, open_blob: Callable[[Blob], bytes]) -> dict[str, Contract]:
    found: dict[str, Contract] = {}
    for blob in release.contracts:
        contract = _read(Contract, blob, open_blob)
        if contract.name in found:
            raise _contradiction(blob, f"operator {contract.name} has two contracts")
        found[contract.name] = contract
    return found


def _manifest(
    candidate: Candidate, contracts: dict[str, Contract], open_blob: Callable[[Blob], bytes]
) -> Manifest:
    manifest = _read(Manifest, candidate.manifest, open_blob)
    said = (manifest.abi, manifest.operator, manifest.elaboration.contract, manifest.target, manifest.library)
    listed = (ABI, candidate.operator, candidate.contract, candidate.target, candidate.library)
    if said != listed:
        raise _contradiction(candidate.manifest, "operator, contract, target, library or ABI differ")
    contract = contracts.get(candidate.operator)
    if contract is None or contract.digest != candidate.contract:
        raise _contradiction(candidate.manifest, f"its contract is not that of {candidate.operator}")
    for shape_class in candidate.classes:
        if not _can_guard(shape_class, manifest.symbols):
            raise _contradiction(candidate.manifest, f"{shape_class} is no shape class of its axes")
    return manifest


def _can_guard(shape_class: ShapeClass, symbols: tuple[str, ...]) -> bool:
    """Whether the guard in C can read a class: it takes the numbers as they are, and divides by each step."""
    alignment = shape_class.alignment_bytes
    return (
        shape_class.axes.keys() == set(symbols)
        and all(span.step >= 1 for span in shape_class.axes.values())
        and all(-(2**63) <= number < 2**63 for number in shape_class.row(symbols))
        and alignment >= 1
        and alignment & (alignment - 1) == 0
    )


def _read(kind: type[R], blob: Blob, open_blob: Callable[[Blob], bytes]) -> R:
    try:
        return decode(kind, open_blob(blob), where=blob.digest)
    except RecordError as error:
        raise _contradiction(blob, f"{error.what}: {error.why}") from error


def _contradiction(blob: Blob, why: str) -> TrustError:
    return TrustError(
        "a blob and the release disagree about an artifact",
        where=f"blobs/{blob.digest.replace(':', '/')}",
        why=why,
        next_step="take the release again from where it was promoted, or run tilegate promote",
    )
