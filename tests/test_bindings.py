"""Bindings are read from text: what the text does not say outright is refused, with its line."""

import inspect
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate.build.bindings import KEYWORDS, bindings_in, expand
from tilegate.errors import BindingError
from tilegate.records.canonical import digest_of
from tilegate.records.closure import Binding, Specialization
from tilegate.records.contract import Attribute, Contract, NonFinite, TensorSpec, Tolerance
from tilegate.runtime.operator import kernel

HEAD = "import tilegate\nfrom .ops import rms_norm\n"
BODY = "\ndef rms(hidden, T):\n    raise RuntimeError\n"


def read(text, **options):
    return bindings_in("pkg.kernels", text, **options)


def test_a_binding_is_read_without_running_a_line():
    (binding,) = read(
        "raise SystemExit\n" + HEAD + "@tilegate.kernel(rms_norm, dynamic=('tokens',),\n"
        "    specialize={'hidden': [384, 768], 'T': 'float16', 'eps': -1e-6},\n"
        "    parameters={'H': 'hidden'}, constants={'threads': 128, 'fast': True})" + BODY
    )
    assert binding == Binding(
        operator="pkg.ops:rms_norm",
        factory="pkg.kernels:rms",
        kernel="rms",
        dynamic=("tokens",),
        specialize={"hidden": (384, 768), "T": ("float16",), "eps": (-1e-6,)},
        parameters={"H": "hidden"},
        constants={"threads": 128, "fast": True},
    )


SPELLINGS = {
    "import tilegate as tg\nfrom pkg.ops import rms_norm\n@tg.kernel(rms_norm)": "pkg.ops:rms_norm",
    "from tilegate import kernel\nfrom pkg.ops import rms_norm as r\n@kernel(r)": "pkg.ops:rms_norm",
    "from tilegate import kernel as k\nfrom . import ops\n@k(ops.rms_norm)": "pkg.ops:rms_norm",
    "import tilegate\nimport pkg.ops\n@tilegate.kernel(pkg.ops.rms_norm)": "pkg.ops:rms_norm",
    "import tilegate\nimport pkg.ops as o\n@tilegate.kernel(operator=o.rms_norm)": "pkg.ops:rms_norm",
    "import tilegate\n@tilegate.kernel('other.ops:rms_norm')": "other.ops:rms_norm",
    "import tilegate\ndef rms_norm(x): ...\n@tilegate.kernel(rms_norm)": "pkg.kernels:rms_norm",
    "import tilegate\nfrom ..shared.ops import f\n@tilegate.kernel(f)": "shared.ops:f",
    "import tilegate, tilelang\nfrom .ops import f\n@tilegate.kernel(f)\n@tilelang.jit": "pkg.ops:f",
    "try:\n    import tilegate\nexcept ImportError: raise\nfrom .ops import f\n@tilegate.kernel(f)": "pkg.ops:f",
}


@pytest.mark.parametrize(("text", "operator"), SPELLINGS.items())
def test_the_operator_is_found_however_it_was_imported(text, operator):
    module = "pkg.kernels" if "..shared" not in text else "top.pkg.kernels"
    (binding,) = bindings_in(module, text + BODY)
    assert binding.operator == operator.replace("shared", "top.shared")


def test_a_package_resolves_its_relative_imports_from_itself():
    (binding,) = read(HEAD + "@tilegate.kernel(rms_norm)" + BODY, is_package=True)
    assert binding.operator == "pkg.kernels.ops:rms_norm"


def test_one_factory_may_serve_several_bindings_in_source_order():
    found = read(
        HEAD
        + "@tilegate.kernel(rms_norm, kernel='b')\n@tilegate.kernel(rms_norm, kernel='a')"
        + BODY
        + "@tilegate.kernel('pkg.ops:other')\ndef more(): ...\n"
    )
    assert [b.kernel for b in found] == ["b", "a", "more"]


def test_a_name_of_a_function_s_own_is_no_binding():
    """TileLang factories often call their inner function `kernel`."""
    text = "from tilegate import kernel\nfrom .ops import f\n@kernel(f)\ndef rms():\n    def kernel(x): ...\n    return kernel\n"
    assert [b.kernel for b in read(text)] == ["rms"]


def test_a_module_without_bindings_has_none():
    assert read("import tilelang\n@tilelang.jit\ndef kernel(x): ...\n") == ()


def test_the_reader_knows_the_decorator_s_own_signature():
    assert tuple(inspect.signature(kernel).parameters) == KEYWORDS


REFUSED = {
    "computed dynamic": ("@tilegate.kernel(rms_norm, dynamic=tuple(AXES))", 3, "dynamic is no literal"),
    "computed value": ("@tilegate.kernel(rms_norm, specialize={'hidden': 2 * 384})", 3, "specialize is no literal"),
    "comprehension": ("@tilegate.kernel(rms_norm,\n  dynamic=[a for a in 'ab'])", 4, "[[kernel]]"),
    "dict call": ("@tilegate.kernel(rms_norm, constants=dict(a=1))", 3, "constants is no literal"),
    "unpacked keywords": ("@tilegate.kernel(rms_norm, **OPTIONS)", 3, "** argument"),
    "unpacked dict": ("@tilegate.kernel(rms_norm, constants={**A})", 3, "constants is no literal"),
    "unknown keyword": ("@tilegate.kernel(rms_norm, dynamc=('tokens',))", 3, "did you mean 'dynamic'?"),
    "operator twice": ("@tilegate.kernel(rms_norm, operator=rms_norm)", 3, "unexpected argument 'operator'"),
    "two positional": ("@tilegate.kernel(rms_norm, 'name')", 3, "one positional"),
    "no operator": ("@tilegate.kernel(dynamic=('tokens',))", 3, "no operator"),
    "no call": ("@tilegate.kernel", 3, "used otherwise"),
    "operator as a lambda": ("@tilegate.kernel(lambda x: x)", 3, "which operator"),
    "operator as a call": ("@tilegate.kernel(get('rms_norm'))", 3, "which operator"),
    "operator from nowhere": ("@tilegate.kernel(layer_norm)", 3, "import layer_norm by name"),
    "operator computed": ("f = rms_norm\n@tilegate.kernel(f)", 4, "which operator"),
    "operator bound twice": ("from .other import rms_norm\n@tilegate.kernel(rms_norm)", 4, "bound twice"),
    "operator as a path": ("@tilegate.kernel('pkg/ops.py')", 3, "package.module:function"),
    "a bare string of axes": ("@tilegate.kernel(rms_norm, dynamic='tokens')", 3, "dynamic is a string"),
    "a set of values": ("@tilegate.kernel(rms_norm, specialize={'hidden': {1, 2}})", 3, "no order"),
    "a key twice": ("@tilegate.kernel(rms_norm, specialize={'h': 1, 'h': 2})", 3, "key twice"),
    "an infinity": ("@tilegate.kernel(rms_norm, constants={'a': 1e999})", 3, "cannot be meant"),
    "a null": ("@tilegate.kernel(rms_norm, constants={'a': None})", 3, "is None"),
    "a name that is none": ("@tilegate.kernel(rms_norm, kernel='fast rms')", 3, "kernel is no identifier"),
    "a kernel twice": ("@tilegate.kernel(rms_norm)\n@tilegate.kernel(rms_norm)", 4, "bound twice"),
    "under another name": ("bind = tilegate.kernel\n@bind(rms_norm)", 3, "used otherwise"),
    "called at once": ("tilegate.kernel(rms_norm)(print)\n@print", 3, "used otherwise"),
    "in a condition": ("if True:\n    @tilegate.kernel(rms_norm)\n    def f(): ...\n@print", 4, "top level"),
    "in a class": ("class A:\n    @tilegate.kernel(rms_norm)\n    def f(): ...\n@print", 4, "top level"),
    "in a function": ("def a():\n    @tilegate.kernel(rms_norm)\n    def f(): ...\n@print", 4, "top level"),
    "not Python": ("@tilegate.kernel(rms_norm,\n)\n)", 5, "syntax error"),
    "out of the package": ("from ...x import y\n@tilegate.kernel(y)", 3, "leads out of the package"),
}  # fmt: skip


@pytest.mark.parametrize(("decorator", "line", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_written_out_is_refused_with_its_line(decorator, line, words):
    with pytest.raises(BindingError) as caught:
        read(HEAD + decorator + BODY)
    assert words in str(caught.value)
    assert caught.value.where.endswith(f"line {line}")
    assert caught.value.next_step


def test_an_odd_escape_is_no_fault_of_the_binding():
    assert read("x = '\\d'\n") == ()


@pytest.mark.parametrize("source", ["\0", "(" * 10_000, b"\xff", "-" * 100_000 + "1"])
def test_hostile_source_is_refused_and_crashes_nothing(source):
    with pytest.raises(BindingError, match=r"syntax error|cannot be parsed"):
        read(source)


def contract(**changes):
    fields = {
        "name": "rms_norm",
        "inputs": (
            TensorSpec(name="x", dtype="T", dims=("tokens", "hidden")),
            TensorSpec(name="weight", dtype="T", dims=("hidden",)),
        ),
        "outputs": (TensorSpec(name="y", dtype="T", dims=("tokens", "hidden")),),
        "dtypes": {"T": ("float32", "float16")},
        "attributes": (Attribute(name="eps", kind="float", default=1e-6),),
        "in_place": (),
        "tolerance": Tolerance(),
        "non_finite": NonFinite.EXCLUDED,
        "values": {},
        "reference": digest_of(b""),
    } | changes
    return Contract(**fields)


def binding(**fields):
    return Binding(operator="pkg.ops:rms_norm", factory="pkg.kernels:rms", kernel="rms", **fields)


def test_dtypes_and_defaults_fill_what_a_binding_leaves_out():
    assert expand(binding(dynamic=("tokens",), specialize={"hidden": (384,)}), contract()) == (
        Specialization(axes={"hidden": 384}, dtypes={"T": "float32"}, attributes={"eps": 1e-6}),
        Specialization(axes={"hidden": 384}, dtypes={"T": "float16"}, attributes={"eps": 1e-6}),
    )


def test_an_operator_without_variables_has_one_generic_artifact():
    plain = contract(
        inputs=(TensorSpec(name="x", dtype="float32", dims=("n",)),),
        outputs=(TensorSpec(name="y", dtype="float32", dims=("n",)),),
        dtypes={},
        attributes=(),
    )
    assert [str(s) for s in expand(binding(dynamic=("n",)), plain)] == ["generic"]


sizes = st.lists(st.integers(1, 4096), min_size=1, max_size=4, unique=True)


@given(
    tokens=sizes,
    hidden=sizes,
    eps=st.lists(st.floats(0, 1), min_size=1, max_size=3, unique=True),
    dtypes=st.sampled_from([("float32",), ("float16",), ("float16", "float32"), None]),
    tokens_open=st.booleans(),
)
def test_the_product_is_built_and_nothing_else(*, tokens, hidden, eps, dtypes, tokens_open):
    """Specializations are distinct, and are exactly the points of the product of the listed values."""
    listed = {"hidden": tuple(hidden), "eps": tuple(eps)} | ({"T": dtypes} if dtypes else {})
    listed |= {} if tokens_open else {"tokens": tuple(tokens)}
    made = expand(binding(dynamic=("tokens",) if tokens_open else (), specialize=listed), contract())
    points = [(s.axes.get("tokens"), s.axes["hidden"], s.dtypes["T"], s.attributes["eps"]) for s in made]
    wanted = itertools.product(
        [None] if tokens_open else tokens, hidden, dtypes or ("float32", "float16"), eps
    )
    assert sorted(points, key=repr) == sorted(wanted, key=repr)


HIDDEN = {"hidden": (384,)}
WRONG = {
    "axis left open": (binding(dynamic=("tokens",)), ["hidden", 'dynamic=("hidden",)', 'specialize={"hidden"']),
    "axis in both": (binding(dynamic=("tokens", "hidden"), specialize=HIDDEN), ["hidden", "both"]),
    "dynamic twice": (binding(dynamic=("tokens", "tokens"), specialize=HIDDEN), ["twice"]),
    "dynamic unknown": (binding(dynamic=("token",), specialize=HIDDEN), ["'token'", "'tokens'"]),
    "dynamic dtype": (binding(dynamic=("tokens", "T"), specialize=HIDDEN), ["T", "no axis"]),
    "unknown word": (binding(dynamic=("tokens",), specialize=HIDDEN | {"ep": (1.0,)}), ["'ep'", "'eps'"]),
    "no values": (binding(dynamic=("tokens",), specialize={"hidden": ()}), ["hidden", "no value"]),
    "value twice": (binding(dynamic=("tokens",), specialize={"hidden": (8, 8)}), ["hidden", "twice"]),
    "bool extent": (binding(dynamic=("tokens",), specialize={"hidden": (True,)}), ["hidden", "True"]),
    "extent zero": (binding(dynamic=("tokens",), specialize={"hidden": (0,)}), ["hidden", "0"]),
    "extent as text": (binding(dynamic=("tokens",), specialize={"hidden": ("384",)}), ["hidden", "'384'"]),
    "dtype unknown": (binding(dynamic=("tokens",), specialize=HIDDEN | {"T": ("float61",)}), ["T", "one of: float32, float16"]),
    "attribute kind": (binding(dynamic=("tokens",), specialize=HIDDEN | {"eps": (1,)}), ["eps", "write 1.0"]),
    "parameter for nothing": (
        binding(dynamic=("tokens",), specialize=HIDDEN, parameters={"H": "hiden"}), ["'hiden'", "'hidden'"],
    ),
    "parameter and constant": (
        binding(dynamic=("tokens",), specialize=HIDDEN, parameters={"H": "hidden"}, constants={"H": 1}), ["H"],
    ),
    "constant for an axis": (binding(dynamic=("tokens",), specialize=HIDDEN, constants={"hidden": 1}), ["hidden"]),
    "constant for a tensor": (binding(dynamic=("tokens",), specialize=HIDDEN, constants={"x": 1}), ["x"]),
    "a product without end": (
        binding(specialize={"hidden": tuple(range(1, 101)), "tokens": tuple(range(1, 101))}), ["20000", "dynamic"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_a_binding_that_contradicts_its_operator_names_the_word(wrong, words):
    with pytest.raises(BindingError) as caught:
        expand(wrong, contract())
    assert "pkg.kernels:rms" in caught.value.where
    assert caught.value.next_step
    for word in words:
        assert word in str(caught.value)


def test_an_attribute_without_default_must_be_specialized():
    bare = contract(attributes=(Attribute(name="eps", kind="float"),))
    with pytest.raises(BindingError, match="eps has no default"):
        expand(binding(dynamic=("tokens",), specialize=HIDDEN), bare)
