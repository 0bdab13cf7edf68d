"""At other processes: the host's canary, and what in the job is trusted. No other is ever signalled."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from tilegate.drill.probes.attempt import (
    after,
    canary,
    each,
    escaped,
    in_child,
    libc,
    reaches,
    refused,
    spelled,
    syscall,
    tried,
    unable,
)  # fmt: skip
from tilegate.drill.props import Props
from tilegate.records.drill import Claim

_PTRACE_SEIZE = 0x4206


def see(props: Props) -> Claim:
    seen = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    try:
        canary(props)
    except ProcessLookupError as error:
        return refused(f"{len(seen)} processes, the canary not among them: {error.strerror}")
    if str(props.canary.pid) not in seen:
        return refused(f"{len(seen)} processes, the canary not among them")
    return escaped(f"sees the canary among {len(seen)} processes")


def command_lines(props: Props) -> Claim:
    """What others type may hold secrets."""
    line = Path(f"/proc/{canary(props)}/cmdline").read_bytes()
    return escaped("read the canary's") if line else unable("it is empty")


def stop_canary(props: Props) -> Claim:
    os.kill(canary(props), signal.SIGSTOP)
    return tried("sent")


def kill_canary(props: Props) -> Claim:
    os.kill(canary(props), signal.SIGKILL)
    return tried("sent")


def kill_canary_by_handle(props: Props) -> Claim:
    handle = os.pidfd_open(canary(props))
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    return tried("sent")


def kill_canary_by_thread(props: Props) -> Claim:
    pid = canary(props)
    if os.getpgid(pid) != pid:
        return unable("the canary is not in a group of its own")
    return each(
        lambda: after(tried("sent"), syscall, "tkill", pid, signal.SIGKILL),
        lambda: after(tried("sent"), syscall, "tgkill", pid, pid, signal.SIGKILL),
        lambda: after(tried("sent"), os.killpg, pid, signal.SIGKILL),
    )


def signal_drill(props: Props) -> Claim:
    """With SIGURG, which nobody minds; it is counted."""
    os.kill(props.drill, signal.SIGURG)
    return tried("sent")


def signal_everyone(_props: Props) -> Claim:
    """With SIGURG, which nobody minds: the canary and the drill count it."""
    os.kill(-1, signal.SIGURG)
    return tried("sent")


def descriptor_signal(props: Props) -> Claim:
    """A descriptor can be told to signal its owner, and given any owner."""
    import fcntl

    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, canary(props))
    fcntl.fcntl(reader, 10, signal.SIGURG)  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writer, b"x")
    return tried("written")


def memory_of_canary(props: Props) -> Claim:
    with Path(f"/proc/{canary(props)}/mem").open("rb", buffering=0) as memory:
        memory.seek(props.canary.address)
        found = memory.read(len(props.token))
    return escaped("read its memory") if found == props.token.encode() else unable("other bytes")


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def memory_of_canary_by_call(props: Props) -> Claim:
    buffer = ctypes.create_string_buffer(len(props.token))
    same = ctypes.create_string_buffer(props.token.encode())
    here = _Piece(ctypes.addressof(buffer), len(props.token))
    there = _Piece(props.canary.address, len(props.token))
    pid = canary(props)
    return each(
        lambda: _copied("process_vm_readv", pid, here, there),
        lambda: _copied("process_vm_writev", pid, _Piece(ctypes.addressof(same), 1), there),
    )


def _copied(call: str, pid: int, here: _Piece, there: _Piece) -> Claim:
    done = syscall(call, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return escaped(f"{call}: {done} bytes")


def ptrace_canary(props: Props) -> Claim:
    return _traced(canary(props))


def _traced(pid: int) -> Claim:
    return in_child(lambda: after(escaped("traced it"), syscall, "ptrace", _PTRACE_SEIZE, pid, 0, 0))


def steal_descriptor(props: Props) -> Claim:
    handle = syscall("pidfd_open", canary(props), 0)
    taken = syscall("pidfd_getfd", handle, props.canary.descriptor, 0)
    return escaped(f"has the canary's as {taken}")


def compare_with_canary(props: Props) -> Claim:
    return reaches("kcmp", os.getpid(), canary(props), 0, 0, 0)


def namespaces_of_canary(props: Props) -> Claim:
    pid = canary(props)

    def enter(kind: str) -> Claim:
        with Path(f"/proc/{pid}/ns/{kind}").open("rb") as space:
            return in_child(lambda: _entered(space.fileno(), kind))

    return each(*(partial(enter, kind) for kind in ("user", "mnt", "net", "uts")))


def _entered(space: int, kind: str) -> Claim:
    try:
        syscall("setns", space, 0)
    except OSError as error:
        return refused(spelled(error.errno))  # EINVAL too: it is in that one already
    return escaped(f"is in its {kind}")


def limits_of_canary(props: Props) -> Claim:
    old = (ctypes.c_uint64 * 2)()
    syscall("prlimit64", canary(props), 7, None, old)
    return escaped(f"read that it may open {old[0]} files")


def pace_of_canary(props: Props) -> Claim:
    """Slower, or elsewhere."""
    pid = canary(props)
    return each(
        lambda: after(escaped("made it slower"), os.setpriority, os.PRIO_PROCESS, pid, 5),
        lambda: after(escaped("moved it"), os.sched_setaffinity, pid, os.sched_getaffinity(0)),
        lambda: after(escaped("offered it up"), Path(f"/proc/{pid}/oom_score_adj").write_bytes, b"500"),
    )


def survivor(props: Props) -> Claim:
    """A program that left the session, twice forked, with nothing open. Its own bound is a minute."""
    return _daemon(props, "import time; time.sleep(60)")


def stubborn_survivor(props: Props) -> Claim:
    """The same, deaf to every signal that can be ignored, and forking on. Its own bound is a minute."""
    return _daemon(
        props,
        "import os,signal,time\n"
        "for n in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(n, signal.SIG_IGN)\n"
        "for _ in range(20):\n  time.sleep(0.05)\n  if os.fork(): os._exit(0)\n  os.setsid()\n"
        "time.sleep(60)",
    )


def _daemon(props: Props, code: str) -> Claim:
    started, ready = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.closerange(0, ready)
            code = f"import os; os.closerange(0, 256)\n{code}"
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", code, props.name])
        os._exit(0)
    os.close(ready)
    os.set_blocking(started, True)
    os.read(started, 1)  # at its end: the program runs
    return tried("left behind")


def kill_trusted(props: Props) -> Claim:
    """Those of the job that started this one: without them a program left behind might live on."""
    survivor(props)
    pids = _trusted(props)
    claim = each(*(partial(_ended, pid) for pid in pids))
    time.sleep(0.3)
    return claim


def stop_trusted(props: Props) -> Claim:
    return each(*(partial(_ended, number=signal.SIGSTOP, pid=pid) for pid in _trusted(props)))


def _ended(pid: int, number: int = signal.SIGKILL) -> Claim:
    os.kill(pid, number)
    return tried(f"sent to process {pid}")


def ptrace_trusted(props: Props) -> Claim:
    return each(*(partial(_traced, pid) for pid in _trusted(props)))


def memory_of_trusted(props: Props) -> Claim:
    def opens(pid: int, mode: int) -> Claim:
        os.close(os.open(f"/proc/{pid}/mem", mode))
        return escaped(f"process {pid} can be {'written' if mode else 'read'}")

    ways = [(pid, mode) for pid in _trusted(props) for mode in (os.O_RDWR, os.O_RDONLY)]
    return each(*(partial(opens, *way) for way in ways))


def descriptors_of_trusted(props: Props) -> Claim:
    """Through /proc a pipe can be opened anew, for writing too."""

    def opens(pid: int) -> Claim:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = str(entry.readlink())
            if target.startswith(("pipe:", "socket:", "/memfd:")) and int(entry.name) > 2:
                with contextlib.suppress(OSError):
                    os.close(os.open(entry, os.O_WRONLY | os.O_NONBLOCK))
                    return escaped(f"opened {target} of process {pid}")
        return refused("none could be opened")

    return each(*(partial(opens, pid) for pid in _trusted(props)))


def handles_of_trusted(props: Props) -> Claim:
    def take(pid: int) -> Claim:
        handle = os.pidfd_open(pid)
        return escaped(f"has {syscall('pidfd_getfd', handle, 3, 0)}")

    return each(*(partial(take, pid) for pid in _trusted(props)))


def _trusted(props: Props) -> list[int]:
    """The parent, and its parents as far as they belong to the job: never the drill, nor what started it."""
    found = [os.getppid()]
    own_numbers = str(Path("/proc/self/ns/pid").readlink()) != props.pid_namespace
    while found[-1] not in (0, props.drill):
        try:
            stat = Path(f"/proc/{found[-1]}/stat").read_text(encoding="ascii")
        except OSError:
            break
        found.append(int(stat.rpartition(")")[2].split()[1]))
    if not own_numbers and found[-1] != props.drill:  # whose these are is not certain
        found = [pid for pid in found[:1] if pid != 1]
    return [pid for pid in found if pid not in (0, props.drill)]


def shared_segment(props: Props) -> Claim:
    """System V shared memory of the host."""
    segment = syscall("shmget", props.shm_key, 0, 0)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(segment, None, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return refused(spelled(ctypes.get_errno()))
    ctypes.memset(address, 0x58, 4)
    return tried("written")


def message_queue(props: Props) -> Claim:
    """A POSIX queue of the host."""
    queue = syscall("mq_open", props.name.encode(), os.O_WRONLY, 0, None)
    return escaped(f"opened as {queue}")
