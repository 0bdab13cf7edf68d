"""What `import tilegate` brings with it: next to nothing, until a release is used."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType

import tilegate
from tilegate import api

HEAVY = {
    "torch",
    "numpy",
    "tvm_ffi",
    "cryptography",
    "tilelang",
    "tvm",
    "click",
    "rich",
    "sqlite3",
    "subprocess",
}


def brought_by(statement):
    """Modules that one statement loads in a fresh process, besides what Python itself had."""
    text = (
        f"import json, sys; before = set(sys.modules); {statement};"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def roots(modules):
    return {module.partition(".")[0] for module in modules}


def test_importing_tilegate_loads_neither_torch_nor_a_tool():
    found = brought_by("import tilegate")
    assert "tilegate.api" in found
    assert HEAVY & roots(found) == set()
    allowed = ("tilegate.records", "tilegate.rules", "tilegate.runtime", "tilegate.store", "tilegate.trust")
    alone = {"tilegate", "tilegate.api", "tilegate.errors", "tilegate.library", "tilegate.processor"}
    assert [
        m for m in found if m.startswith("tilegate") and not m.startswith(allowed) and m not in alone
    ] == []


def test_declaring_an_operator_and_asking_for_it_loads_nothing_more(tmp_path):
    (tmp_path / "ops.py").write_text(
        "import tilegate\n"
        "@tilegate.operator(inputs={'x': 'float32[n]'}, outputs={'y': 'float32[n]'}, served=[{'n': 4}])\n"
        "def twice(x):\n    return 2 * x\n"
    )
    ask = "import ops, tilegate; ops.twice(3); ops.twice.explain(3); tilegate.stats(); tilegate.preflight()"
    found = brought_by(f"sys.path.insert(0, {str(tmp_path)!r}); {ask}; tilegate.use(None)")
    assert HEAVY & roots(found) == set()


def test_all_is_sorted_complete_and_true():
    public = {n for n, v in vars(tilegate).items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    assert list(tilegate.__all__) == sorted(public)
    assert tilegate.__all__ == api.__all__
    assert all(getattr(tilegate, name) is getattr(api, name) for name in tilegate.__all__)
