"""Whatever torch may hand over: a tested binary where the call is plain, else the reference; never a wrong launch.

The binary triples where the reference doubles, so that a result tells who answered.
"""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch.autograd import forward_ad

import tilegate
from tests import world
from tilegate import MissReason


@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="torch_twice")
def twice(x):
    return 2 * x


@tilegate.operator(
    inputs={"x": "float32[n]"}, outputs={"x": "float32[n]"}, in_place=("x",), name="torch_twice_in_place"
)
def twice_(x):
    return x.mul_(2)


TRIPLE_IN_PLACE = world.HOST + (
    "float *x = at(args, 0)->data; for (int64_t i = 0; i < at(args, 0)->shape[0]; ++i) x[i] *= 3; return 0; }"
)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.activation = twice

    def forward(self, x):
        return self.activation(x * self.weight)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    root = tmp_path_factory.mktemp("release")
    plain = world.part(twice.contract(), world.SCALE, "FACTOR=3")
    world.write_parts(root, plain, world.part(twice_.contract(), TRIPLE_IN_PLACE))
    return root


@pytest.fixture(autouse=True)
def in_force(release):
    tilegate.use(release, allow_unsigned=True)
    yield
    tilegate.use(None)


def ones():
    return torch.ones(4)


def counts(name="torch_twice"):
    found = tilegate.stats()[name]
    return sum(found.hits.values()), sum(found.misses.values())


def reasons(name="torch_twice"):
    return {text.partition(" (")[0] for text in tilegate.stats()[name].misses}


# Gradients


def test_a_call_without_gradients_is_served_in_every_mode():
    assert twice(ones()).tolist() == [3] * 4
    with torch.no_grad():
        assert twice(ones().requires_grad_()).tolist() == [3] * 4
        assert twice(torch.nn.Parameter(ones())).tolist() == [3] * 4
    with torch.inference_mode():
        inference = ones()
        assert twice(inference).is_inference()
        assert twice_(inference.clone()).tolist() == [3] * 4
    assert twice(inference).tolist() == [3] * 4, "an inference tensor outside the mode"
    assert counts() == (5, 0)


@pytest.mark.parametrize(
    "kind", [torch.nn.Parameter, lambda t: t.requires_grad_(), lambda t: t.requires_grad_() + 0]
)
def test_a_gradient_is_the_references(kind):
    x = kind(ones())
    (gradient,) = torch.autograd.grad(twice(x).sum(), x)
    assert gradient.tolist() == [2] * 4
    assert counts() == (0, 1)
    assert reasons() == {MissReason.GRAD.value}


def test_in_place_on_a_parameter_is_served_only_while_nothing_is_recorded():
    weight = torch.nn.Parameter(ones())
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        twice_(weight)
    assert (weight.tolist(), weight._version) == ([1] * 4, 0)
    with torch.no_grad():
        assert twice_(weight) is weight
    assert (weight.tolist(), weight._version) == ([3] * 4, 1)
    assert counts("torch_twice_in_place") == (1, 1)


def test_a_tensor_with_a_tangent_keeps_it():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(ones(), torch.full((4,), 5.0))
        for context in (torch.no_grad(), torch.enable_grad()):
            with context:
                assert forward_ad.unpack_dual(twice(dual)).tangent.tolist() == [10] * 4
    assert reasons() == {MissReason.TRACING.value}
    assert twice(ones()).tolist() == [3] * 4
    assert counts() == (1, 2)


# Transforms and tracing


def test_a_transform_sees_the_reference():
    assert torch.vmap(twice)(torch.ones(3, 4)).tolist() == [[2] * 4] * 3
    assert torch.func.grad(lambda x: twice(x).sum())(ones()).tolist() == [2] * 4
    assert torch.func.jvp(twice, (ones(),), (ones(),))[1].tolist() == [2] * 4
    assert torch.func.functionalize(twice)(ones()).tolist() == [2] * 4
    assert torch.func.vmap(twice_)(torch.ones(3, 4)).tolist() == [[2] * 4] * 3
    assert counts() == (0, 4)


def test_a_traced_graph_computes_what_the_reference_does():
    """Were a launch traced, the graph would hand out memory that nothing writes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def program(x):
        return twice(x)

    graphs = [make_fx(program)(ones()), torch.fx.symbolic_trace(program)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and still there
        graphs.append(torch.jit.trace(program, (ones(),), check_trace=False))
    for graph in graphs:
        assert graph(torch.full((4,), 5.0)).tolist() == [10] * 4
    assert counts() == (0, 3)


def test_a_dispatch_mode_sees_every_operation_of_the_reference():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = ones()
    with Watch():
        assert torch.equal(twice(x), x + x)
    assert "aten.mul.Tensor" in seen
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert twice(x).fake_mode is mode
        assert twice(torch.ones(4)).shape == (4,)
    assert counts() == (0, 3)


# Tensors that are none, or lie otherwise

ODD = {
    "subclass": lambda: ones().as_subclass(type("Mine", (torch.Tensor,), {})),
    "sparse": lambda: ones().to_sparse(),
    "meta": lambda: ones().to("meta"),
    "negative bit": lambda: torch._neg_view(-ones()),
    "imaginary part of a conjugate": lambda: torch.complex(ones(), -ones()).conj().imag,
    "conjugate": lambda: torch.complex(ones(), ones()).conj(),
    "no memory": lambda: torch._efficientzerotensor(4),
    "functional wrapper": lambda: torch._to_functional_tensor(ones()),
    "strided": lambda: torch.ones(8)[::2],
    "expanded": lambda: torch.ones(1).expand(4),
    "double": lambda: ones().double(),
    "half": lambda: ones().half(),
    "integers": lambda: torch.ones(4, dtype=torch.int32),
    "matrix": lambda: torch.ones(2, 2),
    "scalar": lambda: torch.ones(()),
    "number": lambda: 1.0,
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_argument_goes_to_the_reference(odd):
    x = ODD[odd]()
    found, expected = twice(x), twice.reference(x)
    assert type(found) is type(expected)
    assert counts() == (0, 1)
    if isinstance(x, torch.Tensor):
        assert (found.dtype, found.layout, found.shape) == (expected.dtype, expected.layout, expected.shape)
        assert x.is_meta or torch.equal(found.to_dense(), expected.to_dense())
    else:
        assert found == expected


def test_a_fake_tensor_outside_its_mode_goes_to_the_reference():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x = torch.ones(4)
    assert twice(x).fake_mode is mode
    assert reasons() == {MissReason.TENSOR_TYPE.value}


def test_an_odd_argument_in_place_is_changed_once_by_the_reference():
    base = torch.ones(8)
    for x in (base[::2], torch._neg_view(torch.ones(4)), ones().double(), ones().to_sparse()):
        before = x.to_dense().clone()
        assert twice_(x) is x
        assert torch.equal(x.to_dense(), 2 * before)
    assert base.tolist() == [2, 1] * 4
    assert counts("torch_twice_in_place") == (0, 4)


def test_an_error_of_the_reference_comes_out_as_it_is():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(ones(), 0.1, 0, torch.quint8)
        with pytest.raises(RuntimeError) as expected:
            twice.reference(quantized)
        with pytest.raises(RuntimeError) as found:
            twice(quantized)
    assert str(found.value) == str(expected.value)
    assert counts() == (0, 1)


def test_plain_tensors_that_lie_unusually_are_served():
    assert twice(torch.ones(9)[1:5]).tolist() == [3] * 4, "aligned to one element, as evaluated"
    assert twice(torch.ones(0)).shape == (0,)
    assert twice(torch.ones(5)[:0]).shape == (0,)
    assert twice(torch.ones(1, 7)[:, :1].reshape(1)).tolist() == [3]
    assert twice(torch.ones(3)[1:2]).tolist() == [3]
    assert counts() == (5, 0)


def test_a_lazy_copy_and_its_origin_stay_apart():
    origin = ones()
    lazy = torch._lazy_clone(origin)
    twice_(lazy)
    assert (origin.tolist(), lazy.tolist()) == ([1] * 4, [3] * 4)
    twice_(origin)
    assert (origin.tolist(), lazy.tolist()) == ([3] * 4, [3] * 4)
    assert counts("torch_twice_in_place") == (2, 0)


def test_an_output_is_a_tensor_of_its_own_as_the_reference_gives_it():
    weight = torch.nn.Parameter(ones())
    with torch.no_grad():
        found, expected = twice(weight), twice.reference(weight)
    assert (type(found), found.requires_grad, found.is_leaf) == (torch.Tensor, False, True)
    assert (found.stride(), found.device) == (expected.stride(), expected.device)
    assert found.data_ptr() != weight.data_ptr()


# Modules


def test_a_module_that_holds_an_operator_can_be_copied_and_pickled():
    layer = Layer()
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.activation is twice
        assert twin.weight is not layer.weight
        with torch.no_grad():
            assert twin(ones()).tolist() == [3] * 4
        twin(ones()).sum().backward()
        assert twin.weight.grad.tolist() == [2] * 4
    assert counts() == (2, 2)
