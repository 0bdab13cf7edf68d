"""The guard in C: what it refuses, by which code, and that it agrees with ShapeClass.admits."""

from __future__ import annotations

import pytest
import torch
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import world
from tilegate.library import Rows, open_library
from tilegate.records.miss import GUARD_CODES, MissReason
from tilegate.records.shape import INT32_MAX, Range, ShapeClass

PAIR = world.contract_of({"a": ("m", "k"), "b": ("k", 4)}, {"c": ("m", 4)}, name="pair")
NOTHING = world.HOST + "  return 0;\n}\n"
REFUSING = world.HOST + "  (void)args; return -1;\n}\n"


def entry_of(contract=PAIR, host=NOTHING, **kwargs):
    elaboration = world.elaboration_of(contract, **kwargs)
    manifest, data = world.artifact(elaboration, host)
    return open_library(data, identity=manifest.identity), manifest


@pytest.fixture(scope="module")
def pair():
    return entry_of()


def call(opened, *tensors, rows=None):
    library, manifest = opened
    rows = rows or Rows.admitting_all(manifest.symbols)
    code = library.entry(*tensors, rows.address)
    return "launched" if code == 0 else GUARD_CODES[code & 0xFF]


def good(m=3, k=5):
    return torch.zeros(m, k), torch.zeros(k, 4), torch.zeros(m, 4)


def test_a_good_call_is_launched(pair):
    assert call(pair, *good()) == "launched"


def test_a_list_is_not_read_as_a_tensor(pair):
    a, b, c = good()
    assert call(pair, [1.0, 2.0], b, c) is MissReason.NOT_A_TENSOR


def test_a_string_is_not_read_as_a_tensor(pair):
    a, b, c = good()
    assert call(pair, a, "memory", c) is MissReason.NOT_A_TENSOR


def test_a_none_is_not_read_as_a_tensor(pair):
    a, b, c = good()
    assert call(pair, a, b, None) is MissReason.NOT_A_TENSOR


def test_another_dtype_is_refused(pair):
    a, b, c = good()
    assert call(pair, a, b.double(), c) is MissReason.DTYPE
    assert call(pair, a, b.int(), c) is MissReason.DTYPE


def test_another_rank_is_refused(pair):
    a, b, c = good()
    assert call(pair, a.reshape(-1), b, c) is MissReason.RANK


def test_another_fixed_extent_is_refused(pair):
    a, b, c = good()
    assert call(pair, a, torch.zeros(5, 3), c) is MissReason.EXTENT


def test_tensors_that_disagree_on_a_symbol_are_refused(pair):
    a, b, c = good()
    assert call(pair, a, torch.zeros(6, 4), c) is MissReason.SYMBOL


def test_a_short_output_is_refused_before_it_is_overrun(pair):
    a, b, c = good()
    assert call(pair, a, b, torch.zeros(2, 4)) is MissReason.SYMBOL


def test_an_extent_beyond_int32_is_not_truncated(pair):
    storage = torch.zeros(1)
    huge = storage.expand(2**32 + 3, 5)
    assert call(pair, huge, torch.zeros(5, 4), torch.zeros(3, 4)) is MissReason.NARROW


def test_a_product_of_extents_beyond_the_class_is_refused(pair):
    a = torch.zeros(1).expand(2**20, 2**20)
    axes = {"m": Range(start=0, stop=INT32_MAX), "k": Range(start=0, stop=INT32_MAX)}
    rows = Rows([ShapeClass(axes=axes, alignment_bytes=1)], pair[1].symbols)
    b, c = torch.zeros(1).expand(2**20, 4), torch.zeros(1).expand(2**20, 4)
    assert call(pair, a, b, c, rows=rows) in (MissReason.STRIDES, MissReason.ELEMENTS)


def test_a_transposed_tensor_is_refused(pair):
    a, b, c = good()
    assert call(pair, torch.zeros(5, 3).T, b, c) is MissReason.STRIDES


def test_rows_with_gaps_are_refused(pair):
    a, b, c = good()
    assert call(pair, torch.zeros(3, 8)[:, :5], b, c) is MissReason.STRIDES


def test_a_unit_dim_may_carry_any_stride(pair):
    a = torch.zeros(1, 5).as_strided((1, 5), (77, 1))
    assert call(pair, a, torch.zeros(5, 4), torch.zeros(1, 4)) == "launched"


def test_an_empty_tensor_is_launched_without_looking_at_its_pointer(pair):
    assert call(pair, torch.zeros(0, 5), torch.zeros(5, 4), torch.zeros(0, 4)) == "launched"


def test_an_output_that_overlaps_an_input_is_refused(pair):
    memory = torch.zeros(64)
    a, b = memory[:15].view(3, 5), torch.zeros(5, 4)
    assert call(pair, a, b, memory[8:20].view(3, 4)) is MissReason.ALIAS
    assert call(pair, a, b, memory[15:27].view(3, 4)) == "launched"


def test_inputs_may_overlap_each_other(pair):
    memory = torch.zeros(20)
    assert call(pair, memory[:15].view(3, 5), memory.view(5, 4), torch.zeros(3, 4)) == "launched"


def test_a_misaligned_pointer_is_refused_where_evidence_was_aligned(pair):
    axes = {"m": Range(start=0, stop=99), "k": Range(start=0, stop=99)}
    aligned = Rows([ShapeClass(axes=axes, alignment_bytes=64)], pair[1].symbols)
    a, b, c = good()
    shifted = torch.zeros(17)[1:16].view(3, 5)
    assert call(pair, a, b, c, rows=aligned) == "launched"
    assert call(pair, shifted, b, c, rows=aligned) is MissReason.ALIGNMENT


def test_another_device_is_refused(pair):
    a, b, c = good()
    with pytest.raises(Exception, match=r".*"):  # a meta tensor has no DLPack form: never a launch
        call(pair, a.to("meta"), b, c)


def test_too_few_or_many_arguments_are_refused(pair):
    library, manifest = pair
    a, b, c = good()
    rows = Rows.admitting_all(manifest.symbols)
    for arguments in ((), (a, b), (a, b, c), (a, b, c, c, rows.address), (a, b, rows.address, c)):
        assert GUARD_CODES[library.entry(*arguments) & 0xFF] is MissReason.ARGUMENTS


def test_a_refusal_of_the_generated_host_code_is_a_value():
    assert call(entry_of(host=REFUSING), *good()) is MissReason.HOST


def test_views_given_to_the_kernel_are_dense_and_without_offset():
    host = (
        world.HOST
        + """
      for (int i = 0; i < 3; ++i) {
        DLTensor *t = at(args, i);
        if (!t->strides || t->byte_offset || t->strides[1] != 1 || t->strides[0] != t->shape[1]) return -1;
      }
      return 0;
    }
    """
    )
    opened = entry_of(host=host)
    a = torch.zeros(1, 5).as_strided((1, 5), (77, 1))
    assert call(opened, a, torch.zeros(5, 4), torch.zeros(1, 4)) == "launched"
    assert call(opened, torch.zeros(20)[5:].view(3, 5), *good()[1:]) == "launched"


def test_hits_are_counted_by_the_row_that_admits(pair):
    library, manifest = pair
    small = ShapeClass(axes={"m": Range(start=0, stop=3), "k": Range(start=0, stop=9)}, alignment_bytes=1)
    large = ShapeClass(axes={"m": Range(start=4, stop=9), "k": Range(start=0, stop=9)}, alignment_bytes=1)
    rows = Rows([small, large], manifest.symbols)
    for m in (1, 2, 5, 3, 10):
        library.entry(*good(m=m), rows.address)
    assert rows.hits() == (3, 1)


spans = st.builds(
    lambda start, width, step: Range(start=start, stop=start + width, step=step),
    st.integers(0, 40), st.integers(0, 40), st.integers(1, 9),
)  # fmt: skip
classes = st.builds(lambda m, k: ShapeClass(axes={"m": m, "k": k}, alignment_bytes=1), spans, spans)


@settings(max_examples=300)
@given(admitted=st.lists(classes, max_size=4), m=st.integers(0, 60), k=st.integers(0, 60))
def test_the_guard_admits_exactly_what_the_shape_class_admits(admitted, m, k):
    """The guard in C launches a call if and only if some ShapeClass of its table admits the extents."""
    opened = entry_of()
    verdict = call(opened, *good(m=m, k=k), rows=Rows(admitted, opened[1].symbols))
    expected = any(c.admits({"m": m, "k": k}) for c in admitted)
    assert verdict == ("launched" if expected else MissReason.SHAPE_CLASS)


def test_the_codes_in_c_are_the_codes_in_python():
    from importlib import resources

    text = (resources.files("tilegate.build.launchers") / "guard.h").read_text()
    names = text.split("enum tg_code {")[1].split("}")[0].replace(",", " ").split()
    spelled = [name.removeprefix("TG_").replace("ON_ANOTHER_DEVICE", "DEVICE") for name in names]
    assert spelled[0] == "LAUNCHED"
    assert spelled[1:] == [reason.name for reason in GUARD_CODES[1:]]


def test_dlpack_numbers_of_every_dtype_are_those_of_the_ffi():
    from tilegate.build.abi import dlpack_dtype
    from tilegate.records.contract import DTYPES

    for name in DTYPES:
        code, bits = dlpack_dtype(name)
        ffi = tvm_ffi.dtype(name)
        assert (code, bits) == (ffi.type_code, ffi.bits), name
