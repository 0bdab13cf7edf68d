"""Tasks for test_sandbox.py: imported by name inside a job, never by the tests."""

import ctypes
import fcntl
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tilegate.sandbox import frames


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


def hang_deaf(_inputs, emit):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    emit("host-pid", host_pid())
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


def sleeper_in_session(_inputs, emit):
    _sleeper(emit, daemon=False)


def sleeper_daemon(_inputs, emit):
    _sleeper(emit, daemon=True)


def sleeper_and_crash(_inputs, emit):
    _sleeper(emit, daemon=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def slow_to_die(_inputs, emit):
    """A daemon whose memory takes a while to be given back."""
    _sleeper(emit, daemon=True, ballast=600 << 20)
    _raw(b"no frame at all")
    signal.pause()


def crash_behind_a_full_pipe(_inputs, emit):
    emit("begin", b"1")
    fcntl.fcntl(json.loads(sys.argv[1])["results_fd"], fcntl.F_SETPIPE_SZ, 1 << 20)
    emit("late", b"x" * 900_000)
    os.kill(os.getpid(), signal.SIGSEGV)


def _sleeper(emit, *, daemon, ballast=0):
    """A child that holds every descriptor of the job and never ends."""
    ready, tell = os.pipe()
    if not os.fork():
        if daemon:
            os.setsid()
        held = b"x" * ballast
        os.write(tell, host_pid())
        while True:
            signal.pause()
            del held
    emit("host-pid", os.read(ready, 32))


def host_pid():
    """/proc is the host's, so the link names the process as the host does."""
    return bytes(Path("/proc/self").readlink())


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
    command = [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"]
    emit("open", subprocess.run(command, close_fds=False, check=True, capture_output=True).stdout)


def send_reserved(_inputs, emit):
    emit("end", b"")


def _raw(*pieces):
    with os.fdopen(json.loads(sys.argv[1])["results_fd"], "wb", closefd=False) as results:
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


def raw_isolation(_inputs, _emit):
    better = b'{"level":"namespaces","network":false,"own_pids":true,"uid":1000}'
    _raw(frames.preamble("isolation", len(better)), better)


def raw_half_a_frame(_inputs, _emit):
    _raw(frames.preamble("result", 100), b"only this much")
    os._exit(0)
