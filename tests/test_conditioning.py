"""Inputs on which any arithmetic loses digits: neither a kernel's luck nor PyTorch's decides."""

import pytest
import torch

from tests import world
from tilegate.evaluate import run
from tilegate.evaluate.judge import Expected, judge
from tilegate.evaluate.reference import NUDGES
from tilegate.evaluate.requests import Numbered
from tilegate.records.canonical import digest_of
from tilegate.records.closure import SourceFile
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.evidence import Facts
from tilegate.records.isolation import Level
from tilegate.records.plan import Entry, Layout, Origin, Values, Workload

SUM = b"""
import tilegate
@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[1]"})
def summed(x):
    return x.sum(0, keepdim=True)
"""
CONTRACT = world.contract_of({"x": ("n",)}, {"y": (1,)}, name="summed")


def entry(values=Values.MIXED):
    workload = Workload(axes={"n": 64})
    return Entry(workload=workload, layout=Layout.ALIGNED, values=values, origin=Origin.VALUES)


def raw(value, dtype):
    return torch.tensor([value], dtype=dtype).view(torch.uint8).numpy().tobytes()


def judged(out, *, own, nudged=()):
    """The verdict where the truth is 0, so that no tolerance is left but for what arithmetic loses."""
    expected = Expected(
        wide=raw(0.0, torch.float64),
        own=raw(own, torch.float32),
        nudged=tuple(raw(value, torch.float64) for value in nudged),
    )
    return judge(CONTRACT, entry(), Facts(index=0, inputs=""), [raw(out, torch.float32)], [expected]).verdict


@pytest.mark.parametrize(
    ("out", "nudged", "verdict"),
    [
        (3e-6, (), EntryVerdict.PASSED),
        (2e-5, (), EntryVerdict.WRONG),
        (2e-5, (1e-7,), EntryVerdict.WRONG),
        (2e-5, (1e-7, -1e-5), EntryVerdict.PASSED),
        (1e-3, (-1.0,), EntryVerdict.WRONG),  # luck has bounds: the sine of a huge number can be computed
    ],
)
def test_a_lucky_reference_does_not_condemn_a_kernel(out, nudged, verdict):
    assert judged(out, own=1e-6, nudged=nudged) is verdict


def test_a_reference_that_errs_nowhere_excuses_nobody():
    assert judged(1e-6, own=0.0, nudged=(1.0,)) is EntryVerdict.WRONG


def test_hard_values_are_run_again_from_inputs_off_by_their_last_bit():
    file = SourceFile(module="sums", path="sums.py", digest=digest_of(SUM), size=len(SUM))
    subject = run.Subject(
        contract=CONTRACT, manifest=None, library=b"", operator="sums:summed",
        files=(file,), sources={file.digest: SUM},
    )  # fmt: skip
    values = (Values.NORMAL, Values.MIXED, Values.ZEROS)
    numbered = [Numbered(index=i, seed=5, entry=entry(v)) for i, v in enumerate(values)]
    found = run.run_reference(subject, numbered, Level.FULL)
    (normal,), (mixed,), (zeros,) = (outputs for _, outputs in found.values())
    assert normal.nudged == ()
    assert set(zeros.nudged) == {zeros.wide}
    truth, *others = (
        torch.frombuffer(bytearray(b), dtype=torch.float64) for b in (mixed.wide, *mixed.nudged)
    )
    errors = [float((other - truth).abs()) for other in others]
    assert len(set(errors)) == NUDGES
    assert all(0 < error < 1e-3 for error in errors)
