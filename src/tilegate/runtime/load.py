"""Load: a verified release becomes a table of open artifacts. Everything slow or doubtful happens here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilegate.errors import RecordError, ToolError, TrustError
from tilegate.library import Library, Rows, open_library
from tilegate.records.artifact import ABI, Manifest
from tilegate.records.canonical import Blob, Record, decode, encode
from tilegate.records.contract import Contract
from tilegate.records.policy import Policy
from tilegate.records.release import Candidate, Release
from tilegate.records.shape import ShapeClass
from tilegate.records.target import DeviceClass
from tilegate.rules.selection import preferred, unfit

R = TypeVar("R", bound=Record)

NONE_LIKE_IT = {"cuda": "this process sees no GPU: its driver is missing, does not work, or hides them"}
"""What is said of a candidate where no device of its kind is present."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where tensors may lie in this process: in the processor's memory, or in that of one GPU."""

    number: int
    """What torch's `Tensor.get_device()` says: -1, or the number of the GPU."""
    device: DeviceClass
    unusable: str = ""
    """Why nothing can be launched there, though the device is present."""

    def __str__(self) -> str:
        return self.device.backend if self.number < 0 else f"{self.device.backend}:{self.number}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """One artifact, open, with the rows its guard reads."""

    candidate: Candidate
    manifest: Manifest
    library: Library
    rows: Rows
    places: frozenset[int]
    """Numbers of the places where it may run."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A candidate of the release that is not served on some or all devices of this machine, and why."""

    candidate: Candidate
    why: str

    def __str__(self) -> str:
        return f"{self.candidate.kernel} of {self.candidate.operator}: {self.why}"


@dataclass(frozen=True, slots=True)
class Table:
    """What this process may run: decided once, for this release on this machine."""

    release: Release
    places: tuple[Place, ...]
    contracts: dict[str, Contract]
    """By operator name."""
    loaded: dict[str, tuple[Loaded, ...]]
    """By operator name, in the order in which a call asks them: `layers`, one after the other."""
    skipped: tuple[Skipped, ...]


def load(release: Release, open_blob: Callable[[Blob], bytes], places: Sequence[Place]) -> Table:
    """Open what the release lists for the devices of this machine. Nothing is written, compiled or fetched.

    1. Contracts are read, one for each operator: their digests are compared with the live operators.
    2. A candidate for other devices, or evidenced on another model where policy minds, is skipped.
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
        fitting, why = _fitting(candidate, release.policy, places)  # (2)
        if why:
            skipped.append(Skipped(candidate, why))
        if not fitting:
            continue
        manifest = _manifest(candidate, contracts, open_blob)  # (3)
        try:
            library = open_library(open_blob(candidate.library), identity=manifest.identity)  # (4)
        except ToolError as error:
            skipped.append(Skipped(candidate, error.what))  # (5)
            continue
        rows = Rows(candidate.classes, manifest.symbols)
        loaded.setdefault(candidate.operator, []).append(Loaded(candidate, manifest, library, rows, fitting))
    return Table(
        release=release,
        places=tuple(places),
        contracts=contracts,
        loaded={
            name: tuple(itertools.chain(*layers(preferred((o.candidate.target, o) for o in found))))
            for name, found in loaded.items()
        },
        skipped=tuple(skipped),
    )


def gathered(loaded: Iterable[Loaded]) -> list[tuple[frozenset[int], tuple[Loaded, ...]]]:
    """Places where the same artifacts run, with those artifacts in the order given: GPUs first, whose calls are
    the shortest.
    """
    given = list(loaded)
    found: dict[tuple[int, ...], set[int]] = {}
    for number in sorted(frozenset().union(*(one.places for one in given)), key=lambda n: (n < 0, n)):
        found.setdefault(tuple(i for i, one in enumerate(given) if number in one.places), set()).add(number)
    return [(frozenset(numbers), tuple(given[i] for i in which)) for which, numbers in found.items()]


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


def _fitting(candidate: Candidate, policy: Policy, places: Sequence[Place]) -> tuple[frozenset[int], str]:
    """Where a candidate may run, and why not where it may not."""
    alike = [place for place in places if place.device.backend == candidate.target.backend]
    if not alike:
        return (
            frozenset(),
            f"built for {candidate.target}; {NONE_LIKE_IT.get(candidate.target.backend, 'no such device')}",
        )
    found = {place: place.unusable or unfit(candidate, policy, place.device) for place in alike}
    whys: dict[str, list[str]] = {}
    for place, why in found.items():
        if why:
            whys.setdefault(why, []).append(str(place))
    fitting = frozenset(place.number for place, why in found.items() if not why)
    return fitting, "; ".join(f"{why} (on {', '.join(on)})" if fitting else why for why, on in whys.items())


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
