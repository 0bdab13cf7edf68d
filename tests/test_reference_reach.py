"""What a reference reaches through decorators, tables and operators counts; what has no text is refused."""

import importlib
import sys

import pytest

from tests.written import SERIAL, imported
from tilegate.errors import ContractError
from tilegate.runtime.reference import reference_digest

CONFIG = {"__init__.py": "", "config.py": "EPS = 1e-6\n"}


@pytest.fixture
def package(tmp_path):
    """`package({"ops.py": text}) -> digest` of its `reference`."""

    def digest(files):
        with imported(tmp_path / f"somewhere{next(SERIAL)}", CONFIG | files, "ops") as ops:
            return reference_digest(ops.reference)

    return digest


@pytest.fixture(autouse=True)
def registry_of_its_own(monkeypatch):
    monkeypatch.setattr("tilegate.runtime.operator.OPERATORS", {})


def test_exchanged_aliases_are_seen(package):
    """The same sources reached under exchanged names are another reference."""
    pair = {"norms.py": "def one(x):\n    return x + 1\n\ndef two(x):\n    return x + 2\n"}
    ops = "from .norms import {} as a, {} as b\n\ndef reference(x):\n    return a(x) / b(x)\n"
    assert package(pair | {"ops.py": ops.format("one", "two")}) != package(
        pair | {"ops.py": ops.format("two", "one")}
    )


WRAPPED = """
    import functools
    import torch

    def scaled(by):
        def wrap(function):
            @functools.wraps(function)
            def wrapper(x):
                return function(x) * by
            return wrapper
        return wrap

    @scaled(2)
    def double(x):
        return x

    @scaled(3)
    def triple(x):
        return x

    @torch.no_grad()
    def reference(x):
        return double(x) - triple(x)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@scaled(3)", "@scaled(4)"),
        ("function(x) * by", "function(x) + by"),
        ("double(x) - triple(x)", "triple(x) - double(x)"),
        ("@torch.no_grad()", "@torch.enable_grad()"),
        ("return x\n\n    @torch", "return x + 1\n\n    @torch"),
    ],
    ids=["closure cell", "wrapper", "order", "decorator of another package", "wrapped function"],
)
def test_decorators_hide_nothing(package, old, new):
    assert old in WRAPPED
    assert package({"ops.py": WRAPPED}) != package({"ops.py": WRAPPED.replace(old, new)})


TABLES = """
    import functools

    @functools.lru_cache
    def gain():
        return 2

    KINDS = {"a": [1, 2.5], "b": (gain, None)}
    NAMES = frozenset({"x", "y", "z"})
    HALF = functools.partial(max, 0.5)

    def reference(x):
        def inner(y):
            return y * KINDS["a"][0]
        return HALF(inner(x) if "x" in NAMES else [z for z in x], gain())
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.5", "2.25"),
        ("return 2", "return 3"),
        ('"z"', '"w"'),
        ("(max, 0.5)", "(min, 0.5)"),
        ('"b": (', '"c": ('),
    ],
)
def test_tables_and_caches_are_followed(package, old, new):
    assert package({"ops.py": TABLES}) != package({"ops.py": TABLES.replace(old, new)})


def test_a_set_has_one_digest_whatever_its_order(package):
    assert package({"ops.py": TABLES}) == package(
        {"ops.py": TABLES.replace('"x", "y", "z"', '"z", "x", "y"')}
    )


OPERATORS = """
    from tilegate.runtime.operator import OPERATORS, operator, operator as op
    OPERATORS.clear()

    def above(function):
        return function

    @operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, served=[{"n": 1}])
    def inner(x):
        return x + 1

    @above
    @op(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, served=[{"n": 1}])
    def outer(x):
        return inner(x) * 2 if x.ndim else outer(x)

    reference = outer.reference
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("x + 1", "x + 2", False),
        ("    def above", "    # a comment\n    def above", True),
        ('"n": 1}])\n    def outer', '"n": 2}])\n    def outer', True),
        ("    @above\n", "", True),
        ('served=[{"n": 1}])\n    def inner', 'values={"x": (0, 1)})\n    def inner', False),
    ],
    ids=["its reference", "a comment", "what outer serves", "above the declaration", "the promise of inner"],
)
def test_an_operator_inside_a_reference_counts_with_its_contract(package, old, new, same):
    assert old in OPERATORS
    assert (package({"ops.py": OPERATORS}) == package({"ops.py": OPERATORS.replace(old, new)})) is same


REFUSED = {
    "a lambda": ("act = lambda x: x\ndef reference(x):\n    return act(x)\n", ["act", "def"]),
    "a tensor": (
        "import torch\nW = torch.ones(1)\ndef reference(x):\n    return x * W\n",
        ["W", "torch.Tensor"],
    ),
    "an instance": ("class A: pass\na = A()\ndef reference(x):\n    return a.k\n", ["a in reference", "A"]),
    "a bound method": (
        "class A:\n    def f(s): pass\nf = A().f\ndef reference(x):\n    return f()\n",
        ["f in"],
    ),
    "a builtin method": ("f = [].append\ndef reference(x):\n    return f(x)\n", ["f in", "list"]),
    "an import inside": (
        "def reference(x):\n    from .config import EPS\n    return EPS\n",
        [".config", "top"],
    ),
    "a module as a value": ("from . import config\ndef reference(x):\n    return vars(config)\n", ["config"]),
    "a class in a function": (
        "def make():\n    class A: pass\n    return A\nA = make()\ndef reference(x):\n    return A()\n",
        ["A in reference", "top level"],
    ),
    "a list that holds itself": (
        "L = []\nL.append(L)\ndef reference(x):\n    return L\n",
        ["L in reference"],
    ),
    "code from a string": ("exec('def f(x): return x')\ndef reference(x):\n    return f(x)\n", ["f"]),
    "a default without text": ("def reference(x, k=object()):\n    return x\n", ["default", "object"]),
}


@pytest.mark.parametrize(("source", "words"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_text_is_refused_by_name(package, source, words):
    with pytest.raises(ContractError) as caught:
        package({"ops.py": source})
    assert caught.value.next_step
    for word in words:
        assert word in str(caught.value)


def test_an_edit_in_a_sibling_module_of_a_project_without_packages_is_seen(tmp_path):
    """Modules that are in no package belong together by their folder."""
    texts = {"flat_ops": "import flat_shared\n\ndef op(x):\n    return flat_shared.twice(x)\n"}
    digests = []
    for factor in (2, 3):
        texts["flat_shared"] = f"def twice(x):\n    return {factor} * x\n"
        folder = tmp_path / str(factor)
        folder.mkdir()
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        sys.path.insert(0, str(folder))
        try:
            digests.append(reference_digest(importlib.import_module("flat_ops").op))
        finally:
            sys.path.remove(str(folder))
            for name in texts:
                sys.modules.pop(name)
            importlib.invalidate_caches()
    assert digests[0] != digests[1]
