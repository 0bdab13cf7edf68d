"""What a returned evaluation must be before home records it, and what home's own recomputation says of it.

Laws (proved in tests/test_merge.py):

1. A result that is left out is a result only of a kernel that took its workers with it: what is told is the
   plan from its start up to some entry, and it stops early only behind as many lost workers as make it stop.
2. A claim in an artifact's favour counts as recomputed only where its outputs came back, so that it was among
   those of which the sample was drawn.

What it cannot do: a sample finds a machine that lies often, not one that lied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from tilegate.records.bundle import Export
from tilegate.records.canonical import Record
from tilegate.records.evaluation import EntryResult, EntryVerdict, Evaluation, Vouch
from tilegate.records.evidence import Ran, Returned
from tilegate.records.plan import Plan

LOST = (EntryVerdict.CRASHED, EntryVerdict.HUNG)
JUDGED = (EntryVerdict.PASSED, EntryVerdict.WRONG, EntryVerdict.NONFINITE, EntryVerdict.UNSUPPORTED)
"""Verdicts that follow from outputs and the reference; all others are seen on the machine itself."""
FAVOURS = (EntryVerdict.PASSED, EntryVerdict.UNSUPPORTED)

NEAR = (-1, 0)
"""Magnitudes of an error at the edge of what is allowed: sums in another order may end on either side of it."""


class Claim(Record, frozen=True):
    """A result that home can recompute: its outputs came back."""

    result: EntryResult
    ran: Ran


def faults(
    export: Export,
    plan: Plan,
    contract: str,
    library: str,
    returned: Returned,
    *,
    lost_workers: int,
) -> Iterator[str]:
    """Whatever is wrong with what came back for one export, as sentences.

    Args:
        export: home's own record of what was handed out.
        plan: home's own, as the export names it.
        contract: digest of the contract that was handed out.
        library: digest of the library that was handed out.
        returned: what the other machine says.
        lost_workers: after as many an evaluation stops early.
    """
    told = returned.evaluation
    for noun, theirs, ours in (
        ("contract", told.contract, contract),
        ("manifest", told.manifest, export.manifest),
        ("library", told.library, library),
        ("plan, or its nonce,", told.plan, export.plan),
    ):
        if theirs != ours:
            yield f"the {noun} is not the one that was handed out"
    if told.vouch is not Vouch.SELF_REPORTED:
        yield f"it says that its results are {told.vouch.value}, which only home can say"
    yield from _faults_of_results(plan, told.results, lost_workers)
    yield from _faults_of_runs(told.results, returned.ran)
    timed = [timing.index for timing in returned.timings]
    if len(set(timed)) != len(timed) or not set(timed) <= set(range(len(plan.entries))):
        yield "it times entries that are not in the plan, or one twice"


def _faults_of_results(plan: Plan, results: Sequence[EntryResult], lost_workers: int) -> Iterator[str]:
    indices = [result.index for result in results]
    if len(set(indices)) != len(indices):
        yield "an entry has more than one result"
    elif indices != list(range(len(indices))) or len(indices) > len(plan.entries):
        yield "its results are not those of the plan's entries, one after another"
    lost = sum(result.verdict in LOST for result in results)
    if len(results) < len(plan.entries) and lost < lost_workers:
        yield f"{len(plan.entries) - len(results)} of {len(plan.entries)} entries are missing"


def _faults_of_runs(results: Sequence[EntryResult], ran: Sequence[Ran]) -> Iterator[str]:
    told = [one.facts.index for one in ran]
    wanted = [result.index for result in results if result.verdict not in LOST]
    if told != wanted:
        yield "what was seen of an entry is missing, or is told of one that did not run"


def claims(returned: Returned, there: Iterable[str]) -> list[Claim]:
    """What home may draw its sample from: results that follow from outputs, all of which came back.

    Args:
        returned: what the other machine says.
        there: digests of the blobs that came with it.
    """
    present = set(there)
    seen = {one.facts.index: one for one in returned.ran}
    return [
        Claim(result=result, ran=seen[result.index])
        for result in returned.evaluation.results
        if result.verdict in JUDGED
        and result.index in seen
        and not seen[result.index].facts.failed
        and all(blob.digest in present for blob in seen[result.index].outputs)
    ]


def agree(theirs: EntryResult, ours: EntryResult) -> bool:
    """Whether two machines judged the same outputs alike.

    Both compute the reference, and may sum in another order: a verdict may differ where the error lies at the
    edge of what is allowed.
    """
    if theirs.verdict is ours.verdict:
        return True
    edge = {EntryVerdict.PASSED, EntryVerdict.WRONG}
    return {theirs.verdict, ours.verdict} == edge and {theirs.error_log2, ours.error_log2} <= set(NEAR)


def vouched(
    evaluation: Evaluation, claimed: Iterable[int], recomputed: Sequence[EntryResult]
) -> list[Evaluation]:
    """The evaluations to record: who stands for which results.

    1. Where home recomputed a result, home's own is recorded.
    2. Results in the artifact's favour whose outputs did not come back are self-reported, and stand in an
       evaluation of their own. So is everything where nothing was recomputed.
    """
    if not recomputed:
        return [structs.replace(evaluation, vouch=Vouch.SELF_REPORTED)]
    known, own = set(claimed), {result.index: result for result in recomputed}
    parts: dict[Vouch, list[EntryResult]] = {Vouch.RECOMPUTED: [], Vouch.SELF_REPORTED: []}
    for result in evaluation.results:
        alone = result.verdict in FAVOURS and result.index not in known
        parts[Vouch.SELF_REPORTED if alone else Vouch.RECOMPUTED].append(own.get(result.index, result))
    return [
        structs.replace(evaluation, vouch=vouch, results=tuple(results))
        for vouch, results in parts.items()
        if results
    ]
