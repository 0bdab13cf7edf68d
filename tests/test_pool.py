"""The arena of a device, on tensors of the host: the same code, and the same faults found."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import world
from tilegate.evaluate import worker
from tilegate.evaluate.arena import ALIGNED_BYTES, Wanted, put
from tilegate.evaluate.inputs import make_inputs
from tilegate.evaluate.launches import OnHost
from tilegate.evaluate.pages import GuardedPages
from tilegate.evaluate.pool import GRAIN, ZONE_BYTES, Pool
from tilegate.evaluate.requests import Numbered
from tilegate.evaluate.seen import image
from tilegate.library import Rows, open_library
from tilegate.records.canonical import decode
from tilegate.records.evidence import Facts
from tilegate.records.plan import Entry, Layout, Origin, Values, Workload

CONTRACT = world.contract_of({"x": ("n",)}, {"y": ("n",)}, name="doubled")
HOST = world.HOST + """
  float *x = at(args, 0)->data, *y = at(args, 1)->data;
  int64_t k = at(args, 0)->shape[0];
  for (int64_t i = 0; i < k - (k == 12); ++i) y[i] = 2 * x[i];
  switch (k) {
    case 13: y[k] = 0; break;
    case 14: y[-1] = 0; break;
    case 15: y[k + 10000] = 0; break;
    case 16: x[-1] = 0; break;
    case 17: x[3] = 0; break;
    case 18: y[0] += x[k]; break;
    case 25: return -1;
  }
  return 0;
}
"""  # fmt: skip
RIGHT = Facts(index=0, inputs="")


@functools.cache
def library():
    manifest, data = world.artifact(world.elaboration_of(CONTRACT), HOST)
    return open_library(data, identity=manifest.identity), Rows.admitting_all(manifest.symbols)


def entry(n, layout=Layout.ALIGNED):
    return Entry(
        workload=Workload(axes={"n": n}), layout=layout, values=Values.NORMAL, origin=Origin.BOUNDARY
    )


def ran(*entries, arena=None):
    """Facts, without what depends on the inputs, and outputs of entries."""
    opened, rows = library()
    numbered = [Numbered(index=i, seed=7, entry=one) for i, one in enumerate(entries)]
    frames = []
    worker.run_entries(
        CONTRACT,
        numbered,
        lambda *tensors: opened.entry(*tensors, rows.address),
        arena or Pool("cpu"),
        OnHost(),
        lambda *frame: frames.append(frame),
    )
    facts = [decode(Facts, data, where="test") for name, data in frames if name == "facts"]
    return facts, [data for name, data in frames if name == "output"]


@pytest.mark.parametrize(
    ("n", "found"),
    [
        (10, {}),
        (0, {}),
        (12, {"unwritten": {"y": 1}}),
        (13, {"outside": ("y",)}),
        (14, {"outside": ("y",)}),
        (15, {"outside": ("y",)}),
        (16, {"outside": ("x",)}),
        (17, {"modified": ("x",)}),
        (25, {"refusal": 13}),
    ],
)
@pytest.mark.parametrize("layout", [Layout.ALIGNED, Layout.OFFSET])
def test_what_is_done_beside_a_tensor_is_found_in_a_pool(n, found, layout):
    (facts,), outputs = ran(entry(n, layout))
    assert facts == Facts(index=0, inputs=facts.inputs, **found)
    made = make_inputs(CONTRACT, entry(n), 7)["x"]
    if not found:
        assert outputs == [(2 * made).numpy().tobytes()]


def test_what_is_read_beside_a_tensor_and_used_differs_between_the_runs():
    """No page ends the process here: but canaries are others in the second run."""
    (facts,), _ = ran(entry(18))
    assert facts.unstable == {"y": 1}


def test_a_pool_is_used_again_and_grows_without_forgetting_its_zones():
    pool = Pool("cpu")
    facts, _ = ran(entry(10), entry(100_000), entry(13), entry(10), arena=pool)
    assert [one.outside for one in facts] == [(), (), ("y",), ()]


def test_a_device_that_fails_is_told_by_a_word_and_ends_the_worker():
    frames = []

    def failing(*_tensors):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")

    numbered = [Numbered(index=4, seed=7, entry=entry(10))]
    with pytest.raises(worker.ToolError, match="illegal address"):
        worker.run_entries(
            CONTRACT, numbered, failing, Pool("cpu"), OnHost(), lambda *frame: frames.append(frame)
        )
    assert frames == [("begin", b"4"), ("fault", b"illegal address")]


def test_advice_below_a_message_is_no_fault():
    said = "CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
    assert worker.fault_word(RuntimeError(said)) == "launch failure"
    assert worker.fault_word(RuntimeError("")) == "device fault"


def test_a_lost_context_is_no_refusal():
    numbered = [Numbered(index=0, seed=7, entry=entry(10))]
    with pytest.raises(worker.ToolError):
        worker.run_entries(
            CONTRACT, numbered, lambda *_: worker.STICKY | 5 << 8, Pool("cpu"), OnHost(), lambda *_: None
        )


dims = st.lists(st.integers(0, 5), min_size=0, max_size=4).map(tuple)
layouts = st.sampled_from(Layout)
dtypes = st.sampled_from([torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool])


@settings(max_examples=60, deadline=None)
@given(tensors=st.lists(st.tuples(dims, dtypes, layouts, st.booleans()), min_size=1, max_size=4))
def test_both_arenas_lay_a_tensor_out_alike(tensors):
    """Same strides and alignment class, zones that a fill of every tensor does not reach, and an image that is
    what lies in memory once values were put."""
    wanted = {
        f"t{i}": Wanted(shape, dtype, layout, strided)
        for i, (shape, dtype, layout, strided) in enumerate(tensors)
    }
    arenas = (Pool("cpu"), GuardedPages())
    laid = [arena.lay(wanted) for arena in arenas]
    for name, one in wanted.items():
        pooled, paged = (regions[name] for regions in laid)
        assert (pooled.tensor.shape, pooled.tensor.stride()) == (paged.tensor.shape, paged.tensor.stride())
        assert pooled.tensor.dtype == paged.tensor.dtype == one.dtype
        if pooled.tensor.numel() and paged.tensor.numel():
            aligned = one.layout is not Layout.OFFSET
            for tensor in (pooled.tensor, paged.tensor):
                assert (tensor.data_ptr() % ALIGNED_BYTES == 0) is aligned
        values = torch.zeros(one.shape).to(one.dtype)
        for arena, regions in zip(arenas, laid, strict=True):
            arena.guard(0x3B)
            regions[name].fill(0xC5)
            put(regions[name].tensor, values)
            assert regions[name].data() == image(one, values, 0xC5)
            assert arena.dead() == ()


def test_zones_are_as_wide_as_they_are_said_to_be():
    pool = Pool("cpu")
    regions = pool.lay({n: Wanted((5,), torch.float32, Layout.ALIGNED) for n in "ab"})
    pool.guard(0xC5)
    start, end = (regions[n].flat.storage_offset() for n in "ab")
    assert (start % GRAIN, end % GRAIN, end - start - 20 >= 2 * ZONE_BYTES) == (0, 0, True)
    for at, name in ((start - 1, "a"), (start + 20, "a"), (end - ZONE_BYTES, "b"), (end + 20, "b")):
        pool.guard(0xC5)
        pool._bytes[at] = 1
        assert pool.dead() == (name,)
