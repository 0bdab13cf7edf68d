"""What a process can reach once it is in a Landlock domain: files, the network, other processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import tilegate
from tilegate.sandbox import landlock

ABI = landlock.abi()
pytestmark = pytest.mark.skipif(not ABI, reason="this kernel has no Landlock")


def needs(version):
    return pytest.mark.skipif(version > ABI, reason=f"this kernel's Landlock is ABI {ABI}, not {version}")


PRELUDE = f"""
import sys
sys.path.insert(0, {str(Path(tilegate.__file__).parents[1])!r})
import errno, fcntl, os, socket, subprocess, threading
from pathlib import Path
from tilegate.sandbox import landlock, seccomp

def answer(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ran"

read, write, outside = (Path.cwd() / name for name in ("read", "write", "outside"))
"""


@pytest.fixture
def world(tmp_path):
    """Three folders with a file in each, and another folder inside: `read`, `write`, `outside`."""
    for name in ("read", "write", "outside"):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "file").write_text(name)
    return tmp_path


def told(code, folder):
    command = [sys.executable, "-I", "-B", "-c", PRELUDE + code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_file_outside_cannot_be_read_listed_or_made(world):
    code = """
landlock.restrict([read], [write])
print(
    answer((outside / "file").read_text),
    answer(os.listdir, outside),
    answer((outside / "new").write_text, ""),
    answer((outside / "file").unlink),
    answer(os.rename, write / "file", outside / "moved"),
    answer(os.rename, outside / "file", write / "moved"),
    answer(os.link, outside / "file", write / "linked"),
    answer(os.execv, "/bin/true", ["true"]),
)
print((read / "file").read_text(), *os.listdir(read / "folder"))
"""
    got = told(code, world)
    assert set(got[:-1]) <= {"EACCES", "EXDEV"}
    assert got[-1] == "read"
    assert sorted(path.name for path in (world / "outside").iterdir()) == ["file", "folder"]


def test_a_tree_that_is_to_be_read_cannot_be_written(world):
    code = """
landlock.restrict([read], [write])
print(
    answer((read / "file").write_text, "changed"),
    answer((read / "new").write_text, ""),
    answer(os.truncate, read / "file", 0) if landlock.abi() >= 3 else "EACCES",
    answer((read / "file").unlink),
    answer((read / "folder").rmdir),
    answer((read / "made").mkdir),
    answer(os.rename, read / "file", read / "moved"),
)
"""
    assert set(told(code, world)) == {"EACCES"}
    assert (world / "read" / "file").read_text() == "read"


def test_a_tree_that_may_be_written_takes_files_and_folders_only(world):
    code = """
landlock.restrict([read], [write])
print(
    answer((write / "new").write_text, "#!"),
    answer((write / "made").mkdir),
    answer(os.truncate, write / "new", 1),
    answer(os.rename, write / "new", write / "made" / "moved") if landlock.abi() >= 2 else "ran",
    answer((write / "file").unlink),
    answer((write / "folder").rmdir),
)
print(
    answer(os.symlink, "/etc", write / "link"),
    answer(os.mkfifo, write / "pipe"),
    answer(os.mknod, write / "device", 0o020600, os.makedev(1, 3)),
    answer(socket.socket(socket.AF_UNIX).bind, str(write / "socket")),
)
"""
    got = told(code, world)
    assert got[:6] == ["ran"] * 6
    assert set(got[6:]) <= {"EACCES", "EPERM"}  # EPERM: a user without root makes no device anyway
    assert [path.name for path in (world / "write").iterdir()] == ["made"]


def test_a_link_leads_nowhere_that_is_not_permitted(world):
    (world / "read" / "link").symlink_to(world / "outside")
    code = """
landlock.restrict([read], [write])
print(answer((read / "link" / "file").read_text))
"""
    assert told(code, world) == ["EACCES"]


def test_naming_a_file_does_not_open_its_folder(world):
    code = """
landlock.restrict([read / "file"], [write / "file"])
print(answer((read / "file").read_text), answer((write / "file").write_text, "x"))
print(answer((read / "file").write_text, "x"), answer(os.listdir, read), answer((write / "new").write_text, ""))
"""
    assert told(code, world) == ["ran", "ran", "EACCES", "EACCES", "EACCES"]


def test_a_missing_path_restricts_nothing_by_accident(world):
    code = """
print(answer(landlock.restrict, [read / "nothing"], [write]), answer((outside / "file").read_text))
landlock.restrict([read / "nothing"], [write], optional=[read / "nothing", write])
print(answer((outside / "file").read_text), answer((write / "file").read_text))
"""
    assert told(code, world) == ["ENOENT", "ran", "EACCES", "ran"]


def test_what_is_started_inside_stays_inside(world):
    code = """
landlock.restrict([Path(p) for p in ("/usr", "/bin", "/lib", "/lib64")], [write], optional=[Path("/lib64")])
print(subprocess.run(["cat", outside / "file"], capture_output=True).stdout or "nothing")
"""
    assert told(code, world) == ["nothing"]


def test_a_second_domain_gives_nothing_back(world):
    code = """
landlock.restrict([read, Path("/proc")], [])
landlock.restrict([read], [write, Path("/proc")])
print(answer((write / "new").write_text, ""), answer((read / "file").read_text))
"""
    assert told(code, world) == ["EACCES", "ran"]


def test_a_thread_that_would_stay_free_is_not_overlooked(world):
    code = """
done = threading.Event()
threading.Thread(target=done.wait).start()
print(answer(landlock.restrict, [read], [write]), answer((outside / "file").read_text))
done.set()
"""
    assert told(code, world) == ["EBUSY", "ran"]


@needs(4)
def test_tcp_is_closed_in_both_directions(world):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""
landlock.restrict([read], [write])
print(answer(socket.socket().bind, ("127.0.0.1", 0)))
print(answer(socket.socket().connect, ("127.0.0.1", {server.getsockname()[1]})))
"""
        assert told(code, world) == ["EACCES", "EACCES"]


@needs(5)
def test_a_device_that_is_only_to_be_read_cannot_be_asked_by_ioctl(world):
    code = """
count = 0x80045200  # RNDGETENTCNT
urandom, null = Path("/dev/urandom"), Path("/dev/null")
landlock.restrict([{read}], [write], devices=[null, {device}])
with urandom.open("rb") as file:
    print(answer(fcntl.ioctl, file, count, bytes(4)), len(file.read(4)))
print(answer(null.write_bytes, b"x"))
"""
    assert told(code.format(read="urandom", device=""), world) == ["EACCES", "4", "ran"]
    assert told(code.format(read="", device="urandom"), world) == ["ran", "4", "ran"]


@needs(6)
def test_neither_signals_nor_abstract_sockets_leave_the_domain(world):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0tilegate-test-" + os.urandom(8).hex())
        server.listen()
        code = f"""
landlock.restrict([read], [write])
print(answer(os.kill, os.getppid(), 0), answer(os.kill, os.getpid(), 0))
print(answer(socket.socket(socket.AF_UNIX).connect, {server.getsockname()!r}))
"""
        assert told(code, world) == ["EPERM", "ran", "EPERM"]


FORKED = """
def memory(pid):
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))

def child():
    print(
        landlock.isolate_signals(),
        answer(os.kill, os.getppid(), 0),
        answer(memory, os.getppid()),
        answer(memory, os.getpid()),
        answer((read / "file").read_text),
        flush=True,
    )
    os._exit(0)

os.waitpid(os.fork() or child(), 0)
"""


@needs(6)
@pytest.mark.parametrize(
    "before",
    ["", "landlock.restrict([read], [write, Path('/proc')])\nif seccomp.available(): seccomp.install()"],
    ids=["alone", "behind the rest"],
)
def test_a_forked_child_can_neither_signal_nor_trace_who_forked_it(world, before):
    """The parent's memory could be written through /proc, without any ptrace call that a filter would see."""
    assert told(before + FORKED, world) == [str(ABI), "EPERM", "EACCES", "ran", "ran"]


def test_without_it_the_child_could(world):
    """What the test above would see."""
    assert told("landlock.isolate_signals = lambda: 0" + FORKED, world)[:2] == ["0", "ran"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, (0x1FFF, 0, 0)),
        (2, (0x3FFF, 0, 0)),
        (3, (0x7FFF, 0, 0)),
        (4, (0x7FFF, 3, 0)),
        (5, (0xFFFF, 3, 0)),
        (6, (0xFFFF, 3, 3)),
        (9, (0xFFFF, 3, 3)),
    ],
)
def test_an_older_kernel_is_never_asked_for_what_it_does_not_know(version, expected):
    assert landlock.handled(version) == expected
