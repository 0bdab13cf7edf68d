"""The judge: outputs against the reference, at home, in float64. Numbers go in, a verdict comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tilegate.evaluate.inputs import extents
from tilegate.records.contract import EPSILON, Contract, TensorSpec
from tilegate.records.evaluation import EntryResult, EntryVerdict
from tilegate.records.evidence import Facts
from tilegate.records.miss import GUARD_CODES
from tilegate.records.plan import Entry

OWN_ERRORS = 4.0
"""How many times the reference's own error a kernel may err: another order of summation, not another sum."""

LUCK = 16.0
"""How much smaller than on nudged inputs the reference's own error may have come out by chance. A function that
is only hard to compute, as the sine of a huge number is, has no such excuse: its own error is small throughout.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """One output of the reference: computed in float64 (`wide`), and in the tensors' own dtypes (`own`)."""

    wide: bytes
    own: bytes
    nudged: tuple[bytes, ...] = ()
    """In float64 again, from inputs off by about their last bit."""


def judge(
    contract: Contract, entry: Entry, facts: Facts, outputs: Sequence[bytes], expected: Sequence[Expected]
) -> EntryResult:
    """The verdict of one entry that ran to its end.

    1. The artifact declined the call: REFUSED.
    2. What it did to memory that is not its own: OUT_OF_BOUNDS, INPUT_MODIFIED.
    3. What it left undone, or does otherwise each time: UNWRITTEN, NONDETERMINISTIC.
    4. Each output in turn: NONFINITE where NaN or infinity stand elsewhere than in the reference, WRONG
       where the tolerance is exceeded.
    """
    if (told := judge_facts(facts)) is not None:  # (1) to (3)
        return told
    index = facts.index
    worst: EntryResult | None = None
    for spec, data, reference in zip(contract.outputs, outputs, expected, strict=True):  # (4)
        result = _judge_output(contract, entry, index, spec, data, reference)
        if result.verdict is not EntryVerdict.PASSED:
            return result
        if worst is None or (result.error_log2 or -99) > (worst.error_log2 or -99):
            worst = result
    return worst or EntryResult(index=index, verdict=EntryVerdict.PASSED)


def judge_facts(facts: Facts) -> EntryResult | None:
    """The verdict that what was seen asks for, whatever the outputs are; None where they decide."""
    index = facts.index
    if facts.refusal:  # (1)
        code = facts.refusal & 0xFF  # the worker's claim: it may be any number
        reason = GUARD_CODES[code].name if 0 < code < len(GUARD_CODES) else "UNKNOWN"
        return EntryResult(index=index, verdict=EntryVerdict.REFUSED, detail=reason)
    if facts.outside:  # (2)
        return EntryResult(index=index, verdict=EntryVerdict.OUT_OF_BOUNDS, detail=facts.outside[0])
    if facts.modified:
        return EntryResult(index=index, verdict=EntryVerdict.INPUT_MODIFIED, detail=facts.modified[0])
    for counts, verdict in (
        (facts.unwritten, EntryVerdict.UNWRITTEN),  # (3)
        (facts.unstable, EntryVerdict.NONDETERMINISTIC),
    ):
        for name, count in counts.items():
            return EntryResult(index=index, verdict=verdict, count=count, detail=name)
    return None


def _judge_output(
    contract: Contract, entry: Entry, index: int, spec: TensorSpec, data: bytes, expected: Expected
) -> EntryResult:
    shape = extents(spec, entry.workload.axes)
    dtype_name = contract.dtype_of(spec, entry.workload.dtypes)
    dtype: torch.dtype = getattr(torch, dtype_name)
    out, own = _tensor(data, dtype, shape), _tensor(expected.own, dtype, shape)
    if out.numel() == 0:
        return EntryResult(index=index, verdict=EntryVerdict.PASSED)
    if not dtype.is_floating_point:
        wrong = out.ne(own)
        return _result(index, EntryVerdict.WRONG, wrong, spec) if bool(wrong.any()) else _passed(index)
    wide = _tensor(expected.wide, torch.float64, shape)
    unit = tolerance_unit(contract, entry, dtype_name)
    nudged = [_tensor(raw, torch.float64, shape) for raw in expected.nudged]
    slack = torch.finfo(dtype).tiny + OWN_ERRORS * fair_error(wide, own.double(), nudged)
    ratio = torch.minimum(
        error_ratio(out, wide, wide.to(dtype).double(), unit, slack),
        error_ratio(out, own.double(), own.double(), unit, slack),
    )
    theirs = wide.to(dtype).isfinite() | own.isfinite()
    nonfinite = (ratio > 1) & ~(out.isfinite() & theirs)
    if bool(nonfinite.any()):
        return _result(index, EntryVerdict.NONFINITE, nonfinite, spec)
    wrong = ratio > 1
    if bool(wrong.any()):
        return _result(index, EntryVerdict.WRONG, wrong, spec, ratio)
    return _passed(index, float(ratio.max()))


def tolerance_unit(contract: Contract, entry: Entry, dtype: str) -> float:
    """Relative tolerance of an element: factor * (eps(dtype) + sqrt(L) * eps(accumulate)): `records.contract.Tolerance` says why."""
    tolerance = contract.tolerance
    length = math.prod(entry.workload.axes[axis] for axis in tolerance.reduces)
    accumulate = EPSILON.get(tolerance.accumulate, 0.0)
    return tolerance.factor * (EPSILON[dtype] + math.sqrt(max(length, 1)) * accumulate)


def own_error(wide: torch.Tensor, own: torch.Tensor) -> float:
    """Largest error of the reference itself in the tensors' dtypes: how ill-conditioned the inputs are."""
    error = (own - wide).abs_().nan_to_num_(nan=0.0, posinf=0.0)
    return float(error.max()) if error.numel() else 0.0


def fair_error(wide: torch.Tensor, own: torch.Tensor, nudged: Sequence[torch.Tensor]) -> float:
    """The reference's own error without its luck: what inputs off by their last bit cost it, within bounds."""
    error = own_error(wide, own)
    return max([error, *(min(own_error(wide, other), LUCK * error) for other in nudged)])


def error_ratio(
    out: torch.Tensor, reference: torch.Tensor, shown: torch.Tensor, unit: float, slack: float
) -> torch.Tensor:
    """Error of each element in units of what is allowed; infinite where finiteness differs.

    In place where it can: a plan compares gigabytes, and their pages cost more than the arithmetic.

    Args:
        out: what the artifact gave.
        reference: float64.
        shown: the reference as the output's dtype can hold it: an overflow there is an infinity here.
        unit: relative tolerance.
        slack: allowed beside it, absolute.
    """
    finite = shown.isfinite()
    whole = bool(finite.all())
    scale = _root_mean_square(reference if whole else reference[finite])
    allowed = reference.abs().add_(scale).mul_(unit).add_(slack)
    ratio = (out.double() - reference).abs_().div_(allowed)
    if not whole:
        same = torch.where(shown.isnan(), out.isnan(), out.double() == shown)
        ratio = torch.where(finite, ratio, torch.where(same, 0.0, math.inf))
    return ratio.masked_fill_(finite & ~out.isfinite(), math.inf)


def _root_mean_square(values: torch.Tensor) -> torch.Tensor:
    """Of float64 values, 0 for none. Squares of the largest overflow, and infinity would allow everything."""
    largest = values.abs().max() if values.numel() else torch.zeros(())
    return largest * (values / largest).square_().mean().sqrt() if bool(largest) else largest


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)


def _passed(index: int, ratio: float = 0.0) -> EntryResult:
    return EntryResult(index=index, verdict=EntryVerdict.PASSED, error_log2=_magnitude(ratio))


def _result(
    index: int,
    verdict: EntryVerdict,
    mask: torch.Tensor,
    spec: TensorSpec,
    ratio: torch.Tensor | None = None,
) -> EntryResult:
    where = ratio.nan_to_num(posinf=math.inf).argmax() if ratio is not None else mask.int().argmax()
    worst = tuple(int(i) for i in torch.unravel_index(where, mask.shape)) if mask.dim() else ()
    return EntryResult(
        index=index,
        verdict=verdict,
        error_log2=_magnitude(float(ratio.max())) if ratio is not None else None,
        worst=worst,
        count=int(mask.sum()),
        detail=spec.name,
    )


def _magnitude(ratio: float) -> int | None:
    """floor(log2(ratio)), bounded: a size, not a value."""
    if ratio <= 0:
        return None
    return max(-64, min(64, math.floor(math.log2(ratio)))) if math.isfinite(ratio) else 64
