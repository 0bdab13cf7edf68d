"""The digest of a reference: every edit that could change a result changes it, and nothing else does."""

import importlib
import importlib.util
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.written import SERIAL, imported
from tilegate.build.closure import reach
from tilegate.errors import ContractError
from tilegate.records.canonical import digest_of
from tilegate.runtime.reference import reference_digest
from tilegate.sandbox import importer

OPS = """
    import math
    import torch
    from . import config
    from .parts.norms import mean_square as ms
    from .config import EPS

    def unreached(x):
        return x

    def reference(x, weight, eps=EPS):
        "Root mean square."
        scale = torch.rsqrt(ms(x) + eps)  # inside
        return (x * scale * weight).to(config.DTYPE) * math.sqrt(config.GAIN)
"""

PACKAGE = {
    "__init__.py": "",
    "ops.py": OPS,
    "config.py": """
        import torch
        EPS = 1e-6
        GAIN = 4
        DTYPE = torch.float32
        UNUSED = 1
    """,
    "parts/__init__.py": "",
    "parts/norms.py": """
        POWER = 2

        class Mean:
            axis = -1

            def __call__(self, x):
                return power(x).mean(self.axis, keepdim=True)

        def power(x):
            return x ** POWER

        def mean_square(x):
            return Mean()(x)
    """,
}


@pytest.fixture
def package(tmp_path):
    """`package({"ops.py": edited}) -> digest` of a copy under a folder and name of its own."""

    def digest(files=None, *, name=None):
        folder = tmp_path / f"somewhere{next(SERIAL)}"
        with imported(folder, PACKAGE | (files or {}), "ops", name=name) as ops:
            return reference_digest(ops.reference)

    return digest


def edited(path, old, new):
    assert old in PACKAGE[path]
    return {path: PACKAGE[path].replace(old, new)}


SAME = {
    "as it is": {},
    "a comment outside": edited("ops.py", "import math", "import math  # a comment"),
    "an unreached function": edited("ops.py", "return x\n", "return x + 1\n"),
    "an unreached constant": edited("config.py", "UNUSED = 1", "UNUSED = 2"),
    "the order of imports": {
        "ops.py": OPS.replace("import math\n    import torch", "import torch\n    import math")
    },
    "lines above": edited("ops.py", "\n    import math", "\n\n\n\n    import math"),
    "what the package runs on import": {"__init__.py": "from . import config\nfrom .parts import norms\n"},
    "the spelling of an equal constant": edited("config.py", "1e-6", "0.000001"),
}


@pytest.mark.parametrize("files", SAME.values(), ids=SAME)
def test_what_cannot_change_a_result_leaves_the_digest_alone(package, files):
    assert package(files) == package()


CHANGED = {
    "the body": edited("ops.py", "x * scale * weight", "x * weight * scale"),
    "a comment inside": edited("ops.py", "# inside", "# within"),
    "the docstring": edited("ops.py", "Root mean", "The root mean"),
    "the signature": edited("ops.py", "eps=EPS", "eps=1e-5"),
    "a constant behind a default": edited("config.py", "EPS = 1e-6", "EPS = 1e-5"),
    "a constant behind a module": edited("config.py", "GAIN = 4", "GAIN = 4.0"),
    "a dtype": edited("config.py", "torch.float32", "torch.float16"),
    "a function two modules away": edited("parts/norms.py", "x ** POWER", "x * POWER"),
    "a constant two modules away": edited("parts/norms.py", "POWER = 2", "POWER = True"),
    "a class attribute": edited("parts/norms.py", "axis = -1", "axis = 0"),
    "a method": edited("parts/norms.py", "keepdim=True", "keepdim=False"),
    "another function of the standard library": edited("ops.py", "import math\n", "import cmath as math\n"),
    "a constant that is gone": edited("config.py", "GAIN = 4", "GAINS = 4"),
    "a function that is replaced after its def": {
        "parts/norms.py": PACKAGE["parts/norms.py"] + "\n        def power(x):\n            return x * x\n"
    },
}


@pytest.mark.parametrize("files", CHANGED.values(), ids=CHANGED)
def test_an_edit_that_could_change_a_result_is_seen(package, files):
    assert package(files) != package()


graphs = st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=6, max_size=6)


@settings(max_examples=40, deadline=None)
@given(calls=graphs, homes=st.lists(st.integers(0, 2), min_size=6, max_size=6), edit=st.integers(0, 5))
def test_exactly_the_reached_functions_count(tmp_path_factory, calls, homes, edit):
    """An edit of function j changes the digest of function 0 if and only if 0 reaches j."""
    reached, pending = {0}, [0]
    while pending:
        new = set(calls[pending.pop()]) - reached
        reached |= new
        pending += new

    def digest(constants):
        files = {"__init__.py": ""}
        for home in range(3):
            lines = ["from . import m0, m1, m2"]
            for i in [i for i in range(6) if homes[i] == home]:
                parts = [f"m{homes[j]}.f{j}(x)" for j in calls[i]]
                lines += [f"def f{i}(x):", f"    return x + {' + '.join([*parts, str(constants[i])])}"]
            files[f"m{home}.py"] = "\n".join(lines) + "\n"
        with imported(tmp_path_factory.mktemp("graph"), files, f"m{homes[0]}") as module:
            return reference_digest(module.f0)

    before = digest([0] * 6)
    after = digest([int(i == edit) for i in range(6)])
    assert (before != after) == (edit in reached)


@pytest.mark.parametrize(
    "source",
    [
        "def reference(x):\n    act = 1\n    return x.cfg + act\nimport torch\ncfg = act = torch.ones(1)\n",
        "import logging\nlog = logging.getLogger(__name__)\ndef reference(x: log) -> log:\n    return x\n",
        "import torch\ndef reference(x):\n    return [t for t in x]\nt = torch.ones(1)\n",
    ],
    ids=["attributes and locals", "annotations", "comprehensions"],
)
def test_a_name_that_only_looks_like_a_global_is_not_reached(package, source):
    assert package({"ops.py": source}).startswith("sha256:")


def test_a_file_edited_since_import_is_not_taken_for_what_runs(tmp_path, monkeypatch):
    file = tmp_path / "edited_flat.py"
    file.write_text("def reference(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("edited_flat")
    file.write_text("\n\nimport math\n\ndef reference(x):\n    return x + 1\n")
    with pytest.raises(ContractError, match="not found"):
        reference_digest(module.reference)


def test_a_script_has_the_digest_of_the_module_it_would_be(tmp_path):
    (tmp_path / "script_ops.py").write_text(
        "import sys\nfrom tilegate.runtime.reference import reference_digest\nEPS = 1\n"
        "def reference(x):\n    return x + EPS\n"
        "if __name__ == '__main__':\n    print(reference_digest(reference))\n"
    )
    printed = subprocess.run(
        [sys.executable, "script_ops.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.strip()
    spec = importlib.util.spec_from_file_location("script_ops_again", tmp_path / "script_ops.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert printed == reference_digest(module.reference)


def test_optimized_bytecode_has_the_same_digest(tmp_path):
    (tmp_path / "o_ops.py").write_text(
        "from tilegate.runtime.reference import reference_digest\nLIMIT = 3\n"
        "def reference(x):\n    assert x.ndim < LIMIT\n    return x\n"
        "print(reference_digest(reference))\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, *flags, "o_ops.py"], cwd=tmp_path, capture_output=True, check=True
        ).stdout
        for flags in ([], ["-OO"])
    }
    assert len(digests) == 1


def test_a_reviewed_file_in_memory_has_the_digest_of_the_file_on_disk(package, tmp_path):
    """Home digests what the job imported from memory; the serving machine digests what lies on its disk."""
    on_disk = package(name="in_memory_pkg")
    folder = next(p.parent for p in tmp_path.glob("*/in_memory_pkg"))
    files, contents = reach(["in_memory_pkg.ops"], [folder], where="test")
    assert {digest_of(data) for data in contents.values()} == {file.digest for file in files}
    importer.install(files, contents)
    try:
        module = importlib.import_module("in_memory_pkg.ops")
        assert module.__file__.startswith(importer.ROOT)
        assert reference_digest(module.reference) == on_disk
    finally:
        sys.meta_path.pop(0)
        for known in [m for m in sys.modules if m.partition(".")[0] == "in_memory_pkg"]:
            del sys.modules[known]
