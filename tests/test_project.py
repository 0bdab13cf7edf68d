"""tilegate.toml: every slip is told with the file, the key and the mend."""

import tomllib

import msgspec
import pytest

from tilegate.build.project import EXAMPLE, load_project
from tilegate.errors import ProjectError
from tilegate.records.closure import Binding
from tilegate.records.policy import Density, Policy
from tilegate.records.project import Project


def load(folder, text):
    (folder / "tilegate.toml").write_text(text)
    return load_project(folder)


def test_a_full_project_is_read(tmp_path):
    project = load(
        tmp_path,
        """
        operators = ["pkg.ops"]
        kernels = ["pkg.kernels"]
        targets = ["cpu:x86-64-v3", "cpu:x86-64-v4"]

        [policy]
        density = "exact"
        min_passes = 3

        [[kernel]]
        operator = "pkg.ops:rms_norm"
        factory = "flash.norm:rms"
        dynamic = ["tokens"]
        specialize = { hidden = [384, 768], T = "float32", eps = 1e-6 }
        constants = { threads = 128 }
        """,
    )
    assert project.policy == Policy(density=Density.EXACT, min_passes=3)
    assert project.kernel[0].binding() == Binding(
        operator="pkg.ops:rms_norm",
        factory="flash.norm:rms",
        kernel="rms",
        dynamic=("tokens",),
        specialize={"hidden": (384, 768), "T": ("float32",), "eps": (1e-6,)},
        constants={"threads": 128},
    )


def test_a_short_project_has_defaults(tmp_path):
    project = load(tmp_path, 'operators = ["pkg.ops"]\n')
    assert project.targets == ("cpu:x86-64-v3",)
    assert project.policy is msgspec.UNSET


def test_a_missing_file_says_what_to_create_and_that_works(tmp_path):
    with pytest.raises(ProjectError) as caught:
        load_project(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert caught.value.next_step.endswith(EXAMPLE)
    assert len(caught.value.next_step.split("\n\n", 1)[1].splitlines()) == 4
    assert load(tmp_path, EXAMPLE) == msgspec.convert(tomllib.loads(EXAMPLE), Project)


WRONG = {
    "no TOML": ("operators = [1 2]", ["TOML", "line 1"]),
    "unknown key": ('operaters = ["a"]', ["operaters", "'operators'"]),
    "unknown key of policy": ('operators = ["a"]\n[policy]\nmin_pases = 1', ["policy.min_pases", "'min_passes'"]),
    "unknown key of a kernel": (
        'operators = ["a"]\n[[kernel]]\noperator = "a:f"\nfactory = "b:g"\ndynamc = ["n"]',
        ["kernel[0].dynamc", "'dynamic'"],
    ),
    "nothing": ("", ["operators"]),
    "a number as text": (
        'operators = ["a"]\n[policy]\nmin_passes = "8"', ["policy.min_passes is a string", "a whole number"],
    ),
    "a kernel without its factory": (
        'operators = ["a"]\n[[kernel]]\noperator = "a:f"', ["the key factory of kernel[0] is missing", "give factory a value"],
    ),
    "no operators": ("operators = []", ["operators is empty"]),
    "operators as text": ('operators = "a"', ["operators is a string, where a list belongs", "an example"]),
    "a path for a module": ('operators = ["pkg/ops.py"]', ["'pkg/ops.py' is a file", '"pkg.ops"']),
    "a function for a module": ('operators = ["a"]\nkernels = ["a:f"]', ["'a:f'", "import name"]),
    "a module for a function": (
        'operators = ["a"]\n[[kernel]]\noperator = "a.f"\nfactory = "b:g"', ["'a.f'", "package.module:function"],
    ),
    "a kernel that names nothing": (
        'operators = ["a"]\n[[kernel]]\noperator = "a:f"\nfactory = "b:g"\nkernel = "fast g"', ["a:f", "identifiers"],
    ),
    "a dynamic axis that names nothing": (
        'operators = ["a"]\n[[kernel]]\noperator = "a:f"\nfactory = "b:g"\ndynamic = ["n m"]', ["a:f", "identifiers"],
    ),
    "a number that is none": (
        'operators = ["a"]\n[[kernel]]\noperator = "a:f"\nfactory = "b:g"\nspecialize = {eps = nan}', ["a:f", "finite"],
    ),
    "a date among the values": (
        'operators = ["a"]\n[[kernel]]\noperator = "a:f"\nfactory = "b:g"\nspecialize = {n = 2020-01-01}', ["n"],
    ),
    "kernel as one table": ('operators = ["a"]\n[kernel]\noperator = "a:f"', ["kernel is a table", "[[kernel]]"]),
    "a device for a target": ('operators = ["a"]\ntargets = ["cpu:native"]', ["cpu:native", "cpu:x86-64-v3"]),
    "a density that is none": ('operators = ["a"]\n[policy]\ndensity = "all"', ["policy.density is 'all'", "exact, inferred"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_a_slip_is_told_with_the_file_and_the_mend(tmp_path, text, words):
    with pytest.raises(ProjectError) as caught:
        load(tmp_path, text)
    assert caught.value.where == str(tmp_path / "tilegate.toml")
    assert caught.value.next_step
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_no_text_is_told(tmp_path):
    (tmp_path / "tilegate.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProjectError, match="cannot be read"):
        load_project(tmp_path)
