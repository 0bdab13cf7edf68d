"""Bombs. The bound of each stands in its docstring and in its function: a sandbox that fails must not cost the
machine more than that. The limits that they meet are those of `tilegate.drill.expected.resources`.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tilegate.drill.probes.attempt import escaped, refused, spelled, unable
from tilegate.drill.props import Props
from tilegate.records.drill import Claim

MIB = 1 << 20
_POPULATE = 0x8000
_FORKS, _THREADS, _OPENS = 200, 200, 400
_HOLD_S = 1.5
_SPIN_S = 6.0
_FILE_MIB = 8
_PAGE = 4096


@contextlib.contextmanager
def _children() -> Iterator[list[int]]:
    """Started ones, killed at the end."""
    started: list[int] = []
    try:
        yield started
    finally:
        for child in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _fork(started: list[int], work: Callable[[], object]) -> None:
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 (a child must not go on with its parent's work)
            os._exit(1)
    started.append(child)


def fork_bomb(_props: Props) -> Claim:
    """200 children that sleep for 3 s at most."""
    with _children() as started:
        for _ in range(_FORKS):
            try:
                _fork(started, lambda: time.sleep(2 * _HOLD_S))
            except OSError as error:
                return refused(f"{len(started)} children, then {spelled(error.errno)}")
        time.sleep(_HOLD_S)
        return escaped(f"{len(started)} children at once")


def thread_bomb(_props: Props) -> Claim:
    """200 threads that wait for 3 s at most."""
    threading.stack_size(64 * 1024)
    end = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(_THREADS):
            threads.append(threading.Thread(target=end.wait, args=(2 * _HOLD_S,)))
            threads[-1].start()
    except RuntimeError:
        return refused(f"{len(threads) - 1} threads, then no more")
    finally:
        end.set()
    return escaped(f"{len(threads)} threads at once")


def _grab(mib: int, flags: int = 0) -> mmap.mmap:
    held = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    if not flags:
        for offset in range(0, mib * MIB, _PAGE):
            held[offset] = 1
    return held


def _hold(mib: int, flags: int = 0) -> None:
    held = _grab(mib, flags)
    time.sleep(_HOLD_S)
    held.close()


def _told(children: list[int], what: str) -> Claim:
    failed = 0
    while children:
        failed += os.waitpid(children.pop(), 0)[1] != 0
    return refused(f"{failed} of them could not") if failed else escaped(what)


def memory_of_one(_props: Props) -> Claim:
    """1 GiB in one process."""
    held: list[mmap.mmap] = []
    try:
        held.extend(_grab(64) for _ in range(16))
    except (OSError, MemoryError):
        return refused(f"{len(held) * 64} MiB, then no more")
    return escaped("1 GiB touched")


def memory_of_many(_props: Props) -> Claim:
    """1 GiB: 256 MiB in each of 4 processes, for 1.5 s."""
    with _children() as started:
        for _ in range(4):
            _fork(started, lambda: _hold(256))
        return _told(started, "1 GiB held by 4 processes")


def memory_at_once(_props: Props) -> Claim:
    """1.1 GiB, filled by the kernel in one go: 384 MiB in each of 3 processes, for 1.5 s."""
    with _children() as started:
        for _ in range(3):
            _fork(started, lambda: _hold(384, _POPULATE))
        return _told(started, "1.1 GiB held by 3 processes")


def memory_in_files(_props: Props) -> Claim:
    """1 GiB in files without a name, mapped by nobody: 32 of 8 MiB in each of 4 processes, for 1.5 s."""
    with _children() as started:
        for _ in range(4):
            _fork(started, _hold_files)
        return _told(started, "1 GiB in files that nobody maps")


def _hold_files() -> None:
    piece = bytes(_FILE_MIB * MIB)
    for _ in range(32):
        if os.write(os.memfd_create("drill"), piece) != len(piece):
            raise OSError(errno.ENOSPC, "cut short")
    time.sleep(_HOLD_S)


def memory_in_pipes(_props: Props) -> Claim:
    """256 MiB at most in pipes that nobody reads: 16 of up to 1 MiB in each of 16 processes, for 1.5 s."""
    started_reader, started_writer = os.pipe()
    with _children() as started:
        for _ in range(16):
            _fork(started, lambda: _fill_pipes(started_writer))
        os.close(started_writer)
        held = 0
        with open(started_reader, "rb") as stream:
            held = sum(int(line) for line in stream)
        word = f"{held // MIB} MiB in pipes"
        return escaped(word) if held > 128 * MIB else refused(word)


def _fill_pipes(told: int) -> None:
    import fcntl

    held = 0
    for _ in range(16):
        _, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, MIB)
        with contextlib.suppress(OSError):
            held += os.write(writer, bytes(MIB))
    os.write(told, f"{held}\n".encode())
    os.close(told)
    time.sleep(_HOLD_S)


def _fill(folder: Path, files: int, mib: int) -> tuple[int, str]:
    """MiB written, and what ended it. Removed again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    done, word, made = 0, "no end", []
    try:
        for number in range(files):
            made.append(folder / f"fill-{number}")
            with made[-1].open("xb", buffering=0) as file:
                for _ in range(mib):
                    done += file.write(bytes(MIB)) // MIB
    except OSError as error:
        word = spelled(error.errno)
    for path in made:
        with contextlib.suppress(OSError):
            path.unlink()
    return done, word


def disk_in_one_file(_props: Props) -> Claim:
    """64 MiB in one file."""
    done, word = _fill(Path(), 1, 64)
    return escaped("64 MiB in one file") if done >= 64 else refused(f"{done} MiB, then {word}")


def disk_in_many_files(_props: Props) -> Claim:
    """96 MiB in 12 files of the job's own folder."""
    done, word = _fill(Path(), 12, 8)
    return escaped("96 MiB in 12 files") if done >= 96 else refused(f"{done} MiB, then {word}")


def disk_elsewhere(_props: Props) -> Claim:
    """96 MiB in each folder that can be written, beside the job's own."""
    said = []
    places = ("/", "/dev", "/dev/shm", "/run", "/var/tmp", "/dev/mqueue", "/proc", "/usr", "/etc", "/closure")
    for place in places:
        done, word = _fill(Path(place), 12, 8)
        if done >= 96:
            return escaped(f"96 MiB in {place}")
        if done:
            said.append(f"{done} MiB in {place}, then {word}")
    return refused(", ".join(said) or "no other folder can be written")


def many_names(_props: Props) -> Claim:
    """60,000 empty files, some 60 MiB of the kernel's memory."""
    for number in range(60_000):
        try:
            os.close(os.open(f"name-{number}", os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            return refused(f"{number} files, then {spelled(error.errno)}")
    time.sleep(_HOLD_S)
    return escaped("60,000 empty files")


def descriptors(_props: Props) -> Claim:
    """400 open files."""
    held: list[int] = []
    try:
        held.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(_OPENS))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        return refused(f"{len(held)}, then no more")
    finally:
        for number in held:
            os.close(number)
    return escaped(f"{_OPENS} open files")


def spin(_props: Props) -> Claim:
    """3 processes that count, for 6 s."""
    with _children() as started:
        for _ in range(2):
            _fork(started, _count)
        _count()
        return escaped(f"counted for {_SPIN_S:.0f} s")


def _count() -> None:
    end = time.monotonic() + _SPIN_S
    while time.monotonic() < end:
        pass


def sleep(_props: Props) -> Claim:
    """6 s of silence."""
    time.sleep(_SPIN_S)
    return escaped(f"was silent for {_SPIN_S:.0f} s")


def sleep_deaf(_props: Props) -> Claim:
    """6 s of silence, deaf to every signal that can be ignored."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    return sleep(_props)


def stop_itself(_props: Props) -> Claim:
    """Until somebody wakes it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return unable("was woken up")


def locked_memory(_props: Props) -> Claim:
    """64 MiB that cannot be swapped out."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],) * 2)
    held = _grab(64)
    import ctypes

    from tilegate.drill.probes.attempt import syscall

    view = (ctypes.c_char * len(held)).from_buffer(held)
    try:
        syscall("mlock", ctypes.addressof(view), len(held))
    except OSError as error:
        return refused(spelled(error.errno))
    return escaped("locked 64 MiB")
