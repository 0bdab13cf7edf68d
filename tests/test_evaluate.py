"""Every honest fault that evaluation promises to find, planted in C and found; and the arithmetic of the judge.

One artifact holds all faults: the extent chooses. So one worker meets them all, and has to go on behind those
that take it with them.
"""

from __future__ import annotations

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import world
from tilegate.evaluate import run, worker
from tilegate.evaluate.inputs import make_inputs
from tilegate.evaluate.judge import Expected, error_ratio, judge, tolerance_unit
from tilegate.evaluate.requests import Numbered, RunRequest
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.closure import SourceFile
from tilegate.records.contract import Tolerance
from tilegate.records.evaluation import EntryVerdict, Vouch
from tilegate.records.evidence import Facts
from tilegate.records.plan import Entry, Layout, Origin, Plan, Values, Workload
from tilegate.sandbox import EVALUATE, Level

IMPATIENT = EVALUATE.within(silence_s=6.0)
"""Hangs are told soon; imports have a limit of their own."""

REFERENCE = b"""
import tilegate
@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="faulty")
def faulty(x):
    if x.shape[0] == 40:
        raise ValueError("not for this extent")
    return 2 * x
"""
CONTRACT = world.contract_of({"x": ("n",)}, {"y": ("n",)}, name="faulty")

FAULTS = world.HOST + """
  float *x = at(args, 0)->data, *y = at(args, 1)->data;
  int64_t k = at(args, 0)->shape[0];
  static int calls, known;
  static float cache[64];
  if (k == 18) for (int i = 0; i < k; ++i) y[i] = 2 * x[i] + 0 * y[i];
  else if (k == 26 && known) for (int i = 0; i < k; ++i) y[i] = cache[i];
  else for (int i = 0; i < k - (k == 12); ++i) y[i] = 2 * x[i];
  switch (k) {
    case 11: y[9] = y[10] = 0; break;
    case 13: y[k] = 0; break;
    case 14: y[-1] = 0; break;
    case 16: y[k] = 0; break;
    case 17: x[3] = 0; break;
    case 19: y[0] += calls++; break;
    case 20: y[5] = __builtin_nanf(""); break;
    case 21: y[5] = -__builtin_inff(); break;
    case 22: for (int i = 0; i < k; ++i) y[i] = y[i] < 0 ? -y[i] : y[i]; break;
    case 23: __builtin_trap();
    case 24: for (;;) pause();
    case 25: return -1;
    case 26: known = 1; for (int i = 0; i < k; ++i) cache[i] = y[i]; break;
    case 32: y[0] += 0 * ((volatile float *)x)[k]; break;
  }
  return 0;
}
"""  # fmt: skip

FOUND = {
    "right": (10, EntryVerdict.PASSED, ""),
    "a wrong tail": (11, EntryVerdict.WRONG, "y"),
    "an element left out": (12, EntryVerdict.UNWRITTEN, "y"),
    "a write behind the end": (13, EntryVerdict.OUT_OF_BOUNDS, "y"),
    "a write before the start": (14, EntryVerdict.OUT_OF_BOUNDS, "y"),
    "a write past the page": (16, EntryVerdict.CRASHED, "signal 11"),
    "a changed input": (17, EntryVerdict.INPUT_MODIFIED, "x"),
    "old memory read": (18, EntryVerdict.NONDETERMINISTIC, "y"),
    "a counter kept": (19, EntryVerdict.NONDETERMINISTIC, "y"),
    "a NaN": (20, EntryVerdict.NONFINITE, "y"),
    "an infinity": (21, EntryVerdict.NONFINITE, "y"),
    "a lost sign": (22, EntryVerdict.WRONG, "y"),
    "a trap": (23, EntryVerdict.CRASHED, "signal 4"),
    "an endless loop": (24, EntryVerdict.HUNG, "silent"),
    "a refusal": (25, EntryVerdict.REFUSED, "HOST"),
    "a first answer": (26, EntryVerdict.PASSED, ""),
    "the answer before": (26, EntryVerdict.WRONG, "y"),
    "a read past the page": (32, EntryVerdict.CRASHED, "signal 11"),
    "an extent that the reference declines": (40, EntryVerdict.UNSUPPORTED, "reference: ValueError"),
    "right, behind them all": (64, EntryVerdict.PASSED, ""),
}


def entry(values=Values.NORMAL, layout=Layout.ALIGNED, **axes):
    return Entry(workload=Workload(axes=axes), layout=layout, values=values, origin=Origin.BOUNDARY)


def subject_of():
    manifest, library = world.artifact(world.elaboration_of(CONTRACT), "#include <unistd.h>\n" + FAULTS)
    file = SourceFile(
        module="faulty_ops", path="faulty_ops.py", digest=digest_of(REFERENCE), size=len(REFERENCE)
    )
    return run.Subject(
        contract=CONTRACT,
        manifest=manifest,
        library=library,
        operator="faulty_ops:faulty",
        files=(file,),
        sources={file.digest: REFERENCE},
    )


def evaluated(subject, *extents):
    manifest = digest_of(encode(subject.manifest))
    entries = tuple(entry(n=n) for n in extents)
    plan = Plan(contract=CONTRACT.digest, manifest=manifest, nonce="a nonce", entries=entries)
    seen = []
    found = run.evaluate(subject, plan, world.DEVICE, {"torch": "x"}, policy=IMPATIENT, progress=seen.append)
    return plan, found, seen


def test_every_planted_fault_is_found_and_told():
    """One test, for it starts several workers and waits for one that hangs."""
    subject = subject_of()
    plan, found, seen = evaluated(subject, *(extent for extent, _, _ in FOUND.values()))
    assert [result.index for result in found.results] == list(range(len(FOUND)))
    results = dict(zip(FOUND, found.results, strict=True))
    told = {name: (result.verdict, result.detail) for name, result in results.items()}
    assert told == {name: (verdict, detail) for name, (_, verdict, detail) in FOUND.items()}

    tail = results["a wrong tail"]
    assert (tail.count, tail.error_log2 > 10) == (2, True)
    assert tail.worst in {(9,), (10,)}
    assert results["an element left out"].count == 1
    assert (results["a NaN"].worst, results["an infinity"].worst) == ((5,), (5,))
    assert results["right"].error_log2 is None, "no error at all"

    assert (found.contract, found.manifest, found.plan) == (plan.contract, plan.manifest, plan.digest)
    assert found.library == subject.manifest.library.digest
    assert (found.vouch, found.device, found.versions) == (Vouch.OBSERVED, world.DEVICE, {"torch": "x"})
    assert found.isolation.level is Level.FULL
    assert seen == [len(FOUND)]


def test_a_kernel_that_takes_its_workers_with_it_is_not_asked_for_ever(monkeypatch):
    """What did not run is missing from the evidence, and so has not passed."""
    monkeypatch.setattr(run, "MAX_LOST_WORKERS", 1)
    _, found, _ = evaluated(subject_of(), 23, 10)
    assert [(r.index, r.verdict) for r in found.results] == [(0, EntryVerdict.CRASHED)]


# The worker, in this process


def ran(contract, host, *entries):
    """Facts and output tensors of entries that harm nobody."""
    manifest, library = world.artifact(world.elaboration_of(contract), host)
    numbered = tuple(Numbered(index=i, seed=7, entry=e) for i, e in enumerate(entries))
    request = RunRequest(
        contract=contract, identity=manifest.identity, symbols=manifest.symbols, entries=numbered
    )
    frames = []
    threads = torch.get_num_threads()
    worker.work({"request": encode(request), "library": library}, lambda *frame: frames.append(frame))
    torch.set_num_threads(threads)
    return [
        (decode(Facts, data, where="test"), made_of(frames, i))
        for i, (name, data) in enumerate(frames)
        if name == "facts"
    ]


def made_of(frames, at):
    following = [name for name, _ in frames[at + 1 :]]
    count = following.index("begin") if "begin" in following else len(following)
    return [data for _, data in frames[at + 1 : at + 1 + count]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool", "int64"])
def test_an_element_left_out_is_told_in_every_dtype(dtype):
    contract = world.contract_of({"x": ("n",)}, {"y": ("n",)}, name="copy", dtype=dtype)
    bytes_of = {"float32": 4, "float16": 2, "int32": 4, "uint8": 1, "bool": 1, "int64": 8}[dtype]
    host = world.HOST + (
        f"char *x = at(args, 0)->data, *y = at(args, 1)->data; int64_t k = at(args, 0)->shape[0];"
        f"for (int64_t i = 0; i < (k - (k == 5)) * {bytes_of}; ++i) y[i] = x[i]; return 0; }}"
    )
    whole, short, offset = ran(
        contract, host, entry(n=4), entry(n=5), entry(n=7, layout=Layout.OFFSET, values=Values.NORMAL)
    )
    assert (whole[0].unwritten, short[0].unwritten, offset[0].unwritten) == ({}, {"y": 1}, {})
    made = make_inputs(contract, entry(n=4), 7)["x"]
    assert whole[1] == [made.numpy().tobytes()]
    assert [f.unstable or f.outside or f.modified for f, _ in (whole, short, offset)] == [()] * 3


def test_in_place_work_is_no_modified_input_and_each_run_starts_afresh():
    contract = world.contract_of({"x": ("n",), "y": ("n",)}, {"x": ("n",)}, name="add", in_place=("x",))
    host = world.HOST + (
        "float *x = at(args, 0)->data, *y = at(args, 1)->data;"
        "for (int64_t i = 0; i < at(args, 0)->shape[0]; ++i) { x[i] += y[i]; if (i == 8) y[i] = 0; } return 0; }"
    )
    (good, outputs), (bad, _) = ran(contract, host, entry(n=4), entry(n=9))
    made = make_inputs(contract, entry(n=4), 7)
    assert outputs == [(made["x"] + made["y"]).numpy().tobytes()]
    assert (good.modified, good.unstable, good.unwritten) == ((), {}, {})
    assert bad.modified == ("y",)


def test_nothing_is_run_on_an_empty_tensor_but_the_kernel():
    ((facts, outputs),) = ran(CONTRACT, world.SCALE.replace("FACTOR", "2"), entry(n=0))
    assert facts == Facts(index=0, inputs=facts.inputs)
    assert outputs == [b""]


# The judge


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def judged(out, wide, own=None, *, tolerance=None, facts=None):
    """The verdict of one output, given what the reference gives in float64 and in the output's dtype."""
    dtype = str(out.dtype).removeprefix("torch.")
    dims = tuple(f"d{i}" for i in range(out.dim()))
    contract = world.contract_of({"x": dims}, {"y": dims}, dtype=dtype)
    contract = msgspec.structs.replace(contract, tolerance=tolerance or Tolerance())
    here = entry(**dict(zip(dims, out.shape, strict=True)))
    own = wide.to(out.dtype) if own is None else own
    expected = [Expected(wide=raw(wide.double()), own=raw(own))]
    return judge(contract, here, facts or Facts(index=3, inputs=""), [raw(out)], expected)


def allowed(wide, dtype, tolerance):
    """The documented tolerance of each element: records.contract.Tolerance."""
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}[dtype]
    length = wide.numel() if tolerance.reduces else 1
    scale = wide.square().mean().sqrt()
    tiny = torch.finfo(getattr(torch, dtype)).tiny
    return tolerance.factor * (eps + length**0.5 * 2.0**-23) * (wide.abs() + scale) + tiny


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("reduces", [(), ("d0",)])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), at=st.integers(0, 63), sign=st.sampled_from([-1, 1]))
def test_half_of_what_is_allowed_passes_and_twice_of_it_fails(dtype, reduces, seed, at, sign):
    """|out - ref| <= factor * (eps(dtype) + sqrt(L) * eps(float32)) * (|ref| + rms(ref)) + tiny."""
    tolerance = Tolerance(factor=64.0, reduces=reduces)
    wide = torch.randn(64, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    wide = wide.to(getattr(torch, dtype)).double()
    error = torch.zeros_like(wide)
    error[at] = sign * allowed(wide, dtype, tolerance)[at]
    near = judged((wide + error / 2).to(getattr(torch, dtype)), wide, tolerance=tolerance)
    far = judged((wide + error * 2).to(getattr(torch, dtype)), wide, tolerance=tolerance)
    assert (near.verdict, near.error_log2 in {-2, -1}) == (EntryVerdict.PASSED, True)
    assert (far.verdict, far.worst, far.count) == (EntryVerdict.WRONG, (at,), 1)
    assert far.error_log2 in {0, 1}


def test_the_unit_is_the_documented_one():
    contract = msgspec.structs.replace(CONTRACT, tolerance=Tolerance(factor=3.0, reduces=("n",)))
    assert tolerance_unit(contract, entry(n=16), "float16") == 3.0 * (2.0**-10 + 4 * 2.0**-23)
    assert tolerance_unit(contract, entry(n=0), "float32") == 3.0 * (2.0**-23 + 2.0**-23)


def test_integers_and_booleans_must_be_equal():
    wide = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    assert judged(wide, wide).verdict is EntryVerdict.PASSED
    off = wide.clone()
    off[1, 2] += 1
    result = judged(off, wide)
    assert (result.verdict, result.worst, result.count) == (EntryVerdict.WRONG, (1, 2), 1)
    truth = torch.tensor([True, False])
    assert judged(~truth, truth).count == 2


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("out", "wide", "own", "verdict"),
    [
        (INF, 1e6, INF, EntryVerdict.PASSED),  # beyond float16, as in PyTorch
        (INF, 8.0, INF, EntryVerdict.PASSED),  # PyTorch overflows on the way: a kernel may
        (8.0, 8.0, INF, EntryVerdict.PASSED),  # and need not
        (NAN, NAN, NAN, EntryVerdict.PASSED),
        (-INF, INF, INF, EntryVerdict.NONFINITE),
        (INF, 8.0, 8.0, EntryVerdict.NONFINITE),
        (NAN, INF, INF, EntryVerdict.NONFINITE),
        (INF, NAN, NAN, EntryVerdict.NONFINITE),
        (8.0, NAN, NAN, EntryVerdict.NONFINITE),
        (65504.0, 1e6, INF, EntryVerdict.NONFINITE),
        (0.0, 8.0, 8.0, EntryVerdict.WRONG),
    ],
)
def test_nan_and_infinity_stand_where_the_reference_has_them(out, wide, own, verdict):
    def row(value):
        return torch.tensor([1.0, value, 2.0], dtype=torch.float64)

    result = judged(row(out).half(), row(wide), row(own).half())
    assert result.verdict is verdict
    assert verdict is EntryVerdict.PASSED or result.worst == (1,)


@pytest.mark.parametrize("odd", [INF, -INF, NAN])
def test_an_infinity_beside_an_element_changes_nothing_for_it(odd):
    """Where all is finite the judge takes a shorter way: it leads to the same numbers."""
    wide = torch.randn(64, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    out = (wide + torch.randn(64, generator=torch.Generator().manual_seed(8)) * 1e-6).float()
    last = torch.tensor([odd])
    alone = error_ratio(out, wide, wide.float().double(), 1e-6, 1e-9)
    both = error_ratio(
        torch.cat((out, last)), torch.cat((wide, last)), torch.cat((wide.float(), last)).double(), 1e-6, 1e-9
    )
    assert torch.equal(both, torch.cat((alone, torch.zeros(1, dtype=torch.float64))))
    assert alone.max() > 0


def test_values_whose_square_overflows_are_still_held_to_the_tolerance():
    """A root mean square of infinity would allow everything."""
    wide = torch.tensor([1e200, 3e200, -2e200], dtype=torch.float64)
    assert judged(wide, wide).verdict is EntryVerdict.PASSED
    assert judged(wide * torch.tensor([1.0, 1.5, 1.0]), wide).verdict is EntryVerdict.WRONG


def test_an_error_too_large_for_its_ratio_is_wrong_not_nonfinite():
    wide = torch.zeros(2, dtype=torch.float64)
    result = judged(torch.tensor([0.0, 1e300], dtype=torch.float64), wide)
    assert (result.verdict, result.worst, result.error_log2) == (EntryVerdict.WRONG, (1,), 64)


def test_the_smallest_numbers_may_be_flushed_to_zero():
    tiny = torch.full((4,), torch.finfo(torch.float32).tiny)
    assert judged(torch.zeros(4), tiny.double()).verdict is EntryVerdict.PASSED
    assert judged(torch.full((4,), 0.0), torch.full((4,), 1e-30)).verdict is EntryVerdict.WRONG


def test_an_output_without_elements_passes():
    assert judged(torch.ones(0, 3), torch.ones(0, 3)).verdict is EntryVerdict.PASSED


@pytest.mark.parametrize(
    ("facts", "verdict", "detail"),
    [
        ({"refusal": 8}, EntryVerdict.REFUSED, "STRIDES"),
        ({"outside": ("y",)}, EntryVerdict.OUT_OF_BOUNDS, "y"),
        ({"modified": ("x",), "unwritten": {"y": 1}}, EntryVerdict.INPUT_MODIFIED, "x"),
        ({"unwritten": {"y": 2}, "unstable": {"y": 1}}, EntryVerdict.UNWRITTEN, "y"),
        ({"unstable": {"y": 3}}, EntryVerdict.NONDETERMINISTIC, "y"),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_what_was_done_beside_the_answer_outweighs_a_right_answer(facts, verdict, detail):
    right = torch.ones(3)
    result = judged(right, right, facts=Facts(index=3, inputs="", **facts))
    assert (result.index, result.verdict, result.detail) == (3, verdict, detail)
