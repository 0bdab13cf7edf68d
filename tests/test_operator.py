"""An operator behaves as the function it was made of, until a call site answers for it."""

import copy
import functools
import inspect
import pickle
import subprocess
import sys

import pytest

from tilegate.errors import ContractError
from tilegate.records.canonical import decode, encode
from tilegate.records.declaration import Declaration
from tilegate.records.miss import Miss, MissReason
from tilegate.runtime import operator as module
from tilegate.runtime.operator import UNREAD, Operator, kernel, operator, operators

SCALE = 2.0


def scale(x, *, by=1.0):
    """Scale x."""
    return x * by * SCALE


DECLARED = {"inputs": {"x": "float32[n]"}, "outputs": {"y": "float32[n]"}, "attributes": {"by": float}}
doubled = operator(**DECLARED, name="doubled", served=[{"n": 4}])(scale)


@operator(**DECLARED)
def pickled(x, *, by=1.0):
    return later(x) * by


def later(x):
    return x


for _mine in (doubled, pickled):
    del module.OPERATORS[_mine.name]  # other tests ask what this process declares


@pytest.fixture(autouse=True)
def registry_of_its_own(monkeypatch):
    monkeypatch.setattr(module, "OPERATORS", {})
    monkeypatch.setattr(module, "on_register", [])
    yield
    doubled.detach()


def test_without_a_release_it_is_the_reference():
    assert doubled(3.0) == 6.0
    assert doubled(x=3.0, by=0.5) == 3.0
    assert doubled.explain(3.0).misses == (Miss(reason=MissReason.NO_RELEASE),)


def test_an_error_of_the_reference_reaches_the_caller():
    with pytest.raises(TypeError, match="unexpected keyword"):
        doubled(1.0, bye=2)


def test_it_looks_like_the_function_to_tools():
    assert doubled.__name__ == "scale"
    assert doubled.__doc__ == "Scale x."
    assert doubled.__wrapped__ is scale
    assert doubled.__module__ == __name__
    assert inspect.signature(doubled) == inspect.signature(scale)
    assert repr(doubled) == f"<tilegate operator doubled ({__name__}:scale)>"


def test_it_is_one_thing_however_it_is_copied():
    assert copy.deepcopy({"layer": pickled})["layer"] is pickled
    assert copy.copy(pickled) is pickled
    assert pickle.loads(pickle.dumps(pickled)) is pickled


def test_it_binds_in_a_class_as_a_function_does():
    class Layer:
        apply = operator(
            inputs={"self": "float32[]", "x": "float32[]"}, outputs={"y": "float32[]"}, name="apply"
        )(lambda_free)

    layer = Layer()
    assert layer.apply(1) == (layer, 1)
    assert isinstance(Layer.apply, Operator)


def lambda_free(self, x):
    return self, x


def test_an_attached_call_answers_and_its_undo_restores_the_reference():
    undo = doubled.attach(lambda *args, **kwargs: ("site", args, kwargs), lambda x: f"explained {x}")
    assert doubled(1, by=2) == ("site", (1,), {"by": 2})
    assert doubled.explain(1) == "explained 1"
    undo()
    assert doubled(3.0) == 6.0
    assert doubled.explain(3.0).misses == (Miss(reason=MissReason.NO_RELEASE),)


def test_a_late_undo_cannot_switch_off_what_was_attached_since():
    undo = doubled.attach(lambda x: "old")
    doubled.attach(lambda x: "new")
    undo()
    assert doubled(1) == "new"


def test_a_wrapper_around_a_call_site_is_not_passed_by():
    """A site answers as a method of the operator's class, and a wrapper carries the site's attributes."""

    def site(x):
        return f"site {x}"

    def method(_operator, x):
        return f"site as a method {x}"

    site.as_method, method.site = method, site
    doubled.attach(site)
    assert doubled(1) == "site as a method 1"
    assert pickled(3.0, by=2.0) == 6.0, "the class is one operator's own"

    @functools.wraps(site)
    def wrapper(x):
        return f"wrapped {site(x)}"

    doubled.attach(wrapper)
    assert doubled(1) == "wrapped site 1"
    doubled.detach()
    assert doubled(3.0) == 6.0


def test_a_parameter_may_be_called_self_and_passed_by_name():
    named = operator(
        inputs={"self": "float32[]", "x": "float32[]"}, outputs={"y": "float32[]"}, name="named_self"
    )(lambda_free)
    assert named(x=1, self=2) == (2, 1)


def test_the_contract_waits_for_what_stands_further_down():
    contract = pickled.contract()
    assert pickled.declared.reference == UNREAD
    assert contract.reference != UNREAD
    assert contract.name == "pickled"


def test_the_declaration_is_what_the_commands_read():
    declaration = doubled.declaration()
    assert declaration.operator == f"{__name__}:scale"
    assert declaration.served[0].axes == {"n": 4}
    assert declaration.served[0].attributes == {"by": 1.0}
    assert decode(Declaration, encode(declaration), where="test") == declaration


def test_a_wrong_declaration_is_told_when_it_is_made():
    with pytest.raises(ContractError, match="parameter by is not declared"):
        operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"})(scale)


def test_star_arguments_are_told_when_declared():
    def many(*xs):
        return xs

    with pytest.raises(ContractError, match="any number"):
        operator(inputs={"xs": "float32[n]"}, outputs={"y": "float32[n]"})(many)


@pytest.mark.parametrize("thing", [len, DECLARED, Operator, doubled])
def test_only_a_def_can_be_a_reference(thing):
    with pytest.raises(ContractError, match="no Python function"):
        operator(**DECLARED)(thing)


def test_two_places_cannot_declare_one_name():
    def other(x, *, by=1.0):
        return x

    operator(**DECLARED, name="same")(scale)
    with pytest.raises(ContractError) as caught:
        operator(**DECLARED, name="same")(other)
    assert f"{__name__}:scale" in str(caught.value)
    assert "<locals>.other" in str(caught.value)
    assert "name=" in caught.value.next_step
    assert [o.reference for o in operators()] == [scale]


def test_a_reload_replaces_the_operator():
    operator(**DECLARED, name="same")(scale)
    again = operator(**DECLARED, name="same")(scale)
    assert operators() == (again,)


def test_an_operator_declared_after_use_is_still_attached():
    module.on_register.append(lambda declared: declared.attach(lambda *_: "served"))
    late = operator(**DECLARED, name="late")(scale)
    assert late(1.0) == "served"


def test_a_refused_operator_is_never_attached():
    seen = []
    module.on_register.append(seen.append)
    with pytest.raises(ContractError):
        operator(**{**DECLARED, "outputs": {}})(scale)
    assert seen == []
    assert operators() == ()


def test_a_kernel_decorator_returns_the_factory_itself():
    assert kernel("package.module:scale", dynamic=("n",))(later) is later


def test_declaring_operators_imports_no_torch_and_starts_nothing():
    """A service that never attaches a release pays for no runtime."""
    heavy = {"torch", "tvm_ffi", "tilelang", "tvm", "cryptography", "sqlite3", "click", "rich"}
    text = "import sys, tilegate.runtime.operator; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


def test_a_module_run_with_dash_m_declares_under_its_own_name(tmp_path):
    (tmp_path / "ops_main.py").write_text(
        "from tilegate.runtime.operator import operator\n"
        "@operator(inputs={'x': 'float32[n]'}, outputs={'y': 'float32[n]'})\n"
        "def f(x):\n    return x\n"
        "import ops_main as imported\n"
        "print(f.origin, imported.f.origin)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "ops_main"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {"ops_main:f"}
