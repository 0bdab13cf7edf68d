"""The door to a subprocess: whatever a job does, the caller gets a true account of it, and in time."""

import contextlib
import functools
import json
import os
import queue
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilegate.errors import SandboxError
from tilegate.records.isolation import JobPolicy, Level, Limits, Reads
from tilegate.sandbox import EVALUATE, Ending, Job, JobStopped, run_job, run_jobs, stop_jobs

HERE = str(Path(__file__).parent)
MIB = 1 << 20


POLICY = JobPolicy(
    kind="test",
    reads=(Reads.PYTHON,),
    limits=Limits(
        wall_s=30.0,
        silence_s=20.0,
        memory_bytes=1 << 30,
        job_bytes=1 << 30,
        processes=32,
        open_files=64,
        file_bytes=MIB,
        scratch_bytes=8 * MIB,
        files=2_000,
        frame_bytes=32 * MIB,
        total_bytes=64 * MIB,
        frames=10_000,
        output_bytes=4096,
    ),
)


@pytest.fixture(params=[Level.FULL, Level.REDUCED, Level.NONE], ids=lambda level: level.value, autouse=True)
def level(request):
    """Every test runs at each level that this machine can give."""
    if request.param not in available():
        pytest.skip(available.why)
    run.level = request.param
    return request.param


@functools.cache
def available():
    found = []
    for one in Level:
        try:
            run_job(job("greet", {"name": b""}), POLICY.at(one))
        except SandboxError as error:
            available.why = error.why
        else:
            found.append(one)
    return found


def job(task, inputs=None):
    return Job(task=f"sandbox_workers:{task}", inputs=inputs or {}, import_paths=run.paths)


def run(task, on_frame=None, inputs=None, **changed):
    return run_job(job(task, inputs), POLICY.at(run.level).within(**changed), on_frame=on_frame)


run.paths = (HERE,)


def fresh_name():
    return f"tg-{secrets.token_hex(5)}".encode()


def alive(name):
    """Processes of the whole machine that call themselves so, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            comm, _, rest = (entry / "stat").read_bytes().rpartition(b")")
            if comm.endswith(b"(" + name) and rest.split()[0] != b"Z":
                found.append(int(entry.name))
    return found


# Endings


def test_a_finished_job_returns_frames_output_and_isolation():
    seen = []
    result = run("finish", inputs={"b": b"2", "a": b"1"}, on_frame=lambda *frame: seen.append(frame))
    assert (result.ending, result.code, result.why) == (Ending.FINISHED, 0, "")
    assert result.frames[:2] == (("echo", b"a=1"), ("echo", b"b=2"))
    assert tuple(seen) == result.frames
    assert sorted(result.output.splitlines()) == [b"to stderr", b"to stdout"]
    assert result.output_total == len(result.output)
    assert result.isolation.level is run.level


def test_isolation_is_measured_and_not_what_was_asked_for(level):
    told = run("leave_at_once").isolation
    walls = (told.network, told.own_pids, told.own_files, told.filtered, told.landlock > 0)
    assert (
        walls
        == {
            Level.FULL: (False, True, True, True, True),
            Level.REDUCED: (False, False, False, True, True),
            Level.NONE: (True, False, False, False, False),
        }[level]
    )
    assert (told.uid != 0) == (level is not Level.NONE or os.getuid() != 0)


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
    name = fresh_name()

    def wait_for_the_crash(frame, _blob):
        while frame == "begin" and alive(name):
            time.sleep(0.01)

    result = run("crash_behind_a_full_pipe", on_frame=wait_for_the_crash, inputs={"name": name})
    assert (result.ending, result.code) == (Ending.SIGNALLED, signal.SIGSEGV)
    assert result.frames == (("begin", b"1"), ("late", b"x" * 900_000))


def test_an_exception_is_an_exit_with_its_traceback():
    result = run("fail")
    assert (result.ending, result.code) == (Ending.EXITED, 1)
    assert result.frames == (("begin", b"1"),)
    assert b"ValueError: the reason of the author" in result.output
    assert b"tilegate/sandbox" not in result.output


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


def test_the_parents_environment_is_not_read_through_proc(level):
    result = run("look_up", inputs={"parent": str(os.getpid()).encode()})
    assert [name for name, _ in result.frames] == ["found" if level is Level.NONE else "refused"]


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
    assert result.frames[0][1].strip() == b"[0, 1, 2]"


# What is left afterwards


@pytest.mark.parametrize("task", ["sleeper_in_session", "sleeper_daemon", "sleeper_and_crash"])
def test_a_grandchild_that_holds_the_pipes_neither_blocks_nor_survives(task):
    name = fresh_name()
    result = run(task, inputs={"name": name})
    assert result.ending is (Ending.SIGNALLED if task == "sleeper_and_crash" else Ending.FINISHED)
    assert not alive(name)


def test_nothing_of_a_job_is_still_dying_when_its_end_is_told():
    name = fresh_name()
    assert run("slow_to_die", inputs={"name": name}).ending is Ending.PROTOCOL
    assert not alive(name)


def test_a_deaf_job_is_ended_all_the_same():
    name = fresh_name()
    assert run("hang_deaf", silence_s=0.5, inputs={"name": name}).ending is Ending.SILENT
    assert not alive(name)


def test_an_interrupt_of_the_caller_ends_the_job():
    name, seen = fresh_name(), []

    def interrupt(_name, _blob):
        seen.extend(alive(name))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("hang_deaf", on_frame=interrupt, inputs={"name": name})
    assert seen
    assert not alive(name)


def test_a_job_does_not_outlive_a_killed_caller(tmp_path, level):
    name = fresh_name()
    script = (
        "import sys; sys.path.append(sys.argv[1]); import test_sandbox as t; t.run.level = t.Level(sys.argv[2]);"
        "t.run('hang_deaf', lambda *_: print('up', flush=True), {'name': sys.argv[3].encode()})"
    )
    command = [sys.executable, "-c", script, HERE, level.value, name.decode()]
    tmp_path.chmod(0o711)
    own_tmp = {**os.environ}
    if level is Level.NONE:
        own_tmp["TMPDIR"] = str(tmp_path)  # nobody is left to remove the job's folder
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=own_tmp) as caller:
        assert caller.stdout.readline() == b"up\n"
        jobs = [os.pidfd_open(pid) for pid in alive(name)]
        caller.kill()
    assert jobs
    for job_fd in jobs:
        gone = select.poll()
        gone.register(job_fd, select.POLLIN)
        assert gone.poll(20_000)
        os.close(job_fd)


@pytest.mark.parametrize("task", ["litter", "nest"])
def test_the_private_folder_is_gone_whatever_was_left_in_it(task):
    result = run(task)
    assert result.ending is Ending.FINISHED
    folder = Path(result.frames[0][1].decode())
    assert folder.is_relative_to(tempfile.gettempdir())
    assert not folder.exists()
    assert not folder.parent.name.startswith("tilegate-") or not folder.parent.exists()


def test_a_job_that_another_thread_stops_is_gone_and_has_no_result():
    """What Ctrl-C in the main thread asks for."""
    told, name = queue.SimpleQueue(), fresh_name()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run, "hang_deaf", lambda *_: told.put(1), {"name": name})
        told.get(timeout=60)
        stop_jobs()
        with pytest.raises(JobStopped):
            going.result()
    assert not alive(name)
    stop_jobs()
    assert run("leave_at_once").ending is Ending.EXITED, "later jobs are not meant"


def test_descriptors_do_not_leak_into_the_caller():
    run("leave_at_once")
    before = sorted(Path("/proc/self/fd").iterdir())
    run("leave_at_once")
    assert sorted(Path("/proc/self/fd").iterdir()) == before


# Limits on all processes of a job together


def test_a_fork_bomb_is_ended_before_it_is_one(level):
    result = run("fork_forever", silence_s=10.0, job_bytes=16 << 30)
    assert ("forked", b"300") not in result.frames or level is Level.NONE
    assert result.ending in {Ending.PROCESSES, *({Ending.EXITED} if level is not Level.NONE else set())}


def test_memory_is_counted_for_all_processes_of_a_job():
    """No process reaches the limit of a process, and together they hold more than a job may."""
    assert run("fill_memory_together").ending is Ending.MEMORY


# Several tasks in one sandbox


def run_all(*tasks, warm=(), parallel=2, **changed):
    return run_jobs(
        [job(task, inputs) for task, inputs in tasks], POLICY.at(run.level).within(**changed),
        warm=warm, parallel=parallel,
    )  # fmt: skip


def test_what_the_sandbox_warmed_is_there_in_every_task():
    results = run_all(*(("greet", {"name": name}) for name in (b"a", b"b", b"c")), warm=("colorsys",))
    assert [result.frames for result in results] == [
        (("hello", name + b" warm"),) for name in (b"a", b"b", b"c")
    ]


def test_a_task_that_crashes_hangs_or_floods_leaves_its_neighbours_alone():
    around = ("greet", {"name": b"still here"})
    results = run_all(
        around, ("dereference_null", {}), around, ("hang", {}), around, ("raw_garbage", {}), around,
        ("print_forever", {}), around, ("fail", {}), around, silence_s=1.0,
    )  # fmt: skip
    assert [result.ending for result in results[1::2]] == [
        Ending.SIGNALLED, Ending.SILENT, Ending.PROTOCOL, Ending.SILENT, Ending.EXITED,
    ]  # fmt: skip
    assert {result.frames for result in results[::2]} == {(("hello", b"still here"),)}
    assert {result.output for result in results[::2]} == {b""}


def test_the_task_that_takes_too_much_memory_is_ended_and_not_its_neighbour():
    slow = ("chatter", {})
    fat, thin = run_all(("fill_memory_together", {}), slow, wall_s=4.0, frames=1_000_000)
    assert (fat.ending, thin.ending) == (Ending.MEMORY, Ending.WALL)


def test_a_sandbox_that_is_lost_loses_what_ran_in_it_and_nothing_behind(level):
    """The kernel may kill any process: here a task kills the one that keeps them all, where it can."""
    meddler, after = run_all(("meddle", {}), ("greet", {"name": b"after"}), parallel=1)
    assert after.frames == (("hello", b"after"),)
    if level is Level.NONE:
        assert meddler.ending in (Ending.SIGNALLED, Ending.SILENT)
    else:
        assert (meddler.ending, meddler.frames) == (Ending.FINISHED, (("done", b"0"),))


def test_no_task_is_no_sandbox():
    assert run_all() == []


def test_the_level_for_a_gpu_keeps_the_walls_of_reduced_beside_the_driver(once):
    """On a machine without one: what is opened for the driver opens nothing else."""
    del once
    run.level = Level.GPU
    told = run("leave_at_once").isolation
    assert (told.level, told.network, told.filtered, told.landlock > 0) == (Level.GPU, False, True, True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        tried = run("connect", inputs={"port": str(server.getsockname()[1]).encode()})
    assert [name for name, _ in tried.frames] == ["refused"]
    looked = run("look_up", inputs={"parent": str(os.getpid()).encode()})
    assert [name for name, _ in looked.frames] == ["refused"]
    assert run("meddle").frames == (("done", b"0"),)
    assert run("fill_memory_together").ending is Ending.MEMORY


# Where the machine does not give what was asked for


@pytest.fixture
def once(level):
    """For what does not depend on the level."""
    if level is not Level.NONE:
        pytest.skip("one level tells it all")


@pytest.mark.usefixtures("once")
def test_a_job_that_cannot_start_is_an_error_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(SandboxError, match="could not be started") as told:
        run("finish")
    assert "no-python" in told.value.where
    assert told.value.next_step


@pytest.mark.usefixtures("once")
def test_a_start_that_fails_is_not_blamed_on_the_task(monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no standard library; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(SandboxError, match="failed before its task") as told:
        run("finish")
    assert told.value.why == "no standard library"


# Other users

OTHERWISE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
import test_sandbox as t
t.run.paths = tuple(json.loads(sys.argv[1]))
for level in (t.Level.FULL, t.Level.REDUCED):
    t.run.level = level
    for task, limits in (("abort", {}), ("hang", {"silence_s": 0.3}), ("litter", {}), ("sleeper_daemon", {}),
                         ("fork_forever", {"silence_s": 10.0}), ("meddle", {})):
        name = t.fresh_name()
        result = t.run(task, inputs={"name": name}, **limits)
        print(result.isolation.level.value, result.isolation.uid, task, result.ending.name, len(t.alive(name)))
"""


@pytest.mark.usefixtures("once")
def test_an_ordinary_user_gets_the_same_walls():
    nobody, python = 65534, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if os.getuid() != 0:
        pytest.skip("not root: the other tests ran as an ordinary user already")
    if not Path(python).exists():
        pytest.skip("no interpreter that another user may read")
    paths = [HERE, *(p for p in sys.path if p.endswith(("site-packages", "src")))]
    done = subprocess.run([python, "-c", OTHERWISE, json.dumps(paths)], capture_output=True, text=True, timeout=120,
                          check=False, cwd="/", user=nobody, group=nobody, extra_groups=[])  # fmt: skip
    expected = ["abort SIGNALLED 0", "hang SILENT 0", "litter FINISHED 0", "sleeper_daemon FINISHED 0"]
    lines = done.stdout.splitlines()
    for word in ("full", "reduced"):
        told = [line for line in lines if line.startswith(word)]
        assert told[:4] == [f"{word} {nobody} {line}" for line in expected], done.stderr
        assert told[4].split()[3] in ("PROCESSES", "EXITED", "MEMORY")  # each fork counts for pages it shares
        assert told[5] == f"{word} {nobody} meddle FINISHED 0"


@pytest.mark.usefixtures("once")
def test_limits_of_an_evaluation_know_a_hang_from_a_slow_plan():
    assert EVALUATE.limits.silence_s < EVALUATE.limits.wall_s
