"""Under torch.compile an operator is one node of the graph, and what answers is decided whenever the graph runs.

Binaries triple where references double, so that a result tells who answered.
"""

from __future__ import annotations

import pytest
import torch

import tilegate
from tests import world
from tests.written import imported
from tilegate.errors import GuardMiss
from tilegate.records.closure import Specialization

OF_VECTORS = {"inputs": {"x": "float32[n]"}, "outputs": {"y": "float32[n]"}}


@tilegate.operator(**OF_VECTORS, name="opaque_twice")
def twice(x):
    return 2 * x


@tilegate.operator(**OF_VECTORS, name="opaque_never", opaque=False)
def fused(x):
    return 2 * x


@tilegate.operator(**OF_VECTORS, name="opaque_absent")
def absent(x):
    return 2 * x


@tilegate.operator(**OF_VECTORS, name="opaque_same")
def same(x):
    return x


@tilegate.operator(**OF_VECTORS, name="opaque_strict", strict=True)
def strictly(x):
    return 2 * x


@tilegate.operator(
    inputs={"x": "float32[n]", "by": "float32[n]"},
    outputs={"x": "float32[n]", "y": "float32[n]"},
    in_place=("x",),
    name="opaque_in_place",
)
def twice_(x, by):
    x.mul_(2)
    return x, x + by


@tilegate.operator(
    inputs={"a": "T[m, k]", "b": "T[k, m]", "bias": "T[m] optional"},
    outputs={"total": "T[m]", "turned": "T[k, m]"},
    dtypes={"T": ("float32", "float64")},
    attributes={"by": float, "kind": str, "flip": bool},
    name="opaque_rows",
)
def rows(a, b, bias=None, by=1.0, *, kind="sum", flip=False):
    found = by * (a.sum(1) if kind == "sum" else a.amax(1))
    return -found if flip else found, a.T


@tilegate.operator(
    inputs={"x": "float32[n]"}, outputs={"x": "float32[n]"}, in_place=("x",), name="opaque_only_in_place"
)
def only_(x):
    return x.mul_(2)


ONLY = world.HOST + (
    "float *x = at(args, 0)->data; for (int64_t i = 0; i < at(args, 0)->shape[0]; ++i) x[i] *= 3; return 0; }"
)
TRIPLE_IN_PLACE = world.HOST + (
    "float *x = at(args, 0)->data, *y = at(args, 2)->data;"
    "for (int64_t i = 0; i < at(args, 0)->shape[0]; ++i) { x[i] *= 3; y[i] = 1000; } return 0; }"
)
MARK = world.HOST + (
    "float *total = at(args, 2)->data, *turned = at(args, 3)->data;"
    "for (int64_t i = 0; i < at(args, 2)->shape[0]; ++i) total[i] = 1000;"
    "for (int64_t i = 0; i < at(args, 3)->shape[0] * at(args, 3)->shape[1]; ++i) turned[i] = 1000; return 0; }"
)
FIXED = {"by": 1.0, "kind": "sum", "flip": False, "bias": False}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    root = tmp_path_factory.mktemp("release")
    small = [world.any_shape(("n",), stop=64)]
    plain = [
        world.part(o.contract(), world.SCALE, "FACTOR=3", classes=small)
        for o in (twice, fused, same, strictly)
    ]
    spec = Specialization(dtypes={"T": "float32"}, attributes=FIXED)
    wide = world.part(
        rows.contract(), MARK, specialization=spec, classes=[world.any_shape(("m", "k"), stop=64)]
    )
    world.write_parts(
        root, *plain, world.part(twice_.contract(), TRIPLE_IN_PLACE), world.part(only_.contract(), ONLY), wide
    )
    return root


@pytest.fixture(autouse=True)
def in_force(release):
    torch._dynamo.reset()
    tilegate.use(release, allow_unsigned=True)
    yield
    tilegate.use(None)
    tilegate.reference_only(mode=False)


class Seen:
    """A backend that keeps the graphs which it is given."""

    def __init__(self):
        self.graphs = []

    def __call__(self, module, _inputs):
        self.graphs.append(module.graph)
        return module.forward

    def nodes(self):
        """Names of the operators' nodes, graph by graph."""
        named = [[str(n.target) for n in g.nodes if n.op == "call_function"] for g in self.graphs]
        return [[name for name in names if name.startswith("tilegate.")] for names in named]


def compiled(function, **options):
    seen = Seen()
    return torch.compile(function, backend=seen, fullgraph=True, **options), seen


def counts(name="opaque_twice"):
    found = tilegate.stats()[name]
    return sum(found.hits.values()), sum(found.misses.values())


def ones(*shape, **options):
    return torch.ones(*(shape or (4,)), **options)


def test_a_compiled_call_is_one_node_that_runs_the_binary_and_is_counted():
    call, seen = compiled(lambda x: twice(x + 1) + 1)
    assert call(ones()).tolist() == [7] * 4
    assert seen.nodes() == [["tilegate.opaque_twice.default"]]
    assert counts() == (1, 0)


def test_a_graph_follows_what_is_in_force(release):
    """torch.compile sees that something else answers, and looks once at each answer."""
    call, seen = compiled(lambda x: twice(x + 0) + 0)
    for _ in range(3):
        assert call(ones())[0] == 3
        with tilegate.reference_only():
            assert call(ones())[0] == 2
    assert [len(nodes) for nodes in seen.nodes()] == [1, 0]
    tilegate.use(None)
    assert call(ones())[0] == 2
    tilegate.use(release, allow_unsigned=True)
    assert call(ones())[0] == 3


def test_a_node_that_an_engine_keeps_follows_too():
    """Whoever holds a compiled graph runs it without torch.compile looking again."""
    node = torch.ops.tilegate.opaque_twice.default
    assert node(ones())[0] == 3
    with tilegate.reference_only():
        assert node(ones())[0] == 2
    tilegate.use(None)
    assert node(ones())[0] == 2


def test_what_the_guard_refuses_in_a_graph_goes_to_the_reference():
    call, _ = compiled(lambda x: twice(x) + 0, dynamic=True)
    assert (call(ones())[0], call(ones(65))[0]) == (3, 2)
    assert counts() == (1, 1)


def test_one_graph_serves_many_extents():
    call, seen = compiled(twice, dynamic=True)
    for n in (4, 5, 9, 64, 65):
        assert call(ones(n)).shape == (n,)
    assert len(seen.graphs) == 1


def test_a_strict_operator_raises_from_inside_a_graph():
    call, _ = compiled(lambda x: strictly(x) + 0, dynamic=True)
    assert call(ones())[0] == 3
    with pytest.raises(GuardMiss, match="n=65"):
        call(ones(65))


# The reference stands in the graph


def test_a_wanted_gradient_is_the_references():
    call, seen = compiled(lambda x: twice(x * 1).sum())
    x = ones(requires_grad=True)
    (gradient,) = torch.autograd.grad(call(x), x)
    assert gradient.tolist() == [2] * 4
    assert seen.nodes() == [[]]


def test_a_parameter_without_recording_is_served():
    weight = torch.nn.Parameter(ones())
    call, seen = compiled(lambda x: twice(weight) + x)
    with torch.no_grad():
        assert call(ones())[0] == 4
    call(ones()).sum().backward()
    assert weight.grad.tolist() == [2] * 4
    assert seen.nodes() == [["tilegate.opaque_twice.default"], []]


TRANSFORMS = {
    "vmap": (lambda x: torch.vmap(twice)(x.reshape(2, 2)), [2] * 4),
    "grad": (torch.func.grad(lambda x: twice(x).sum()), [2] * 4),
    "jvp": (lambda x: torch.func.jvp(twice, (x,), (x,))[1], [2] * 4),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_in_a_graph_sees_the_reference(name):
    function, expected = TRANSFORMS[name]
    call, seen = compiled(function)
    assert call(ones()).flatten().tolist() == expected
    assert seen.nodes() == [[]]


REFERENCES = {
    "autocast": lambda: (twice, (ones(),)),
    "another dtype": lambda: (twice, (ones(dtype=torch.float64),)),
    "another rank": lambda: (twice, (ones(2, 2),)),
    "opted out": lambda: (fused, (ones(),)),
    "not in the release": lambda: (absent, (ones(),)),
    "an attribute that no artifact has": lambda: (
        lambda a, b: rows(a, b, by=2.0)[0],
        (ones(2, 3), ones(3, 2)),
    ),
    "an attribute of another type": lambda: (
        lambda a, b: rows(a, b, flip=0)[0],
        (ones(2, 3), ones(3, 2)),
    ),
    "an input that no artifact takes": lambda: (
        lambda a, b: rows(a, b, a[:, 0])[0],
        (ones(2, 3), ones(3, 2)),
    ),
    "tensors that disagree on an axis": lambda: (lambda a, b: rows(a, b)[0], (ones(2, 3), ones(3, 5))),
    "a tensor for an attribute": lambda: (lambda a, b: rows(a, b, by=a[0, 0])[0], (ones(2, 3), ones(3, 2))),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_where_no_binary_can_answer_the_graph_holds_the_reference(name):
    function, arguments = REFERENCES[name]()
    with torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast"):
        with tilegate.reference_only():
            expected = function(*arguments)
        call, seen = compiled(function)
        assert torch.equal(call(*arguments), expected)
    assert seen.nodes() == [[]]


def test_an_exported_program_needs_no_tilegate():
    class Model(torch.nn.Module):
        def forward(self, x):
            return twice(x)

    for strict in (True, False):
        program = torch.export.export(Model(), (ones(),), strict=strict)
        assert "tilegate" not in program.graph_module.code
        assert program.module()(ones()).tolist() == [2] * 4


def test_operators_declared_meanwhile_compile_too(tmp_path):
    text = """
        import tilegate
        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="opaque_late")
        def late(x):
            return 2 * x
    """
    with imported(tmp_path, {"ops.py": text}, "ops") as module:
        call, _ = compiled(lambda x: module.late(x) + 0)
        assert call(ones())[0] == 2


# What a graph may rely on


def test_outputs_are_as_the_fake_implementation_said_whoever_answers():
    """A graph is compiled for these strides; the reference returns a view of its input, transposed."""
    call, seen = compiled(rows, dynamic=True)
    for m, served in ((2, True), (65, False)):
        total, turned = call(ones(m, 3), ones(3, m))
        assert (total[0], turned[0, 0]) == ((1000, 1000) if served else (3, 1))
        assert (total.shape, turned.shape, turned.stride()) == ((m,), (3, m), (m, 1))
    assert seen.nodes() == [["tilegate.opaque_rows.default"]]
    assert counts("opaque_rows") == (1, 1)


def test_an_input_that_the_reference_returns_is_copied_in_a_graph():
    node = torch.ops.tilegate.opaque_same.default
    x = ones(65)
    found = node(x)
    assert torch.equal(found, x)
    assert found.data_ptr() != x.data_ptr()
    assert same(x) is x


def test_in_place_is_a_mutation_that_the_graph_knows_of():
    def program(x):
        before = x + 0
        found, y = twice_(x, x + 1)
        return before, found, y, x + 0

    for backend in (compiled(program)[0], torch.compile(program, backend="aot_eager", fullgraph=True)):
        torch._dynamo.reset()
        x = ones()
        before, found, y, after = backend(x)
        assert (before[0], found[0], y[0], after[0], x[0]) == (1, 3, 1000, 3, 3)
    assert counts("opaque_in_place") == (2, 0)


def test_an_operator_that_only_overwrites_is_a_node_without_outputs():
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        call, x = torch.compile(lambda x: only_(x) + 1, backend=backend, fullgraph=True), ones()
        assert (call(x)[0], x[0]) == (4, 3)
    assert counts("opaque_only_in_place") == (2, 0)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (twice, lambda: (ones(),)),
        (twice, lambda: (ones(65),)),
        (same, lambda: (ones(65),)),
        (twice_, lambda: (ones(), ones())),
        (only_, lambda: (ones(),)),
        (rows, lambda: (ones(2, 3), ones(3, 2), None, 1.0, "sum", False)),
        (rows, lambda: (ones(65, 3), ones(3, 65), None, 1.0, "sum", False)),
    ],
)
def test_torch_finds_schema_and_fake_implementation_true(operator, arguments):
    """torch's own check: mutations and aliases as declared, fake outputs like real ones, also with open extents."""
    node = getattr(torch.ops.tilegate, operator.name).default
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(node, arguments(), test_utils=tests)


def test_an_operator_declared_again_with_another_signature_gets_another_node(tmp_path):
    text = """
        import tilegate
        @tilegate.operator(inputs={"x": "float32[n]"%s}, outputs={"y": "float32[n]"}, name="opaque_again")
        def again(x%s):
            return 2 * x
    """
    for number, (inputs, parameters) in enumerate([("", ""), (', "z": "float32[n]"', ", z")]):
        with imported(
            tmp_path / str(number), {"ops.py": text % (inputs, parameters)}, "ops", name="again_ops"
        ) as module:
            host = world.SCALE if not number else world.SCALE.replace("at(args, 1)", "at(args, 2)")
            world.write_parts(tmp_path / f"r{number}", world.part(module.again.contract(), host, "FACTOR=3"))
            tilegate.use(tmp_path / f"r{number}", allow_unsigned=True)
            torch._dynamo.reset()
            call, seen = compiled(lambda *a: module.again(*a) + 0)
            assert call(*[ones()] * (number + 1))[0] == 3
            assert seen.nodes() == [["tilegate.opaque_again.default"]]
