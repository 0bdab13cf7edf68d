"""kernels.h, and the names that host code may ask for."""

from __future__ import annotations

import re
import subprocess
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.driver import hosts
from tests.driver.hosts import SCALE, SCALE_KERNEL, host, integer, launch, pointer
from tests.driver.standin import kernel
from tilegate.build.kernel_table import (
    LAUNCHER_FILES,
    PROVIDED_PACKED,
    PROVIDED_SYMBOLS,
    PackedCall,
    kernels_header,
    packed_calls,
    seam_faults,
)
from tilegate.records.canonical import decode, encode
from tilegate.records.device import ArgumentKind, DeviceKernel, LaunchParameter


def text_of(name):
    return (resources.files("tilegate.build.launchers") / name).read_text()


def test_every_call_by_name_is_found_with_its_number_of_values():
    assert packed_calls(SCALE) == (PackedCall("__tvm_set_device", 2), PackedCall("body_kernel", 7))


def test_host_code_that_the_launcher_can_answer_has_no_fault():
    assert seam_faults(SCALE, [SCALE_KERNEL]) == ()


def test_a_name_that_nobody_supplies_is_found_when_the_artifact_is_built():
    strange = host(hosts.packed("__tvm_cuda_something_new", integer(1)), launch())
    assert seam_faults(strange, [kernel()]) == ("asks for __tvm_cuda_something_new",)


def test_a_kernel_called_with_another_number_of_values_is_found():
    assert seam_faults(host(launch(pointer("NULL"))), [kernel()]) == (
        "calls body_kernel with 5 values, and it takes 4",
    )


def test_a_kernel_that_is_never_launched_is_found():
    assert seam_faults(SCALE, [SCALE_KERNEL, kernel(name="other")]) == ("never asks for other",)


def test_the_names_in_c_are_the_names_in_python():
    assert set(re.findall(r'\{"(__tvm_\w+)", \w+\}', text_of("packed.h"))) == PROVIDED_PACKED
    assert set(re.findall(r"^#define (TVM\w+)\(", text_of("seam.h"), re.MULTILINE)) == PROVIDED_SYMBOLS


def test_every_file_that_the_launcher_includes_is_one_that_the_build_lays_down():
    made = {"abi.h", "kernels.h"}
    included = {n for f in LAUNCHER_FILES for n in re.findall(r'#include "([\w.]+)"', text_of(f))}
    assert included <= {*LAUNCHER_FILES, *made}


def test_two_kernels_of_one_name_make_no_header():
    with pytest.raises(ValueError, match="name of its own"):
        kernels_header([kernel(), kernel()], b"")


READ_BACK = """
#include <stdio.h>
#include "kernels.h"
int main(void) { fwrite(tg_binary, 1, TG_BINARY_BYTES, stdout); return 0; }
"""


@settings(deadline=None, max_examples=8)
@given(data=st.binary(max_size=70))
def test_the_binary_in_the_header_is_the_binary(tmp_path_factory, data):
    """Compiled, the header holds the very bytes that it was given."""
    folder = tmp_path_factory.mktemp("header")
    (folder / "kernels.h").write_text(kernels_header([SCALE_KERNEL], data))
    (folder / "main.c").write_text(READ_BACK)
    subprocess.run(["gcc", "-O0", "main.c", "-o", "main"], cwd=folder, check=True)
    assert subprocess.run([folder / "main"], check=True, capture_output=True).stdout == data


@pytest.mark.parametrize("kind", ArgumentKind)
def test_a_parameter_takes_what_its_dtype_takes(kind):
    named = {"pointer": 8, "tensor_map": 128, "bool": 1}
    digits = re.search(r"\d+$", kind.value)
    assert kind.size_bytes == (named[kind.value] if digits is None else int(digits[0]) // 8)


kernels = st.builds(
    DeviceKernel,
    name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True),
    arguments=st.lists(st.sampled_from(ArgumentKind), max_size=9).map(tuple),
    launch=st.lists(st.sampled_from(LaunchParameter), unique=True).map(tuple),
    cluster=st.tuples(*[st.integers(1, 16)] * 3),
    cooperative=st.booleans(),
    max_dynamic_shared_bytes=st.integers(0, 2**31 - 1),
)


@given(one=kernels)
def test_a_kernel_survives_being_written(one):
    """decode(encode(k)) == k."""
    assert decode(DeviceKernel, encode(one), where="a test") == one
