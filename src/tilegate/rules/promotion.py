"""From evidence to a release: which artifacts may serve which calls, and why the others may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from tilegate.records.artifact import Manifest
from tilegate.records.canonical import Blob, Digest, Record, digest_of, encode
from tilegate.records.contract import Contract
from tilegate.records.evaluation import EntryVerdict, Evaluation
from tilegate.records.isolation import Level
from tilegate.records.plan import Plan
from tilegate.records.policy import Policy
from tilegate.records.release import Candidate, Release
from tilegate.records.target import DeviceClass
from tilegate.records.verdict import Reason, Rejected
from tilegate.rules.coverage import Coverage, cover
from tilegate.rules.evidence import belongs, results_of, stands_for_shape

Recorded = tuple[Blob, Plan, Evaluation]
"""An evaluation by its blob, with the plan that it ran."""


class Promotable(Record, frozen=True):
    """One artifact, with everything that was ever recorded of it."""

    contract: Contract
    contract_blob: Blob
    manifest: Manifest
    manifest_blob: Blob
    evidence: tuple[Recorded, ...]


class Promotion(Record, frozen=True):
    """What may serve, and what may not. Both together are the answer."""

    release: Release | None
    """None where nothing may serve."""
    rejected: tuple[Rejected, ...]
    notes: dict[Digest, tuple[str, ...]] = {}  # noqa: RUF012 - msgspec makes a new one for each record
    """What the classes of each promoted artifact leave out, one line each, by manifest digest."""


def promote(inputs: Sequence[Promotable], policy: Policy, version: int) -> Promotion:
    """Decides for every artifact, in the order given, which is the order in which calls are offered to them.

    1. The blobs are those of the records, and the artifact was built for this very contract.
    2. It was built in an isolation that policy accepts.
    3. Some evaluation of it was recorded. One that ran in an isolation that policy does not accept, or that
       nobody vouches for whom policy accepts, can fail shapes, but passes nothing.
    4. Coverage gives it classes, over the evidence of all devices together: a failure on any of them counts.
    5. Its devices are those where one of its classes passed something.

    Args:
        inputs: artifacts. One that is named twice is judged once, on the evidence of both.
        policy: isolation, density, least number of passes.
        version: of the release, if there is one.
    """
    candidates: list[Candidate] = []
    contracts: dict[str, Blob] = {}
    rejected: list[Rejected] = []
    notes: dict[str, tuple[str, ...]] = {}
    for item in _merged(inputs):
        reasons = tuple(_faults_of_record(item, policy))
        coverage = Coverage(rejected=reasons) if reasons else _cover(item, policy)
        if coverage.rejected:
            rejected.append(Rejected(subject=_subject(item.manifest), reasons=coverage.rejected))
            continue
        candidates.append(_candidate(item, coverage, policy))
        contracts[item.contract_blob.digest] = item.contract_blob
        notes[item.manifest_blob.digest] = coverage.notes
    release = Release(
        version=version, policy=policy, contracts=tuple(contracts.values()), candidates=tuple(candidates)
    )
    return Promotion(release=release if candidates else None, rejected=tuple(rejected), notes=notes)


def _merged(inputs: Iterable[Promotable]) -> list[Promotable]:
    """One item for each artifact and contract: a failure cannot hide in the other mention."""
    found: dict[tuple[str, str], Promotable] = {}
    for item in inputs:
        key = (item.manifest_blob.digest, item.contract_blob.digest)
        known = found.get(key)
        found[key] = structs.replace(known, evidence=(*known.evidence, *item.evidence)) if known else item
    return list(found.values())


def _subject(manifest: Manifest) -> str:
    """`gemm for cpu:x86-64-v3, kernel tiled (T=float32)`."""
    built = manifest.elaboration
    return f"{built.operator} for {manifest.target}, kernel {built.kernel} ({built.specialization})"


def _faults_of_record(item: Promotable, policy: Policy) -> Iterator[Reason]:
    yield from _digest_faults(item)  # (1)
    if item.manifest.elaboration.contract != item.contract.digest:
        yield Reason(
            code="CONTRACT_CHANGED",
            message="it was built for another contract: axes, dtypes, attributes, tolerance or the reference "
            "changed since",
            next_step="tilegate build, then tilegate evaluate",
        )
    levels = {isolation.level for isolation in item.manifest.isolation}
    if not levels or not levels <= set(policy.isolation):  # (2)
        yield _isolation_fault("built", levels, policy, "tilegate build")
    evaluations = [e for _, plan, e in item.evidence if belongs(item.contract, item.manifest, plan, e)]
    isolated = [e for e in evaluations if e.isolation.level in policy.isolation]
    if not evaluations:  # (3)
        yield Reason(
            code="NO_EVIDENCE",
            message="it was never evaluated under this contract",
            next_step=f"tilegate evaluate {item.manifest.operator}",
        )
    elif not isolated:
        levels = {e.isolation.level for e in evaluations}
        yield _isolation_fault("evaluated", levels, policy, "tilegate evaluate")
    elif not any(_accepted(e, policy) for e in evaluations):
        found = ", ".join(sorted({e.vouch.value for e in isolated}))
        yield Reason(
            code="VOUCH",
            message=f"its evidence is {found}; policy accepts "
            f"{', '.join(vouch.value for vouch in policy.vouch) or 'none'}",
            next_step="evaluate its bundle with room for outputs (--return-mib), and merge that; or accept it in "
            "[policy] of tilegate.toml",
        )


def _digest_faults(item: Promotable) -> Iterator[Reason]:
    pairs: list[tuple[str, Blob, Record]] = [
        ("contract", item.contract_blob, item.contract),
        ("manifest", item.manifest_blob, item.manifest),
        *(("evaluation", blob, evaluation) for blob, _, evaluation in item.evidence),
    ]
    for noun, blob, record in pairs:
        if blob.digest != digest_of(encode(record)):
            yield Reason(
                code="DIGEST",
                message=f"its {noun} is not the content of {blob.digest[:19]}: nothing that follows from it counts",
                next_step="take the workspace from where it was made, or build and evaluate again",
            )


def _isolation_fault(done: str, levels: Iterable[Level], policy: Policy, command: str) -> Reason:
    found = ", ".join(sorted(level.value for level in levels)) or "nothing recorded"
    accepted = ", ".join(level.value for level in policy.isolation) or "none"
    return Reason(
        code="ISOLATION",
        message=f"it was {done} in isolation of level {found}; policy accepts {accepted}",
        next_step=f"{command} where that is available, or accept the level in [policy] of tilegate.toml",
    )


def _cover(item: Promotable, policy: Policy) -> Coverage:
    """(4)"""
    evidence = [(plan, _counted(evaluation, policy)) for _, plan, evaluation in item.evidence]
    return cover(item.contract, item.manifest, evidence, policy)


def _counted(evaluation: Evaluation, policy: Policy) -> Evaluation:
    """(3) Without its passes where policy does not accept its isolation, or who vouches for it."""
    if _accepted(evaluation, policy):
        return evaluation
    failures = (result for result in evaluation.results if result.verdict is not EntryVerdict.PASSED)
    return structs.replace(evaluation, results=tuple(failures))


def _accepted(evaluation: Evaluation, policy: Policy) -> bool:
    return evaluation.isolation.level in policy.isolation and evaluation.vouch in policy.vouch


def _candidate(item: Promotable, coverage: Coverage, policy: Policy) -> Candidate:
    belonging = [r for r in item.evidence if belongs(item.contract, item.manifest, r[1], r[2])]
    return Candidate(
        operator=item.manifest.operator,
        contract=item.contract.digest,
        kernel=item.manifest.elaboration.kernel,
        target=item.manifest.target,
        manifest=item.manifest_blob,
        library=item.manifest.library,
        evaluations=tuple(dict.fromkeys(blob for blob, _, _ in belonging)),
        devices=tuple(_devices(item, belonging, coverage, policy)),
        classes=coverage.classes,
    )


def _devices(
    item: Promotable, belonging: Sequence[Recorded], coverage: Coverage, policy: Policy
) -> dict[DeviceClass, None]:
    """(5) In order of first appearance."""
    found: dict[DeviceClass, None] = {}
    for _, plan, evaluation in belonging:
        results = results_of(item.contract, item.manifest, plan, _counted(evaluation, policy))
        for point, entry, verdict in results:
            extents = dict(zip(item.manifest.symbols, point, strict=True))
            passed = verdict is EntryVerdict.PASSED and stands_for_shape(entry)
            if passed and any(shape_class.admits(extents) for shape_class in coverage.classes):
                found[evaluation.device] = None
                break
    return found
