"""A declaration is a contract, or a sentence that names the part that is wrong and the mend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate.errors import ContractError
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.contract import DTYPES, Contract, NonFinite, TensorSpec, Tolerance, ValueRange
from tilegate.records.plan import Workload
from tilegate.rules.declaration import Parameter, declare, parse_tensor

DIGEST = digest_of(b"a reference")


def rms_norm(**change):
    """The declaration that every test bends in one place."""
    given = {
        "name": "rms_norm",
        "parameters": (Parameter("x"), Parameter("weight"), Parameter("eps", 1e-6)),
        "inputs": {"x": "T[tokens, hidden]", "weight": "T[hidden]"},
        "outputs": {"y": "T[tokens, hidden]"},
        "dtypes": {"T": ("float32", "float16")},
        "attributes": {"eps": float},
        "tolerance": Tolerance(reduces=("hidden",)),
        "non_finite": "excluded",
        "values": {},
        "in_place": (),
        "served": (),
        "reference": DIGEST,
    } | change
    return declare(given.pop("name"), given.pop("parameters"), **given)


def test_the_declaration_of_rms_norm_is_read():
    contract, served = rms_norm(
        values={"x": (-1e4, 10000)},
        non_finite="propagated",
        served=[{"tokens": 512, "hidden": 384}, {"tokens": 1, "hidden": 384, "T": "float16", "eps": 1e-5}],
    )
    assert contract.inputs == (
        TensorSpec(name="x", dtype="T", dims=("tokens", "hidden")),
        TensorSpec(name="weight", dtype="T", dims=("hidden",)),
    )
    assert contract.axes == ("tokens", "hidden")
    assert contract.attributes[0].kind == "float"
    assert contract.attributes[0].default == 1e-6
    assert contract.values == {"x": ValueRange(low=-10000.0, high=10000.0)}
    assert contract.non_finite is NonFinite.PROPAGATED
    assert served == (
        Workload(axes={"tokens": 512, "hidden": 384}, dtypes={"T": "float32"}, attributes={"eps": 1e-6}),
        Workload(axes={"tokens": 1, "hidden": 384}, dtypes={"T": "float16"}, attributes={"eps": 1e-5}),
    )


def test_the_order_of_the_inputs_mapping_cannot_swap_arguments():
    swapped, _ = rms_norm(inputs={"weight": "T[hidden]", "x": "T[tokens, hidden]"})
    assert swapped == rms_norm()[0]


def test_a_workload_served_twice_is_planned_once():
    _, served = rms_norm(served=[{"tokens": 2, "hidden": 3}, {"hidden": 3, "tokens": 2, "eps": 1e-6}])
    assert len(served) == 1


def test_an_in_place_operator_is_declared_by_naming_one_tensor_twice():
    contract, _ = rms_norm(outputs={"x": "T[tokens, hidden]"}, in_place=("x",))
    assert [t.name for t in contract.arguments] == ["x", "weight"]


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
dims = st.lists(st.one_of(names, st.integers(1, 2**31 - 1)), max_size=5)


@given(name=names, dtype=names, dims=dims, space=st.sampled_from(["", " ", "  "]))
def test_a_tensor_reads_as_it_prints(name, dtype, dims, space):
    """`parse_tensor(t.name, str(t)) == t`, whatever the spaces."""
    tensor = TensorSpec(name=name, dtype=dtype, dims=tuple(dims))
    assert parse_tensor(name, str(tensor)) == tensor
    assert (
        parse_tensor(name, str(tensor).replace(", ", f",{space}").replace("[", f"{space}[{space}")) == tensor
    )


@given(
    axes=st.lists(st.from_regex(r"a[a-z0-9_]{0,8}", fullmatch=True), min_size=1, max_size=4, unique=True),
    alternatives=st.lists(st.sampled_from(sorted(DTYPES)), min_size=1, unique=True),
    default=st.floats(allow_nan=False, allow_infinity=False),
    factor=st.floats(min_value=1e-3, max_value=1e6),
    span=st.tuples(st.integers(-(2**70), 2**70), st.floats(0, 1e300)).map(lambda p: (p[0], p[0] + p[1])),
    extents=st.lists(st.integers(0, 2**31 - 1), min_size=4, max_size=4),
)
def test_every_declared_contract_survives_being_written(
    *, axes, alternatives, default, factor, span, extents
):
    """What `declare` accepts, `encode` writes and `decode` reads back alike."""
    spec = f"T[{', '.join(axes)}]"
    contract, served = declare(
        "scale",
        (Parameter("x"), Parameter("by", default)),
        inputs={"x": spec},
        outputs={"y": spec},
        dtypes={"T": alternatives},
        attributes={"by": float},
        tolerance=Tolerance(factor=factor, reduces=tuple(axes[:1])),
        non_finite=NonFinite.EXCLUDED,
        values={"x": span},
        in_place=(),
        served=[dict(zip(axes, extents, strict=False))],
        reference=DIGEST,
    )
    assert decode(Contract, encode(contract), where="test") == contract
    assert decode(Workload, encode(served[0]), where="test") == served[0]


WRONG = {
    "unknown dtype": (
        {"inputs": {"x": "T[tokens, hidden]", "weight": "float23[hidden]"}},
        ["weight", "float23", "did you mean 'float32'?"],
    ),
    "dtype variable without alternatives": (
        {"inputs": {"x": "T[tokens, hidden]", "weight": "W[hidden]"}}, ["weight", "'W'", 'dtypes={"W": '],
    ),
    "unknown alternative": ({"dtypes": {"T": ("half",)}}, ["T", "half", "known here"]),
    "no alternatives": ({"dtypes": {"T": ()}}, ["T", 'dtypes={"T": ("float32",)}']),
    "alternatives as a string": ({"dtypes": {"T": "float32"}}, ["dtypes['T']", '("float32",)']),
    "alternative twice": ({"dtypes": {"T": ("float32", "float32")}}, ["twice"]),
    "variable unused": ({"dtypes": {"T": ("float32",), "U": ("float16",)}}, ["U", "no tensor"]),
    "variable shadows a dtype": ({"dtypes": {"T": ("float32",), "float16": ("float32",)}}, ["float16"]),
    "variable of outputs only": (
        {"dtypes": {"T": ("float32",), "O": ("float16",)}, "outputs": {"y": "O[tokens, hidden]"}},
        ["O", "a call must decide it"],
    ),
    "parameter undeclared": ({"attributes": {}}, ["eps", 'inputs={"eps"', 'attributes={"eps"']),
    "declared, no parameter": (
        {"inputs": {"x": "T[tokens, hidden]", "wieght": "T[hidden]"}},
        ["wieght", "did you mean 'weight'?"],
    ),
    "input and attribute at once": ({"attributes": {"eps": float, "x": float}}, ["x", "keep one"]),
    "variadic": ({"parameters": (*map(Parameter, ("x", "weight", "eps")), Parameter("rest", variadic=True))}, ["rest", "name each"]),
    "input with a default": (
        {"parameters": (Parameter("x"), Parameter("weight", None), Parameter("eps", 1e-6))},
        ["weight", "default"],
    ),
    "output axis from nowhere": ({"outputs": {"y": "T[token, hidden]"}}, ["y", "token", "'tokens'"]),
    "in_place, not both": ({"in_place": ("x",)}, ["'x'", "both"]),
    "in_place as a string": ({"in_place": "x"}, ["in_place", '("x",)']),
    "in_place, declared differently": (
        {"outputs": {"x": "T[hidden, tokens]"}, "in_place": ("x",)},
        ["T[tokens, hidden]", "T[hidden, tokens]"],
    ),
    "output named like an input": ({"outputs": {"x": "T[tokens, hidden]"}}, ["x", 'in_place=("x",)']),
    "attribute of unsupported kind": ({"attributes": {"eps": list}}, ["eps", "list", "bool, int, float"]),
    "attribute kind as a value": ({"attributes": {"eps": [1.0]}}, ["eps", "bool, int, float"]),
    "default of another kind": (
        {"parameters": (Parameter("x"), Parameter("weight"), Parameter("eps", 1))},
        ["eps", "not of kind float", "write 1.0"],
    ),
    "default None": (
        {"parameters": (Parameter("x"), Parameter("weight"), Parameter("eps", None))},
        ["eps", "None"],
    ),
    "default that JSON cannot carry": (
        {"parameters": (Parameter("x"), Parameter("weight"), Parameter("eps", float("nan")))},
        ["eps", "not finite"],
    ),
    "reduces an unknown axis": ({"tolerance": Tolerance(reduces=("hiden",))}, ["hiden", "'hidden'"]),
    "reduces as a string": ({"tolerance": Tolerance(reduces="hidden")}, ['reduces=("hidden",)']),
    "tolerance that allows everything": ({"tolerance": Tolerance(factor=float("inf"))}, ["factor"]),
    "tolerance accumulates in an integer": ({"tolerance": Tolerance(accumulate="int32")}, ["accumulate"]),
    "tolerance is a number": ({"tolerance": 1e-3}, ["tilegate.Tolerance("]),
    "non_finite misspelled": ({"non_finite": "propagate"}, ["propagate", '"propagated"']),
    "values of no input": ({"values": {"y": (0, 1)}}, ["'y'"]),
    "values upside down": ({"values": {"x": (1, -1)}}, ["x", "(-1.0, 1.0)"]),
    "values beyond a float": ({"values": {"x": (0, 10**400)}}, ["x", "two finite numbers"]),
    "values of one number": ({"values": {"x": 1.0}}, ["x", "two finite numbers"]),
    "no outputs": ({"outputs": {}}, ["outputs="]),
    "no inputs": ({"parameters": (), "inputs": {}, "attributes": {}}, ["inputs"]),
    "inputs as a list": ({"inputs": ["x", "weight"]}, ["mapping"]),
    "operator name": ({"name": "rms-norm"}, ["'rms-norm'"]),
    "output name": ({"outputs": {"the y": "T[tokens]"}}, ["'the y'"]),
    "one word for two things": ({"outputs": {"y": "T[tokens, eps]"}, "inputs":
        {"x": "T[tokens, eps]", "weight": "T[eps]"}}, ["'eps'", "two things"]),
    "output named like an attribute": ({"outputs": {"eps": "T[tokens]"}}, ["eps"]),
    "tensor without brackets": ({"outputs": {"y": "T"}}, ["y", "'T'", "square brackets"]),
    "tensor by torch dtype": ({"outputs": {"y": float}}, ["y", "square brackets"]),
    "computed extent": ({"outputs": {"y": "T[2*hidden]"}}, ["2*hidden", "axis of its own"]),
    "extent zero": ({"outputs": {"y": "T[0]"}}, ["'0'"]),
    "trailing comma": ({"outputs": {"y": "T[tokens,]"}}, ["''"]),
    "served: unknown axis": ({"served": [{"tokens": 1, "hiden": 2}]}, ["hiden", "'hidden'"]),
    "served: missing axis": ({"served": [{"tokens": 1}]}, ["hidden", "missing"]),
    "served: bool extent": ({"served": [{"tokens": True, "hidden": 2}]}, ["tokens", "True"]),
    "served: negative extent": ({"served": [{"tokens": -1, "hidden": 2}]}, ["tokens", "-1"]),
    "served: beyond int32": ({"served": [{"tokens": 2**31, "hidden": 2}]}, ["tokens", "2^31"]),
    "served: bad dtype": ({"served": [{"tokens": 1, "hidden": 2, "T": "float64"}]}, ["T", "float64"]),
    "served: bad attribute": ({"served": [{"tokens": 1, "hidden": 2, "eps": 1}]}, ["eps", "write 1.0"]),
    "served: no mapping": ({"served": ["tokens"]}, ["'tokens'"]),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_declaration_names_the_part_and_the_mend(change, words):
    with pytest.raises(ContractError) as caught:
        rms_norm(**change)
    assert caught.value.where
    assert caught.value.next_step
    for word in words:
        assert word in str(caught.value)


def test_an_attribute_without_default_must_be_served():
    bare = (Parameter("x"), Parameter("weight"), Parameter("eps"))
    with pytest.raises(ContractError, match="eps is missing"):
        rms_norm(parameters=bare, served=[{"tokens": 1, "hidden": 2}])


def test_an_error_shows_no_more_than_the_declaration_itself():
    """What, where, next: each in words of its own."""
    with pytest.raises(ContractError) as caught:
        rms_norm(in_place="x")
    assert str(caught.value).splitlines() == [
        "in_place is 'x', not a tuple of names",
        "  where: operator rms_norm",
        'next: write in_place=("x",)',
    ]
