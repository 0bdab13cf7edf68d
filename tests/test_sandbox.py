"""The door to a subprocess: whatever a job does, the caller gets a true account of it, and in time."""

import itertools
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate.errors import RecordError, SandboxError
from tilegate.records.canonical import encode
from tilegate.records.isolation import Isolation, Limits
from tilegate.sandbox import EVALUATE, Ending, Job, JobStopped, run_job, stop_jobs
from tilegate.sandbox.frames import HEADER_BYTES, MAGIC, FrameReader, preamble

HERE = str(Path(__file__).parent)
MIB = 1 << 20


def limits(**changed):
    usual = {
        "wall_s": 30.0,
        "silence_s": 20.0,
        "memory_bytes": 1 << 30,
        "file_bytes": MIB,
        "frame_bytes": 32 * MIB,
        "total_bytes": 64 * MIB,
        "frames": 10_000,
        "output_bytes": 4096,
    }
    return Limits(**{**usual, **changed})


def run(task, on_frame=None, inputs=None, **changed):
    job = Job(task=f"sandbox_workers:{task}", inputs=inputs or {}, import_paths=(HERE,))
    return run_job(job, limits(**changed), on_frame=on_frame)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# The stream, without a process


def frame(name, blob=b""):
    return preamble(name, len(blob)) + blob


def raw(header, blob=b""):
    return MAGIC + len(header).to_bytes(2, "big") + header + blob


def reader(**changed):
    return FrameReader(**{"frame_bytes": 100, "total_bytes": 150, "frames": 3, **changed})


ISOLATION = b'{"level":"process","network":true,"own_pids":false,"uid":7}'
WHOLE = (
    frame("isolation", ISOLATION) + frame("begin") + frame("result", b"xyz") + frame("begin") + frame("end")
)


def test_a_whole_stream_gives_its_frames_in_order():
    taker = reader()
    assert taker.feed(WHOLE) == [("begin", b""), ("result", b"xyz"), ("begin", b"")]
    assert taker.isolation == Isolation(level="process", network=True, own_pids=False, uid=7)
    assert taker.ended
    assert taker.close() is None


@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_where_a_stream_is_cut_changes_nothing(cuts):
    """Fed in any pieces, a stream gives the frames that it gives in one."""
    taker, found, edges = reader(), [], sorted([0, *cuts, len(WHOLE)])
    for start, stop in itertools.pairwise(edges):
        found += taker.feed(WHOLE[start:stop])
    assert found == [("begin", b""), ("result", b"xyz"), ("begin", b"")]
    assert taker.ended
    assert taker.fault is None


@given(
    kept=st.integers(0, len(WHOLE)),
    noise=st.binary(max_size=8) | st.sampled_from([frame("a"), frame("end")]),
    resumed=st.integers(0, len(WHOLE)),
)
def test_what_is_accepted_has_one_spelling(kept, noise, resumed):
    """A damaged stream is at fault, or is byte for byte what its own frames are written as. None raises."""
    taker, stream = reader(frames=99), WHOLE[:kept] + noise + WHOLE[resumed:]
    found = taker.feed(stream)
    if taker.close() is None:
        first = frame("isolation", encode(taker.isolation)) if taker.isolation else b""
        assert first + b"".join(frame(*each) for each in found) + frame("end") == stream


HOSTILE = {
    "wrong_magic": (b"TGF2\0\0{}", "magic"),
    "pickle": (b"\x80\x04\x95\x10\0\0\0\0\0\0\0", "magic"),
    "oversized_header": (MAGIC + (HEADER_BYTES + 1).to_bytes(2, "big"), "header of more than 256 bytes"),
    "empty_header": (raw(b""), "header"),
    "header_is_not_json": (raw(b"{name: result}"), "header"),
    "header_is_not_utf8": (raw(b'{"name":"\xff","size":0}'), "header"),
    "header_is_a_list": (raw(b'["result",0]'), "header"),
    "extra_key": (raw(b'{"name":"result","path":"/etc","size":0}'), "header"),
    "missing_size": (raw(b'{"name":"result"}'), "header"),
    "duplicate_key": (raw(b'{"name":"result","size":0,"size":5}'), "header"),
    "another_spelling": (raw(b'{"name": "result","size":0}'), "header"),
    "path_as_name": (raw(b'{"name":"../../etc/passwd","size":0}'), "header"),
    "absolute_path_as_name": (raw(b'{"name":"/etc/passwd","size":0}'), "header"),
    "hidden_file_as_name": (raw(b'{"name":".bashrc","size":0}'), "header"),
    "newline_in_name": (raw(b'{"name":"result\\n","size":0}'), "header"),
    "empty_name": (raw(b'{"name":"","size":0}'), "header"),
    "long_name": (raw(b'{"name":"' + b"a" * 65 + b'","size":0}'), "header"),
    "negative_size": (raw(b'{"name":"result","size":-1}'), "header"),
    "size_is_true": (raw(b'{"name":"result","size":true}'), "header"),
    "size_is_a_fraction": (raw(b'{"name":"result","size":1.0}'), "header"),
    "end_with_a_blob": (frame("end", b"x"), "end frame carries a blob"),
    "data_after_the_end": (frame("end") + b"\0", "data after the end"),
    "frame_after_the_end": (frame("end") + frame("result"), "data after the end"),
    "second_end": (frame("end") * 2, "data after the end"),
    "isolation_twice": (frame("isolation", ISOLATION) * 2, "not the first"),
    "isolation_after_a_frame": (frame("a") + frame("isolation", ISOLATION), "not the first"),
    "isolation_is_not_a_record": (frame("isolation", b"{}"), "isolation frame is not one"),
    "isolation_without_bound": (preamble("isolation", 1 << 40), "isolation"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_stream_is_refused_by_name(name):
    stream, rule = HOSTILE[name]
    taker = reader()
    assert taker.feed(frame("before", b"1") + stream) in ([("before", b"1")], [("before", b"1"), ("a", b"")])
    assert taker.fault is not None or name.startswith("isolation")
    taker = reader()
    taker.feed(stream)
    assert rule in taker.fault.why
    assert not taker.fault.too_large
    assert taker.feed(frame("after")) == []


@pytest.mark.parametrize(
    ("stream", "rule"),
    [
        (frame("a", b"x" * 101), "a frame of 101 bytes"),
        (preamble("a", 10**30), "a frame of 10000"),
        (frame("a", b"x" * 90) * 2, "all frames together"),
        (frame("a") * 4, "more frames"),
    ],
)
def test_a_stream_beyond_its_bounds_is_too_large(stream, rule):
    taker = reader()
    taker.feed(stream)
    assert rule in taker.fault.why
    assert taker.fault.too_large


def test_bounds_themselves_are_allowed():
    taker = reader()
    assert len(taker.feed(frame("a", b"x" * 100) + frame("a", b"x" * 50) + frame("a") + frame("end"))) == 3
    assert taker.close() is None


@pytest.mark.parametrize(
    ("stream", "rule"),
    [
        (b"", "end frame is missing"),
        (frame("a", b"xyz"), "end frame is missing"),
        (frame("a", b"xyz")[:-1], "inside a frame"),
        (preamble("a", 3), "inside a frame"),
        (preamble("a", 3)[:9], "inside a frame"),
    ],
)
def test_a_truncated_stream_is_no_whole_one(stream, rule):
    taker = reader()
    taker.feed(stream)
    assert taker.fault is None
    assert rule in taker.close().why


@pytest.mark.parametrize("name", ["", "../up", "Upper", "a b", "a\n", "x" * 65])
def test_a_name_that_no_reader_takes_is_never_sent(name):
    with pytest.raises(RecordError):
        preamble(name, 0)


# Endings


def test_a_finished_job_returns_frames_output_and_isolation():
    seen = []
    result = run("finish", inputs={"b": b"2", "a": b"1"}, on_frame=lambda *frame: seen.append(frame))
    assert (result.ending, result.code, result.why) == (Ending.FINISHED, 0, "")
    assert result.frames[:2] == (("echo", b"a=1"), ("echo", b"b=2"))
    assert tuple(seen) == result.frames
    assert sorted(result.output.splitlines()) == [b"to stderr", b"to stdout"]
    assert result.output_total == len(result.output)
    assert result.isolation.uid == os.getuid()
    assert (result.isolation.level == "namespaces") == (
        result.isolation.own_pids and not result.isolation.network
    )


def test_work_that_closed_its_stdout_has_still_finished():
    result = run("silent_success")
    assert (result.ending, result.frames) == (Ending.FINISHED, (("a", b"1"),))
    assert b"from C, unflushed" in result.output


@pytest.mark.parametrize(
    ("task", "number"),
    [("dereference_null", signal.SIGSEGV), ("abort", signal.SIGABRT), ("kill_self", signal.SIGKILL)],
)
def test_a_crash_is_told_by_its_own_signal_and_keeps_earlier_frames(task, number):
    result = run(task)
    assert (result.ending, result.code) == (Ending.SIGNALLED, number)
    assert result.frames == (("begin", b"1"),)


def test_frames_sent_before_a_crash_are_not_lost_in_the_pipe():
    def wait_for_the_crash(name, _blob):
        if name == "begin":
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

    result = run("crash_behind_a_full_pipe", on_frame=wait_for_the_crash)
    assert (result.ending, result.code) == (Ending.SIGNALLED, signal.SIGSEGV)
    assert result.frames == (("begin", b"1"), ("late", b"x" * 900_000))


def test_an_exception_is_an_exit_with_its_traceback():
    result = run("fail")
    assert (result.ending, result.code) == (Ending.EXITED, 1)
    assert result.frames == (("begin", b"1"),)
    assert b"ValueError: the reason of the author" in result.output
    assert b"inner.py" not in result.output


@pytest.mark.parametrize(("code", "told"), [(0, 0), (3, 3), (None, 0), ("words", 1)])
def test_leaving_by_sys_exit_is_never_finished(code, told):
    result = run("leave", inputs={"code": json.dumps(code).encode()})
    assert (result.ending, result.code) == (Ending.EXITED, told)
    assert (b"words" in result.output) == (code == "words")


def test_exit_0_without_the_end_frame_is_not_finished():
    result = run("leave_at_once")
    assert (result.ending, result.code, result.frames) == (Ending.EXITED, 0, (("begin", b"1"),))


def test_a_task_that_does_not_exist_is_an_exit():
    result = run("no_such_task")
    assert (result.ending, result.code) == (Ending.EXITED, 1)
    assert b"no_such_task" in result.output


@pytest.mark.parametrize("task", ["hang", "stop"])
def test_a_job_that_says_nothing_ends_silent(task):
    result = run(task, silence_s=0.5)
    assert (result.ending, result.code, result.frames) == (Ending.SILENT, 0, (("begin", b"1"),))


def test_a_job_that_talks_forever_ends_at_the_wall():
    result = run("chatter", wall_s=1.0, silence_s=0.9, frames=1_000_000)
    assert result.ending is Ending.WALL
    assert ("tick", b"") in result.frames


def test_endless_printing_is_capped_and_does_not_pass_for_progress():
    result = run("print_forever", silence_s=0.5, output_bytes=1000)
    assert result.ending is Ending.SILENT
    assert result.output == b"x" * 1000
    assert result.output_total > 65536


def test_large_inputs_and_outputs_together_do_not_deadlock():
    blob = bytes(range(256)) * (20 * MIB // 256)
    result = run("large", inputs={"blob": blob})
    assert result.ending is Ending.FINISHED
    assert result.frames[0] == ("size", b"20971520")
    assert result.frames[1][1] == blob[::-1]


# Hostile streams from a real process


@pytest.mark.parametrize(
    ("task", "ending", "rule"),
    [
        ("raw_garbage", Ending.PROTOCOL, "magic"),
        ("raw_pickle", Ending.PROTOCOL, "magic"),
        ("raw_isolation", Ending.PROTOCOL, "isolation frame that is not the first"),
        ("raw_huge_claim", Ending.TOO_LARGE, "a frame of"),
    ],
)
def test_a_job_that_writes_its_own_bytes_is_ended(task, ending, rule):
    result = run(task)
    assert (result.ending, result.code) == (ending, 0)
    assert rule in result.why


def test_a_forged_end_does_not_hide_a_crash():
    result = run("raw_end_then_crash")
    assert (result.ending, result.code) == (Ending.SIGNALLED, signal.SIGSEGV)
    assert result.frames == (("begin", b"1"),)


def test_half_a_frame_is_no_frame():
    result = run("raw_half_a_frame")
    assert (result.ending, result.frames) == (Ending.EXITED, ())


def test_a_task_cannot_send_the_end_itself():
    result = run("send_reserved")
    assert (result.ending, result.code) == (Ending.EXITED, 1)


def test_more_than_the_total_is_too_large_and_keeps_what_fitted():
    result = run("large", inputs={"blob": b"x" * 1000}, total_bytes=1000)
    assert (result.ending, result.frames) == (Ending.TOO_LARGE, (("size", b"1000"),))


# What a job can reach


def test_the_parents_environment_is_not_visible(monkeypatch):
    monkeypatch.setenv("SIGNING_SECRET", "hunter2")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    seen = json.loads(run("environment").frames[0][1])
    assert sorted(seen) == [
        "HF_HUB_OFFLINE", "HOME", "LANG", "OMP_NUM_THREADS", "PATH",
        "TILELANG_CACHE_DIR", "TILELANG_DISABLE_CACHE", "TMPDIR", "TVM_FFI_DISABLE_TORCH_C_DLPACK",
    ]  # fmt: skip


def test_the_parents_environment_is_not_read_through_proc():
    result = run("look_up", inputs={"parent": str(os.getpid()).encode()})
    if result.isolation.level != "namespaces":
        pytest.skip("without namespaces a job is the same user as its parent, and may look")
    assert [name for name, _ in result.frames] == ["refused"]


def test_no_network_where_isolation_says_so():
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = run("connect", inputs={"port": str(server.getsockname()[1]).encode()})
    assert [name for name, _ in result.frames] == ["connected" if result.isolation.network else "refused"]


def test_memory_beyond_the_limit_is_refused():
    result = run("take_memory", memory_bytes=512 * MIB)
    assert (result.ending, result.code) == (Ending.EXITED, 1)
    assert b"MemoryError" in result.output


def test_a_file_beyond_the_limit_is_refused():
    result = run("write_file")
    assert (result.ending, result.code) == (Ending.EXITED, 1)
    assert b"File too large" in result.output


def test_a_program_that_the_job_starts_does_not_hold_the_frames():
    result = run("list_descriptors")
    assert result.ending is Ending.FINISHED
    assert result.frames[0][1].strip() == b"['0', '1', '2', '3']"  # 3 lists the folder


# What is left afterwards


@pytest.mark.parametrize("task", ["sleeper_in_session", "sleeper_daemon", "sleeper_and_crash"])
def test_a_grandchild_that_holds_the_pipes_neither_blocks_nor_survives(task):
    result = run(task)
    pid = int(result.frames[0][1])
    assert result.ending is (Ending.SIGNALLED if task == "sleeper_and_crash" else Ending.FINISHED)
    try:
        if result.isolation.own_pids:
            assert not alive(pid)
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_nothing_of_a_job_is_still_dying_when_its_end_is_told():
    result = run("slow_to_die")
    pid = int(result.frames[0][1])
    if not result.isolation.own_pids:
        os.kill(pid, signal.SIGKILL)
        pytest.skip("without its own pids, what a job starts may outlive it")
    assert result.ending is Ending.PROTOCOL
    assert not alive(pid)


def test_a_deaf_job_is_ended_all_the_same():
    result = run("hang_deaf", silence_s=0.5)
    assert result.ending is Ending.SILENT
    assert not alive(int(result.frames[0][1]))


def test_an_interrupt_of_the_caller_ends_the_job():
    pids = []

    def interrupt(_name, blob):
        pids.append(int(blob))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("hang_deaf", on_frame=interrupt)
    assert not alive(pids[0])


def test_a_job_does_not_outlive_a_killed_caller(tmp_path):
    script = (
        "import sys; sys.path.append(sys.argv[1]); import test_sandbox as t;"
        "t.run('hang_deaf', on_frame=lambda _, blob: print(blob.decode(), flush=True))"
    )
    command = [sys.executable, "-c", script, HERE]
    own_tmp = {**os.environ, "TMPDIR": str(tmp_path)}  # nobody is left to remove the job's folder
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=own_tmp) as caller:
        pid = int(caller.stdout.readline())
        job = os.pidfd_open(pid)
        caller.kill()
    gone = select.poll()
    gone.register(job, select.POLLIN)
    try:
        assert gone.poll(20_000)
    finally:
        os.close(job)


@pytest.mark.parametrize("task", ["litter", "nest"])
def test_the_private_folder_is_gone_whatever_was_left_in_it(task):
    result = run(task)
    assert result.ending is Ending.FINISHED
    folder = Path(result.frames[0][1].decode())
    assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()


def test_a_job_that_another_thread_stops_is_gone_and_has_no_result():
    """What Ctrl-C in the main thread asks for."""
    told = queue.SimpleQueue()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run, "hang_deaf", lambda _, blob: told.put(int(blob)))
        pid = told.get(timeout=60)
        stop_jobs()
        with pytest.raises(JobStopped):
            going.result()
    assert not alive(pid)
    stop_jobs()
    assert run("leave_at_once").ending is Ending.EXITED, "later jobs are not meant"


def test_descriptors_do_not_leak_into_the_caller():
    run("leave_at_once")
    before = sorted(Path("/proc/self/fd").iterdir())
    run("leave_at_once")
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_job_that_cannot_start_is_an_error_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(SandboxError, match="could not be started") as told:
        run("finish")
    assert "no-python" in told.value.where
    assert told.value.next_step


def test_a_start_that_fails_is_not_blamed_on_the_task(monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no standard library; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(SandboxError, match="failed before its task") as told:
        run("finish")
    assert told.value.why == "no standard library"


# Other users, other machines

OTHERWISE = """
import json, os, select, signal, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from tilegate.sandbox import Job, confine, run_job
from tilegate.records.isolation import Limits

if sys.argv[2] == "no namespaces":
    if not confine._enter_as_user(0):
        sys.exit("no user namespace to forbid namespaces in")
    for kind in ("user", "net", "pid"):
        Path(f"/proc/sys/user/max_{kind}_namespaces").write_text("0")

def survives(pid, patience_ms):
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    if poll.poll(patience_ms):
        return False
    signal.pidfd_send_signal(watched, signal.SIGKILL)
    return True

def run(task, **changed):
    limits = Limits(**{**json.loads(sys.argv[3]), **changed})
    job = Job(task="sandbox_workers:" + task, inputs={}, import_paths=tuple(json.loads(sys.argv[1])))
    result = run_job(job, limits)
    print(result.isolation.level, result.isolation.uid, task, result.ending.name, result.code)
    return result

run("abort")
run("hang", silence_s=0.2)
folder = run("litter").frames[0][1].decode()
print("left" if os.path.exists(folder) else "removed")
for task in ("sleeper_in_session", "sleeper_daemon"):
    result = run(task)
    # Where pids are shared, a kill has been sent but may not have been seen yet.
    patience_ms = 0 if result.isolation.own_pids or task == "sleeper_daemon" else 10_000
    print("survives" if survives(int(result.frames[0][1]), patience_ms) else "gone")
"""


def run_otherwise(python, way, **how):
    paths = [HERE, *(p for p in sys.path if p)] if python == sys.executable else [HERE, *_packages()]
    usual = {name: getattr(limits(), name) for name in Limits.__struct_fields__}
    command = [python, "-c", OTHERWISE, json.dumps(paths), way, json.dumps(usual)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/", **how)


def _packages():
    """tilegate's and msgspec's folders, for an interpreter that has neither."""
    import msgspec

    import tilegate.sandbox

    return [str(Path(tilegate.sandbox.__file__).parents[2]), str(Path(msgspec.__file__).parents[1])]


def test_a_machine_without_namespaces_says_process_and_still_ends_jobs():
    done = run_otherwise(sys.executable, "no namespaces")
    if "no user namespace" in done.stderr:
        pytest.skip("the other tests ran without namespaces already")
    uid = os.getuid()
    assert done.stdout.splitlines() == [
        f"process {uid} abort SIGNALLED 6",
        f"process {uid} hang SILENT 0",
        f"process {uid} litter FINISHED 0",
        "removed",
        f"process {uid} sleeper_in_session FINISHED 0",
        "gone",
        f"process {uid} sleeper_daemon FINISHED 0",
        "survives",
    ], done.stderr


def test_an_unprivileged_user_gets_namespaces_too():
    nobody = 65534
    if os.getuid() != 0:
        pytest.skip("not root: the other tests ran unprivileged already")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/python{here}"):
        probe = f"import sys; sys.path[:0] = {[HERE, *_packages()]!r}; import sandbox_workers"
        try:
            readable = subprocess.run([python, "-c", probe], user=nobody, group=nobody, extra_groups=[], cwd="/",
                                      check=False, capture_output=True).returncode == 0  # fmt: skip
        except OSError:
            readable = False
        if readable:
            break
    else:
        pytest.skip("no interpreter that another user may read")
    done = run_otherwise(python, "as it is", user=nobody, group=nobody, extra_groups=[])
    if f"process {nobody}" in done.stdout:
        pytest.skip("this machine gives no user namespaces to unprivileged users")
    assert done.stdout.splitlines() == [
        f"namespaces {nobody} abort SIGNALLED 6",
        f"namespaces {nobody} hang SILENT 0",
        f"namespaces {nobody} litter FINISHED 0",
        "removed",
        f"namespaces {nobody} sleeper_in_session FINISHED 0",
        "gone",
        f"namespaces {nobody} sleeper_daemon FINISHED 0",
        "gone",
    ], done.stderr


def test_limits_of_an_evaluation_know_a_hang_from_a_slow_plan():
    assert EVALUATE.silence_s < EVALUATE.wall_s
