"""Inputs that may be views, and inputs that may be None: what runs, what is refused, what evidence it takes."""

from __future__ import annotations

import importlib.util
import sys

import msgspec
import pytest
import torch

import tilegate
from tests import world
from tilegate.errors import ContractError
from tilegate.evaluate.plan import make_plan
from tilegate.library import Rows, open_library
from tilegate.records.canonical import digest_of, encode
from tilegate.records.closure import Specialization
from tilegate.records.contract import TensorSpec
from tilegate.records.miss import GUARD_CODES, MissReason
from tilegate.records.plan import STRIDED, Layout, Workload
from tilegate.records.policy import Policy
from tilegate.records.shape import Range, ShapeClass
from tilegate.rules.declaration import parse_tensor

OPERATOR = """
import torch
import tilegate

@tilegate.operator(
    inputs={"x": "float32[a, b, c] strided", "bias": "float32[c] optional"},
    outputs={"y": "float32[a, b, c]"},
)
def shifted(x, bias=None):
    return x.clone(memory_format=torch.contiguous_format) if bias is None else x + bias
"""

BODY = (
    world.HOST
    + """
  DLTensor *x = at(args, 0), *y = at(args, TENSORS - 1);
  const float *p = x->data; float *q = y->data;
  for (int64_t i = 0; i < x->shape[0]; ++i)
    for (int64_t j = 0; j < x->shape[1]; ++j)
      for (int64_t k = 0; k < x->shape[2]; ++k) {
        float bias = TENSORS == 3 ? ((const float *)at(args, 1)->data)[k] : 0;
        *q++ = p[i * x->strides[0] + j * x->strides[1] + k] + bias;
      }
  return 0;
}
"""
)


@pytest.fixture
def shifted(tmp_path, monkeypatch):
    """The operator, declared anew in a module of its own."""
    monkeypatch.setattr("tilegate.runtime.operator.OPERATORS", {})
    path = tmp_path / "views_operator.py"
    path.write_text(OPERATOR)
    spec = importlib.util.spec_from_file_location("views_operator", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["views_operator"] = module
    spec.loader.exec_module(module)
    yield module.shifted
    tilegate.use(None)
    sys.modules.pop("views_operator")


def artifact(contract, *, bias):
    elaboration = world.elaboration_of(contract, specialization=Specialization(attributes={"bias": bias}))
    return world.artifact(elaboration, BODY, f"TENSORS={3 if bias else 2}")


def box(*, dense, stop=64, max_elements=2**31 - 1):
    axes = {axis: Range(start=0, stop=stop) for axis in "abc"}
    return ShapeClass(axes=axes, alignment_bytes=4, dense=dense, max_elements=max_elements)


VIEWS = {
    "transposed": lambda: torch.randn(4, 3, 5).transpose(0, 1),
    "sliced": lambda: torch.randn(3, 4, 9)[..., 2:7],
    "sliced in the middle": lambda: torch.randn(3, 8, 5)[:, ::2],
    "expanded": lambda: torch.randn(3, 1, 5).expand(3, 4, 5),
    "dense": lambda: torch.randn(3, 4, 5),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_view_is_read_through_its_strides(shifted, tmp_path, view, bias):
    made = [artifact(shifted.contract(), bias=given) for given in (False, True)]
    world.write_release(tmp_path / "release", shifted.contract(), made, box(dense=False))
    tilegate.use(tmp_path / "release", allow_unsigned=True)
    x = VIEWS[view]()
    arguments = (x, torch.randn(5)) if bias else (x,)
    assert torch.equal(shifted(*arguments), shifted.reference(*arguments))
    assert shifted(*arguments).is_contiguous()
    assert sum(tilegate.stats()["shifted"].hits.values()) == 2
    assert shifted.explain(*arguments).kernel == "body"


def test_a_view_goes_to_the_reference_where_only_dense_data_was_evaluated(shifted, tmp_path):
    world.write_release(
        tmp_path / "release", shifted.contract(), [artifact(shifted.contract(), bias=False)], box(dense=True)
    )
    tilegate.use(tmp_path / "release", allow_unsigned=True)
    x = VIEWS["transposed"]()
    assert torch.equal(shifted(x), x)
    assert tilegate.stats()["shifted"].misses == {"tensor is not contiguous (x)": 1}
    assert shifted.explain(x).misses[0].reason is MissReason.STRIDES
    assert shifted.explain(x.contiguous()).kernel == "body"


def test_an_input_that_no_artifact_was_built_for_goes_to_the_reference(shifted, tmp_path):
    made = artifact(shifted.contract(), bias=False)
    world.write_release(tmp_path / "release", shifted.contract(), [made], box(dense=False))
    tilegate.use(tmp_path / "release", allow_unsigned=True)
    x, bias = torch.randn(3, 4, 5), torch.randn(5)
    assert torch.equal(shifted(x, bias), x + bias)
    assert torch.equal(shifted(x), x)
    assert shifted.explain(x, bias).misses[0].reason is MissReason.SPECIALIZATION
    stats = tilegate.stats()["shifted"]
    assert (sum(stats.hits.values()), sum(stats.misses.values())) == (1, 1)


def test_an_optional_input_that_needs_a_gradient_is_seen(shifted, tmp_path):
    made = [artifact(shifted.contract(), bias=given) for given in (False, True)]
    world.write_release(tmp_path / "release", shifted.contract(), made, box(dense=False))
    tilegate.use(tmp_path / "release", allow_unsigned=True)
    bias = torch.randn(5, requires_grad=True)
    shifted(torch.randn(3, 4, 5), bias).sum().backward()
    assert torch.equal(bias.grad, torch.full((5,), 12.0))


def refusal(shifted, x):
    manifest, data = artifact(shifted.contract(), bias=False)
    library = open_library(data, identity=manifest.identity)
    y = torch.empty(x.shape)
    return GUARD_CODES[library.entry(x, y, Rows.admitting_all(manifest.symbols).address) & 0xFF]


def test_a_last_dim_with_gaps_is_refused(shifted):
    assert refusal(shifted, torch.randn(3, 4, 10)[..., ::2]) is MissReason.STRIDES


def test_a_last_dim_that_is_transposed_is_refused(shifted):
    assert refusal(shifted, torch.randn(3, 5, 4).transpose(1, 2)) is MissReason.STRIDES


def test_a_unit_dim_of_a_view_may_carry_any_stride(shifted):
    far = torch.zeros(1).as_strided((1, 1, 1), (2**33, 2**33, 1))
    manifest, data = artifact(shifted.contract(), bias=False)
    library = open_library(data, identity=manifest.identity)
    assert library.entry(far, torch.empty(1, 1, 1), Rows.admitting_all(manifest.symbols).address) == 0


def test_the_span_of_a_view_counts_not_its_elements(shifted, tmp_path):
    """A limit on elements is one on offsets: what lies between the rows is offset too."""
    made = artifact(shifted.contract(), bias=False)
    limited = box(dense=False, max_elements=60)
    world.write_release(tmp_path / "release", shifted.contract(), [made], limited)
    tilegate.use(tmp_path / "release", allow_unsigned=True)
    x = torch.randn(3, 40, 5)[:, :4]
    assert torch.equal(shifted(x), x)
    assert shifted.explain(x).misses[0].reason is MissReason.ELEMENTS
    assert shifted.explain(x.contiguous()).kernel == "body"


def test_an_output_inside_the_gaps_of_a_view_is_an_overlap(shifted):
    manifest, data = artifact(shifted.contract(), bias=False)
    library = open_library(data, identity=manifest.identity)
    memory = torch.zeros(3, 4, 20)
    x = memory[..., :5]
    y = memory.view(-1)[5 : 5 + 60].view(3, 4, 5)
    code = library.entry(x, y, Rows.admitting_all(manifest.symbols).address)
    assert GUARD_CODES[code & 0xFF] is MissReason.ALIAS


def test_words_behind_the_dims_are_read():
    spec = parse_tensor("mask", "bool[B, 1, S] strided optional")
    assert spec == TensorSpec(name="mask", dtype="bool", dims=("B", 1, "S"), strided=True, optional=True)
    assert str(spec) == "bool[B, 1, S] strided optional"


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        ({"x": "float32[n]", "m": "float32[n] optional"}, {"y": "float32[n]"}, "m has no default of None"),
        ({"x": "float32[n] optional"}, {"y": "float32[n]"}, "every input is optional"),
        ({"x": "float32[n]"}, {"y": "float32[n] strided"}, "only inputs may be strided"),
        ({"x": "float32[] strided"}, {"y": "float32[]"}, "has no dims"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(monkeypatch, inputs, outputs, said):
    monkeypatch.setattr("tilegate.runtime.operator.OPERATORS", {})
    functions = {
        ("x", "m"): lambda x, m: x,
        ("x",): (lambda x=None: x) if "optional" in inputs["x"] else (lambda x: x),
    }
    function = functions[tuple(inputs)]
    function.__name__ = "op"
    with pytest.raises(ContractError) as told:
        tilegate.operator(inputs=inputs, outputs=outputs)(function)
    assert said in str(told.value)


def test_views_are_in_the_plan_where_the_contract_allows_them(shifted):
    for strided in (True, False):
        contract = shifted.contract()
        if not strided:
            inputs = tuple(msgspec.structs.replace(t, strided=False) for t in contract.inputs)
            contract = msgspec.structs.replace(contract, inputs=inputs)
        manifest, _ = artifact(contract, bias=False)
        served = [Workload(axes={"a": 2, "b": 3, "c": 4}, attributes={"bias": False})]
        plan = make_plan(contract, manifest, digest_of(encode(manifest)), served, [], Policy(), "n")
        layouts = {e.layout for e in plan.entries if e.workload.axes == served[0].axes}
        assert (set(STRIDED) <= layouts) is strided
        assert Layout.ALIGNED in layouts
