"""What a library would do by being opened is seen in its bytes, before anyone opens it."""

import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate.build.elf import objections

PLAIN = """
#include <math.h>
static double table[] = {1.0, 2.0};
double *where = table;
double root(double x) { return sqrt(x) + *where; }
"""
NOT_WHOLE = ("it is not a whole ELF64 shared library",)
OURS = ("-shared", "-fPIC", "-nostartfiles", "-Wl,-z,defs", "-Wl,-z,now")


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elf")

    def link(text, *flags, name="kernel.so", usual=OURS):
        (folder / "kernel.c").write_text(text)
        command = ["gcc", *usual, "-o", name, "kernel.c", "-L.", *flags, "-lm"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return (folder / name).read_bytes()

    return link


@pytest.fixture(scope="module")
def plain(linked):
    return linked(PLAIN)


def test_code_data_and_plain_relocations_are_not_objected_to(linked, plain):
    assert objections(plain) == ()
    assert objections(linked(PLAIN, "-Wl,-s", "-Wl,--build-id=none", "-Wl,--gc-sections")) == ()
    assert objections(linked("int answer(void) { return 42; }")) == ()


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("constructors", "__attribute__((constructor)) void first(void) {}"),
        ("destructors", "__attribute__((destructor)) void last(void) {}"),
        ("an init function", "void _init(void) {}"),
        ("a fini function", "void _fini(void) {}"),
    ],
)
def test_code_that_runs_at_opening_or_closing_is_seen(linked, what, text):
    assert objections(linked(PLAIN + text)) == (f"it has {what}",)


def test_the_start_files_of_the_c_runtime_are_seen(linked):
    found = objections(linked(PLAIN, usual=("-shared", "-fPIC")))
    assert {"it has constructors", "it has destructors"} <= set(found)


@pytest.mark.parametrize(
    ("what", "flags"),
    [
        ("an RPATH", ("-Wl,--disable-new-dtags", "-Wl,-rpath,/opt/elsewhere")),
        ("a RUNPATH", ("-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN")),
        ("an audit library", ("-Wl,--audit,audit.so",)),
        ("a filter library", ("-Wl,-F,other.so",)),
        ("an auxiliary library", ("-Wl,-f,other.so",)),
    ],
)
def test_code_that_would_be_looked_for_elsewhere_is_seen(linked, what, flags):
    assert f"it has {what}" in objections(linked(PLAIN, *flags))


def test_a_library_beside_libc_and_libm_is_named(linked):
    linked("int helper(void) { return 1; }", name="libacmehelper.so")
    text = "int helper(void); int call(void) { return helper(); }"
    assert objections(linked(text, "-lacmehelper")) == ("it needs libacmehelper.so",)


RESOLVED = "static int two(void) { return 2; }\nstatic int (*pick(void))(void) { return two; }\n"
CALLED = 'int chosen(void) __attribute__((ifunc("pick")));\nint call(void) { return chosen(); }\n'


@pytest.mark.parametrize("visibility", ["hidden", "default"])
def test_an_indirect_function_whose_resolver_runs_at_opening_is_seen(linked, visibility):
    text = f'{RESOLVED}__attribute__((visibility("{visibility}")))\n{CALLED}'
    assert objections(linked(text)) == ("it has indirect functions",)


def test_an_indirect_function_in_a_table_of_data_is_seen(linked):
    text = f"{RESOLVED}{CALLED}int (*table[])(void) = {{chosen}};"
    assert objections(linked(text)) == ("it has indirect functions",)


def test_every_objection_is_told_once(linked):
    text = f"{PLAIN}{RESOLVED}{CALLED}__attribute__((constructor)) void first(void) {{}}"
    found = objections(linked(text, "-Wl,-rpath,/opt"))
    assert len(found) == len(set(found)) == 3


@given(data=st.data())
def test_a_file_that_is_cut_short_is_no_library(plain, data):
    """Every prefix of a library but itself is objected to."""
    size = data.draw(st.integers(0, len(plain) - 1) | st.sampled_from([0, 63, len(plain) - 1]))
    assert objections(plain[:size]) == NOT_WHOLE


@pytest.mark.parametrize("kind", ["executable", "object", "32 bit", "big endian"])
def test_another_kind_of_file_is_no_library(linked, plain, kind):
    if kind == "executable":
        data = linked("int main(void) { return 0; }", name="program", usual=("-no-pie",))
    elif kind == "object":
        data = linked(PLAIN, name="kernel.o", usual=("-c",))
    else:
        place, byte = {"32 bit": (4, 1), "big endian": (5, 2)}[kind]
        data = plain[:place] + bytes([byte]) + plain[place + 1 :]
    assert objections(data) == NOT_WHOLE


@given(st.binary(max_size=300))
def test_bytes_that_are_no_library_never_pass(data):
    """Whatever is not an ELF file is objected to, and nothing raises."""
    assert objections(data) == NOT_WHOLE
    assert objections(b"\x7fELF\x02\x01" + data) == NOT_WHOLE


NUMBERS = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)


@given(data=st.data())
def test_a_damaged_library_never_raises(plain, data):
    """Any eight bytes of headers and tables replaced: a verdict, and never an exception."""
    place = 8 * data.draw(st.integers(0, len(plain) // 8 - 1))
    damaged = bytearray(plain)
    struct.pack_into("<Q", damaged, place, data.draw(NUMBERS))
    assert all(isinstance(one, str) for one in objections(bytes(damaged)))


DYNAMIC = 2


def dynamic_header(library):
    """File offset of the program header of the dynamic section, and that section's place and size."""
    header = next(at for at in range(64, 1024, 56) if struct.unpack_from("<I", library, at)[0] == DYNAMIC)
    return header, *struct.unpack_from("<Q16xQ", library, header + 8)


@given(data=st.data())
def test_a_damaged_dynamic_section_never_raises(plain, data):
    """The same for the entries that are read, one tag or value at a time."""
    _, offset, size = dynamic_header(plain)
    damaged = bytearray(plain)
    place = offset + 8 * data.draw(st.integers(0, size // 8 - 1))
    struct.pack_into("<Q", damaged, place, data.draw(NUMBERS | st.integers(0, 40)))
    assert all(isinstance(one, str) for one in objections(bytes(damaged)))


def test_a_segment_list_without_a_dynamic_section_is_no_library(plain):
    header, _, _ = dynamic_header(plain)
    assert objections(plain[:header] + b"\0\0\0\0" + plain[header + 4 :]) == NOT_WHOLE
    assert objections(plain[:56] + b"\0\0" + plain[58:]) == NOT_WHOLE


def test_the_dynamic_section_is_read_where_the_loader_reads_it(linked, plain):
    """A second, harmless one at the file offset that the header names hides nothing."""
    shady = bytearray(linked(PLAIN, "-Wl,-rpath,/opt"))
    header, _, size = dynamic_header(shady)
    end = len(shady) - len(shady) % 8 + 8
    harmless = plain[dynamic_header(plain)[1] :][:size]
    shady = shady.ljust(end, b"\0") + harmless
    struct.pack_into("<Q", shady, header + 8, end)
    assert objections(bytes(shady)) == ("it has a RUNPATH",)
