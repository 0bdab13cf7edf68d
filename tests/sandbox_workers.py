"""Tasks for test_sandbox.py: imported by name inside a job, never by the tests."""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tilegate.sandbox import frames

RESULTS = 4
"""Where a task sends its frames: no secret, and nothing is trusted for coming from there."""


def finish(inputs, emit):
    sys.stdout.write("to stdout\n")
    sys.stderr.write("to stderr\n")
    for name in sorted(inputs):
        emit("echo", name.encode() + b"=" + inputs[name])
    emit("folder", bytes(Path.cwd()))


def silent_success(_inputs, emit):
    emit("a", b"1")
    ctypes.CDLL(None).printf(b"from C, unflushed")
    sys.stdout.close()


def dereference_null(_inputs, emit):
    emit("begin", b"1")
    ctypes.string_at(0)


def abort(_inputs, emit):
    emit("begin", b"1")
    os.abort()


def kill_self(_inputs, emit):
    emit("begin", b"1")
    os.kill(os.getpid(), signal.SIGKILL)


def hang(_inputs, emit):
    emit("begin", b"1")
    signal.pause()


def hang_deaf(inputs, emit):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    call_itself(inputs)
    emit("begin", b"1")
    while True:
        signal.pause()


def stop(_inputs, emit):
    emit("begin", b"1")
    os.kill(os.getpid(), signal.SIGSTOP)


def chatter(_inputs, emit):
    while True:
        emit("tick", b"")
        time.sleep(0.02)


def print_forever(_inputs, emit):
    emit("begin", b"1")
    while True:
        os.write(1, b"x" * 65536)


def fail(_inputs, emit):
    emit("begin", b"1")
    raise ValueError("the reason of the author")


def leave(inputs, emit):
    emit("begin", b"1")
    sys.exit(json.loads(inputs["code"]))


def leave_at_once(_inputs, emit):
    emit("begin", b"1")
    os._exit(0)


def sleeper_in_session(inputs, emit):
    _sleeper(inputs, emit, daemon=False)


def sleeper_daemon(inputs, emit):
    _sleeper(inputs, emit, daemon=True)


def sleeper_and_crash(inputs, emit):
    _sleeper(inputs, emit, daemon=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def slow_to_die(inputs, emit):
    """A daemon whose memory takes a while to be given back."""
    _sleeper(inputs, emit, daemon=True, ballast=600 << 20)
    _raw(b"no frame at all")
    signal.pause()


def crash_behind_a_full_pipe(inputs, emit):
    call_itself(inputs)
    fcntl.fcntl(RESULTS, fcntl.F_SETPIPE_SZ, 1 << 20)
    emit("begin", b"1")
    emit("late", b"x" * 900_000)
    os.kill(os.getpid(), signal.SIGSEGV)


def _sleeper(inputs, emit, *, daemon, ballast=0):
    """A child that holds every descriptor of the job and never ends."""
    ready, tell = os.pipe()
    if not os.fork():
        if daemon:
            os.setsid()
        call_itself(inputs)
        held = b"x" * ballast
        os.write(tell, b"1")
        while True:
            signal.pause()
            del held
    emit("ready", os.read(ready, 1))


def call_itself(inputs):
    """A name that the host sees in its own /proc, whatever the job sees of it."""
    ctypes.CDLL(None).prctl(15, inputs["name"], 0, 0, 0)


def fork_forever(_inputs, emit):
    """As many children as it gets, and they wait. Bounded: 300."""
    for _ in range(300):
        if not os.fork():
            signal.pause()
    emit("forked", b"300")
    signal.pause()


def fill_memory_together(_inputs, _emit):
    """Four children of 300 MiB each: every one below the limit of a process."""
    for _ in range(4):
        if not os.fork():
            held = bytearray(b"x") * (300 << 20)
            signal.pause()
            del held
    signal.pause()


def fill_memory_at_once(_inputs, _emit):
    """Four children of 300 MiB each, populated by the kernel in one call."""
    for _ in range(4):
        if not os.fork():
            held = mmap.mmap(-1, 300 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
            signal.pause()
            del held
    while True:
        if os.wait()[1]:
            os.kill(os.getpid(), signal.SIGKILL)


def greet(inputs, emit):
    emit("hello", inputs["name"] + b" warm" * ("colorsys" in sys.modules))


def meddle(inputs, emit):
    """Every way to reach a process that was there before: the one that forked this."""
    keeper, done = os.getppid(), []
    for attempt in (
        lambda: os.kill(keeper, signal.SIGSTOP),
        lambda: os.kill(keeper, signal.SIGKILL),
        lambda: os.open(f"/proc/{keeper}/mem", os.O_RDWR),
    ):
        try:
            attempt()
        except OSError:
            continue
        done.append(1)
    emit("done", str(len(done)).encode())


def environment(_inputs, emit):
    emit("environment", json.dumps(dict(os.environ)).encode())


def look_up(inputs, emit):
    """What the parent's entry in /proc gives away."""
    try:
        emit("found", Path(f"/proc/{inputs['parent'].decode()}/environ").read_bytes())
    except OSError as error:
        emit("refused", str(error).encode())


def connect(inputs, emit):
    try:
        socket.create_connection(("127.0.0.1", int(inputs["port"])), timeout=5).close()
    except OSError as error:
        emit("refused", str(error).encode())
    else:
        emit("connected", b"")


def large(inputs, emit):
    emit("size", str(len(inputs["blob"])).encode())
    emit("blob", inputs["blob"][::-1])


def litter(_inputs, emit):
    """Folders that their owner may not enter, and a link out of them."""
    Path("locked/inside").mkdir(parents=True)
    Path("locked/inside/file").write_text("x")
    with contextlib.suppress(OSError):  # not where Landlock sees to it
        Path("outward").symlink_to("/")
    Path("locked/inside").chmod(0o500)
    Path("locked").chmod(0o000)
    emit("folder", bytes(Path.cwd()))


def nest(_inputs, emit):
    """A tree deeper than the interpreter's stack."""
    emit("folder", bytes(Path.cwd()))
    for _ in range(1100):
        Path("deeper").mkdir()
        os.chdir("deeper")


def take_memory(_inputs, _emit):
    bytearray(1 << 30)


def write_file(_inputs, _emit):
    Path("large").write_bytes(b"x" * (2 << 20))


def list_descriptors(_inputs, emit):
    """What a program that the job starts would inherit."""
    look = """
import os
def there(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
print([number for number in range(200) if there(number)])
"""
    command = [sys.executable, "-c", look]
    emit("open", subprocess.run(command, close_fds=False, check=True, capture_output=True).stdout)


def send_reserved(_inputs, emit):
    emit("end", b"")


def _raw(*pieces):
    with os.fdopen(RESULTS, "wb", closefd=False) as results:
        results.write(b"".join(pieces))


def raw_garbage(_inputs, emit):
    emit("begin", b"1")
    _raw(b"no frame at all")
    signal.pause()


def raw_pickle(_inputs, _emit):
    _raw(pickle.dumps({"verdict": "passed"}))


def raw_huge_claim(_inputs, _emit):
    _raw(frames.preamble("result", 1 << 60))
    signal.pause()


def raw_end_then_crash(_inputs, emit):
    emit("begin", b"1")
    _raw(frames.preamble("end", 0))
    os.kill(os.getpid(), signal.SIGSEGV)


def raw_half_a_frame(_inputs, _emit):
    _raw(frames.preamble("result", 100), b"only this much")
    os._exit(0)
