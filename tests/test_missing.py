"""A machine that lacks a piece of the sandbox: nothing foreign is run, and one screen says what is missing.

Each machine is made by taking the piece away from a process: a mount over bubblewrap, a namespace that allows no
other, a filter that refuses the call which would set one up.
"""

import ctypes
import errno
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tilegate.errors import SandboxError
from tilegate.records.isolation import Level
from tilegate.sandbox.missing import MENDS, lacking, piece_in
from tilegate.sandbox.syscalls import NUMBERS

SCREEN = 24
PROJECT = 'operators = ["operators"]\nkernels = ["kernels"]\ntargets = ["cpu:x86-64-v2"]\n'
OPERATORS = "open('/tmp/foreign-code-ran', 'w')\n"
KERNELS = "import tilegate\n@tilegate.kernel('operators:twice', dynamic=('n',))\ndef row(n): ...\n"


def refuse(*names, number=errno.ENOSYS):
    """A filter of this process's system calls that refuses some of them, and lets all others run."""
    load, equal, answer = 0x20, 0x15, 0x06
    numbers = [NUMBERS[platform.machine()][name] for name in names]
    lines = [(load, 0, 0, 0)]
    lines += [(equal, len(numbers) - place, 0, value) for place, value in enumerate(numbers)]
    lines += [(answer, 0, 0, 0x7FFF0000), (answer, 0, 0, 0x50000 | number)]
    text = b"".join(struct.pack("<HBBI", *line) for line in lines)
    kept = ctypes.create_string_buffer(text)
    program = struct.pack("<HxxxxxxQ", len(lines), ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, ctypes.get_errno()


def without_namespaces():
    """A user namespace of one user, in which no other may be made."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(0x10000000) != 0:
        sys.exit("no user namespace to forbid them in")
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(line)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def without_bubblewrap():
    """Nothing that can be run lies where bubblewrap would."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) != 0:
        sys.exit("no mounts of one's own here")
    libc.mount(None, b"/", None, ctypes.c_ulong(16384 | (1 << 18)), None)
    for path in ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"):
        if Path(path).exists() and libc.mount(b"/dev/null", path.encode(), None, ctypes.c_ulong(4096), None):
            sys.exit("no mounts of one's own here")


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from tests import test_missing
eval(sys.argv[2], vars(test_missing))
from tilegate.cli import commands
args = sys.argv[3:]
commands(args, prog_name="tilegate")
"""


PATHS = ":".join(
    [str(Path(__file__).parents[1]), *(p for p in sys.path if p.endswith(("site-packages", "src")))]
)


def as_an_ordinary_user():
    """An interpreter, and whom `subprocess` is to run it as."""
    if os.getuid() != 0:
        return sys.executable, {}
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(python).exists():
        pytest.skip("no interpreter that another user may read")
    return python, {"user": 65534, "group": 65534, "extra_groups": []}


def build(folder, taken_away, *words, ordinary=False):
    """`tilegate build` on such a machine: exit code and what stands on the terminal."""
    for name, text in (("tilegate.toml", PROJECT), ("operators.py", OPERATORS), ("kernels.py", KERNELS)):
        (folder / name).write_text(text)
    python, how = as_an_ordinary_user() if ordinary else (sys.executable, {})
    for above in (folder, *folder.parents):
        if above.name.startswith(("pytest", "test_", "popen")):
            above.chmod(0o777)
    command = [python, "-c", SCRIPT, PATHS, taken_away, "build", *words, "-C", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/", **how)
    if "of one's own here" in done.stderr or "to forbid them in" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert not Path("/tmp/foreign-code-ran").exists()
    return done.returncode, done.stderr


def assert_told(told, piece, *, level="full"):
    code, text = told
    assert code == 3, text
    assert f"jobs cannot be isolated as asked ({level}): {piece} is missing" in text
    assert f"next: {MENDS[piece]}" in text
    assert ("--isolation reduced" in text) == (level == "full")
    assert len(text.splitlines()) < SCREEN
    assert "Traceback" not in text


def test_without_bubblewrap_nothing_is_built(tmp_path):
    if os.getuid() != 0:
        pytest.skip("hiding a program takes root")
    assert_told(build(tmp_path, "without_bubblewrap()"), "bubblewrap")


def test_with_user_namespaces_exhausted_nothing_is_built(tmp_path):
    assert_told(build(tmp_path, "without_namespaces()", ordinary=True), "user namespaces")


def test_root_that_can_become_nobody_else_builds_nothing(tmp_path):
    if os.getuid() != 0:
        pytest.skip("not root")
    assert_told(build(tmp_path, "without_namespaces()"), "another user")


@pytest.mark.parametrize("level", ["full", "reduced"])
def test_without_seccomp_nothing_is_built(tmp_path, level):
    told = build(tmp_path, "refuse('seccomp', number=22)", "--isolation", level)
    assert_told(told, "seccomp", level=level)


@pytest.mark.parametrize("level", ["full", "reduced"])
def test_without_landlock_nothing_is_built(tmp_path, level):
    told = build(tmp_path, "refuse('landlock_create_ruleset')", "--isolation", level)
    assert_told(told, "landlock", level=level)


RUN_REDUCED = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from tests import test_missing, test_sandbox
test_missing.without_namespaces()
test_sandbox.run.paths = (test_sandbox.HERE, *sys.argv[1].split(":"))
test_sandbox.run.level = test_sandbox.Level.REDUCED
print(test_sandbox.run("greet", inputs={"name": b"there"}).frames)
"""


def test_without_namespaces_reduced_still_runs():
    """It is for such machines."""
    python, how = as_an_ordinary_user()
    done = subprocess.run(
        [python, "-c", RUN_REDUCED, PATHS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
        **how,
    )
    assert done.stdout == "(('hello', b'there'),)\n", done.stderr


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        ("bwrap: Creating new namespace failed: No space left on device", "user namespaces"),
        ("bwrap: No permissions to create new namespace, likely because ...", "user namespaces"),
        ("bwrap: setting up uid map: Permission denied", "user namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "proc"),
        ("bwrap: Unknown option --disable-userns", "bubblewrap"),
        ("bwrap: Can't find source path /root/venv: Permission denied", "readable interpreter"),
        ("bash: something else", None),
    ],
)
def test_what_bubblewrap_says_is_told_as_the_piece_that_is_missing(words, piece):
    assert piece_in(words) == piece


@pytest.mark.parametrize("piece", MENDS)
def test_every_missing_piece_says_what_to_type(piece):
    error = lacking(Level.FULL, piece, "why")
    assert isinstance(error, SandboxError)
    assert MENDS[piece] in str(error)
    assert "--isolation reduced" in error.next_step
    assert "--isolation" not in lacking(Level.REDUCED, piece, "why").next_step
