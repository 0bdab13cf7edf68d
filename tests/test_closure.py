"""A closure holds every file that a kernel reaches, byte for byte, and nothing from outside its roots."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegate.build.closure import MAX_SOURCE_BYTES, collect, reach, read_source
from tilegate.errors import BindingError
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.closure import Binding, Closure

FILES = {
    "pkg/__init__.py": "",
    "pkg/ops.py": "import torch\nfrom .shared.norms import mean\nfrom pkg import config\n",
    "pkg/config.py": "import json\n",
    "pkg/kernels/__init__.py": "from . import tiles as t\n",
    "pkg/kernels/rms.py": "def rms():\n    from ..shared import layout\nimport tilelang, other\n",
    "pkg/kernels/tiles.py": "",
    "pkg/shared/__init__.py": "",
    "pkg/shared/norms.py": "from .layout import *\n",
    "pkg/shared/layout.py": "",
    "pkg/unreached.py": "raise SystemExit\n",
    "other.py": "import pkg.unreached_too\n",
    "torch.py": "raise SystemExit\n",
    "json.py": "raise SystemExit\n",
    "pkg/unreached_too.py": "",
}
REACHED = [
    "other", "pkg", "pkg.config", "pkg.kernels", "pkg.kernels.rms", "pkg.kernels.tiles", "pkg.ops",
    "pkg.shared", "pkg.shared.layout", "pkg.shared.norms", "pkg.unreached_too",
]  # fmt: skip
BINDING = Binding(operator="pkg.ops:rms_norm", factory="pkg.kernels.rms:rms", kernel="rms")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def modules(root, *starts, more=()):
    files, _ = reach(starts, [root, *more], where="test")
    return [file.module for file in files]


def found(module, *roots):
    """The text of a module and whether it is a package; None where there is none."""
    try:
        return read_source(module, roots, where="test")
    except BindingError:
        return None


def test_the_closure_is_what_factory_and_operator_reach(tmp_path):
    root = write(tmp_path, FILES)
    closure, contents = collect(BINDING, [root])
    assert [file.module for file in closure.files] == REACHED
    assert not {"pkg.kernels.rms", "pkg.ops", "torch_", "other"} & set(sys.modules)
    for file in closure.files:
        data = (root / file.path).read_bytes()
        assert contents[file.digest] == data
        assert file.digest == digest_of(data)
        assert file.size == len(data)
        assert file.is_package == file.path.endswith("__init__.py")
    assert decode(Closure, encode(closure), where="test") == closure


def test_a_closure_is_the_same_wherever_it_lies(tmp_path):
    here, there = write(tmp_path / "a", FILES), write(tmp_path / "elsewhere/b", FILES)
    assert collect(BINDING, [here]) == collect(BINDING, [there])


@settings(max_examples=30, deadline=None)
@given(edges=st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=7, max_size=7), data=st.data())
def test_exactly_the_reached_files_are_in_it(tmp_path_factory, edges, data):
    """An edit of module j changes the closure's digest if and only if the start module reaches j."""
    styles = [
        "import p.m{}",
        "from p import m{}",
        "from . import m{}",
        "from .m{} import x",
        "import p.m{} as q",
    ]
    lines = [[data.draw(st.sampled_from(styles)).format(j) for j in row] for row in edges]
    edit = data.draw(st.integers(0, 6))
    reached, pending = {0}, [0]
    while pending:
        new = set(edges[pending.pop()]) - reached
        reached |= new
        pending += new
    root = tmp_path_factory.mktemp("closure")
    write(root, {"p/__init__.py": ""} | {f"p/m{i}.py": "\n".join(row) for i, row in enumerate(lines)})
    start = Binding(operator="p.m0:f", factory="p.m0:g", kernel="g")
    before, _ = collect(start, [root])
    assert {file.module for file in before.files} == {"p"} | {f"p.m{i}" for i in reached}
    (root / f"p/m{edit}.py").write_text("\n".join([*lines[edit], "# edited"]))
    after, _ = collect(start, [root])
    assert (before.digest != after.digest) == (edit in reached)


def test_of_installed_packages_only_the_one_that_is_bound_is_taken(tmp_path):
    project = write(tmp_path / "project", {"ops.py": "import numeric\nimport flash\n"})
    site = write(
        tmp_path / "site",
        {
            "flash/__init__.py": "from .kernel import *\n",
            "flash/kernel.py": "import numeric, ops\n",
            "numeric/__init__.py": "",
        },
    )
    bound = Binding(operator="ops:f", factory="flash.kernel:g", kernel="g")
    closure, _ = collect(bound, [project, site])
    assert [file.module for file in closure.files] == ["flash", "flash.kernel", "ops"]


def test_the_project_comes_before_what_is_installed(tmp_path):
    project = write(tmp_path / "project", {"flash/__init__.py": "# mine\n"})
    site = write(tmp_path / "site", {"flash/__init__.py": "", "flash/kernel.py": ""})
    assert found("flash", project, site) == (b"# mine\n", True)
    assert found("flash.kernel", project, site) is None, "Python would not look there either"


def test_a_package_comes_before_a_module_as_python_has_it(tmp_path):
    write(tmp_path, {"a/__init__.py": "# a", "a.py": "", "b.py": "", "b/c.py": "", "d/e.py": "# d.e"})
    assert found("a", tmp_path) == (b"# a", True)
    assert found("b.c", tmp_path) is None
    assert found("d.e", tmp_path) == (b"# d.e", False)
    assert found("d", tmp_path) is None


def test_a_folder_without_init_is_a_package_too(tmp_path):
    write(tmp_path, {"d/e.py": "from . import f\nfrom d import g\n", "d/f.py": "", "d/g.py": ""})
    assert modules(tmp_path, "d.e") == ["d.e", "d.f", "d.g"]


@pytest.mark.parametrize("module", ["..secret", "a/../../secret", "a..b", "", "/etc/passwd", "a.b c"])
def test_a_name_that_is_no_module_finds_no_file(tmp_path, module):
    write(tmp_path, {"secret.py": "", "root/a/__init__.py": ""})
    assert found(module, tmp_path / "root") is None


def test_a_pyc_never_stands_in_for_a_source(tmp_path):
    write(tmp_path, {"a/__init__.py": "", "a/b.pyc": "", "a/__pycache__/b.cpython-311.pyc": ""})
    with pytest.raises(BindingError, match=r"no source of the module a\.b"):
        modules(tmp_path, "a.b")


@pytest.mark.parametrize("link", ["a/b.py", "a"])
def test_a_link_out_of_the_root_is_refused(tmp_path, link):
    root = write(tmp_path / "root", {"z.py": ""})
    outside = write(tmp_path / "outside", {"a/__init__.py": "", "a/b.py": "SECRET = 1\n"})
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(outside / link)
    with pytest.raises(BindingError, match="inside the folder"):
        modules(root, "a.b")


def test_a_link_inside_the_root_is_read_as_what_it_names(tmp_path):
    root = write(tmp_path, {"a.py": "x = 1\n"})
    (root / "b.py").symlink_to("a.py")
    files, _ = reach(["b"], [root], where="test")
    assert [(file.module, file.path) for file in files] == [("b", "b.py")]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, make):
    make(tmp_path / "a.py")
    with pytest.raises(BindingError, match="regular file"):
        modules(tmp_path, "a")


def test_a_file_nobody_would_review_is_refused(tmp_path):
    write(tmp_path, {"a.py": "#" * MAX_SOURCE_BYTES, "b.py": "#" * (MAX_SOURCE_BYTES + 1)})
    assert modules(tmp_path, "a") == ["a"]
    with pytest.raises(BindingError, match="bytes") as caught:
        modules(tmp_path, "b")
    assert "person" in caught.value.why


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("pkg.opps", ["pkg.opps", "did you mean 'pkg.ops'?"]),
        ("pkgg.ops", ["pkgg.ops", "did you mean 'pkg.ops'?"]),
        ("pkg.kernels.rmz", ["did you mean 'pkg.kernels.rms'?"]),
        ("nothing_like_it", ["known here: other, pkg"]),
        ("pkg.ops.rms_norm", ["pkg.ops.rms_norm", "pkg.ops:rms_norm"]),
    ],
)
def test_a_missing_module_is_named_with_the_nearest_that_is_there(tmp_path, start, words):
    root = write(tmp_path, {k: v for k, v in FILES.items() if k not in ("torch.py", "json.py")})
    with pytest.raises(BindingError) as caught:
        modules(root, start)
    for word in [*words, str(root), "test"]:
        assert word in str(caught.value)


def test_a_missing_import_names_the_line_that_wants_it(tmp_path):
    write(tmp_path, {"pkg/__init__.py": "", "pkg/a.py": "\nfrom .bb import x\n", "pkg/b.py": ""})
    with pytest.raises(BindingError, match=r"no source of the module pkg\.bb") as caught:
        modules(tmp_path, "pkg.a")
    assert caught.value.where == "pkg.a, line 2"


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from ._version import v\nexcept ImportError:\n    v = ''\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pkg._types\n",
        "from pkg import attribute\n",
    ],
)
def test_an_import_that_may_be_absent_is_no_error(tmp_path, text):
    write(tmp_path, {"pkg/__init__.py": "", "pkg/a.py": text})
    assert modules(tmp_path, "pkg.a") == ["pkg", "pkg.a"]


@pytest.mark.parametrize("module", ["torch.nn", "tilelang.jit", "tilegate.api", "json", "os.path"])
def test_the_toolchain_and_python_are_no_source_closures(tmp_path, module):
    with pytest.raises(BindingError, match="toolchain"):
        modules(tmp_path, module)


@pytest.mark.parametrize(
    ("text", "line"), [("def f(:\n", 1), ("\n\nreturn = 1\n", 3), ("from .. import x\n", 1)]
)
def test_a_file_that_is_no_python_names_its_line(tmp_path, text, line):
    write(tmp_path, {"a.py": text})
    with pytest.raises(BindingError) as caught:
        modules(tmp_path, "a")
    assert caught.value.where == f"a, line {line}"
