"""SIGKILL at any moment, or no room left: nothing recorded is lost, nothing is half there, the next command works."""

import itertools
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from tests.kill_child import TOOLS, Parent, revise, write_project
from tilegate import pipeline
from tilegate.errors import StoreError
from tilegate.pipeline.promote import read_release
from tilegate.records.canonical import digest_of, encode
from tilegate.records.evaluation import EntryVerdict
from tilegate.store.layout import Layout
from tilegate.store.workspace import Workspace

KILLS = 16
"""At random moments, of each verb; besides those at every step that can be seen on the disk, some 200 in all."""

STEPS = {"build": 30, "evaluate": 16, "promote": 6, "promote first": 24, "gc": 16}
"""At least so many are found: below it the harness has lost sight of some."""


@pytest.fixture(scope="module")
def parent():
    parent = Parent()
    yield parent
    parent.close()


@pytest.fixture
def folder():
    """A project in memory where that is possible: a kill does not care, and flushing a disk takes time."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as name:
        folder = Path(name) / "project"
        write_project(folder)
        yield folder


def workspace_of(folder):
    return Workspace(folder / ".tilegate")


def is_whole(folder):
    report = pipeline.store.check(folder)
    assert report.faults == ()
    return report


def matrix_survives_the_loss_of_the_index(folder):
    before = pipeline.status(folder)
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (folder / ".tilegate" / name).unlink(missing_ok=True)
    assert pipeline.status(folder) == before


def statement(folder):
    where = folder / "release"
    return Layout(where).open_statement() if read_release(where) else None


class Build:
    """Killed while it builds a new revision."""

    def prepare(self, folder, number):
        revise(folder, number + 1)

    def judge(self, folder):
        report = pipeline.build(folder, tools=TOOLS)
        assert report.accepted
        assert len(report.lines) == 2
        assert {line.manifest for line in report.lines} <= {d for d, _ in workspace_of(folder).manifests()}
        assert all(line.cached for line in pipeline.build(folder, tools=TOOLS).lines)


class Evaluate:
    """Killed while it adds to evidence that there is."""

    def prepare(self, folder, number):
        if number % 10 == 0:
            revise(folder, number + 1)
            pipeline.build(folder, tools=TOOLS)
        self.evaluations = self.count(folder)

    def judge(self, folder):
        assert self.evaluations <= (now := self.count(folder)) <= self.evaluations + 2
        pipeline.evaluate(folder, tools=TOOLS)
        assert self.count(folder) == now + 2

    def count(self, folder):
        workspace = workspace_of(folder)
        return sum(len(workspace.evaluations(digest)) for digest, _ in workspace.manifests())


class Promote:
    """Killed while it switches to the next release."""

    def prepare(self, folder, number):
        if number % 5 == 0:
            revise(folder, number + 1)
            pipeline.build(folder, tools=TOOLS)
            pipeline.evaluate(folder, tools=TOOLS)
        self.old = statement(folder)
        elsewhere = folder.parent / "elsewhere"
        pipeline.promote(folder, release=elsewhere)
        version = read_release(folder / "release").version + 1 if self.old else 1
        self.new = encode(structs.replace(read_release(elsewhere), version=version))

    def judge(self, folder):
        assert statement(folder) in (self.old, self.new)
        assert pipeline.promote(folder).release
        assert statement(folder) is not None


class PromoteFirst(Promote):
    """Killed while it makes the first release."""

    def prepare(self, folder, number):
        shutil.rmtree(folder / "release", ignore_errors=True)
        super().prepare(folder, number)


class Collect:
    """Killed while it removes superseded artifacts, content that nothing names, and leftovers."""

    def prepare(self, folder, number):
        template = folder.parent / "template"
        if number == 0:
            self.fill(folder)
            shutil.copytree(folder, template)
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
        self.release, self.matrix = statement(folder), pipeline.status(folder)
        self.failures = self.failed(workspace_of(folder))

    def fill(self, folder):
        """Revisions: 0 released, 1 and 2 evaluated, 3 built, 4 current."""
        pipeline.promote(folder)
        for revision in (1, 2, 3, 4):
            revise(folder, revision)
            pipeline.build(folder, tools=TOOLS)
            if revision in (1, 2):
                pipeline.evaluate(folder, tools=TOOLS)
        workspace_of(folder).blobs.put(b"named by nothing")
        for where in (folder / ".tilegate", folder / "release"):
            (where / "tmp-0123456789abcdef").touch()

    def judge(self, folder):
        assert pipeline.status(folder) == self.matrix
        pipeline.store.gc(folder, superseded=True, grace_s=0)
        workspace = workspace_of(folder)
        assert not workspace.blobs.has(digest_of(b"named by nothing"))
        built = [manifest.elaboration.kernel for _, manifest in workspace.manifests()]
        assert sorted(built) == ["tail"] * 4 + ["whole"] * 2  # of 3, where nothing failed, neither is left
        assert self.failed(workspace) == self.failures
        assert (statement(folder), pipeline.status(folder)) == (self.release, self.matrix)
        assert is_whole(folder).leftovers == 0

    def failed(self, workspace):
        """Failures by artifact: they are never removed."""
        return {
            (manifest, digest)
            for manifest, _ in workspace.manifests()
            for digest, evaluation in workspace.evaluations(manifest)
            if any(result.verdict is not EntryVerdict.PASSED for result in evaluation.results)
        }


ROUNDS = {
    "build": ("build", Build),
    "evaluate": ("evaluate", Evaluate),
    "promote": ("promote", Promote),
    "promote first": ("promote", PromoteFirst),
    "gc": ("gc", Collect),
}


class Campaign:
    """One kill after the other on one project, each judged before the next."""

    def __init__(self, parent, folder, case):
        self.parent, self.folder = parent, folder
        self.verb, kind = ROUNDS[case]
        self.round, self.numbers, self.told = kind(), itertools.count(), set()
        pipeline.build(folder, tools=TOOLS)
        pipeline.evaluate(folder, tools=TOOLS)

    def kill(self, *, stop=None, after_s=None):
        """Whether the verb was killed before it had ended, and how long it took (s)."""
        self.round.prepare(self.folder, next(self.numbers))
        (pid,) = self.parent.start((self.verb, self.folder, stop))
        begun = time.monotonic()
        if after_s is not None:
            time.sleep(after_s)
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(pid, signal.SIGKILL)
        recorded, errors, (status,) = self.parent.wait()
        took_s = time.monotonic() - begun
        assert not errors
        assert status in (0, signal.SIGKILL)
        self.told = set(recorded) if self.verb == "gc" else self.told | set(recorded)
        is_whole(self.folder)
        assert self.told <= set(workspace_of(self.folder).index.documents())
        self.round.judge(self.folder)
        return status == signal.SIGKILL, took_s

    def end(self):
        is_whole(self.folder)
        matrix_survives_the_loss_of_the_index(self.folder)


@pytest.mark.parametrize("case", ROUNDS)
def test_a_kill_at_every_step_loses_nothing_and_the_next_command_works(case, parent, folder):
    campaign = Campaign(parent, folder, case)
    kills = 0
    while campaign.kill(stop=kills)[0]:
        kills += 1
    assert kills >= STEPS[case]
    campaign.end()


@pytest.mark.parametrize("case", ROUNDS)
def test_a_kill_at_any_moment_loses_nothing_and_the_next_command_works(case, parent, folder):
    campaign = Campaign(parent, folder, case)
    chance = random.Random(f"kills of {case}")
    took_s = statistics.median(campaign.kill()[1] for _ in range(3))
    kills = sum(campaign.kill(after_s=chance.uniform(0, took_s))[0] for _ in range(KILLS))
    assert kills >= KILLS / 4
    campaign.end()


# No room left


@pytest.fixture
def disk():
    """A small disk of its own: tmpfs, which only root can mount."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def leave(disk, free_bytes):
    """Fill a disk so that no more than this is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        status = os.statvfs(disk)
        file.write(bytes(max(0, status.f_bavail * status.f_frsize - free_bytes)))
    return ballast


def is_told_on_one_screen(text):
    assert "the disk is full" in text
    assert "next: make room there" in text
    assert len(text.splitlines()) <= 6


@pytest.mark.parametrize("verb", ["build", "evaluate", "promote"])
def test_a_disk_that_fills_up_at_any_point_is_said_and_spoils_nothing(verb, parent, disk):
    folder = disk / "project"
    write_project(folder)
    for before in ("build", "evaluate", "promote"):
        parent.run((before, folder))
    if verb == "build":
        revise(folder, 1)
    known = set(workspace_of(folder).index.documents())
    old = statement(folder)
    for pages in itertools.count():
        ballast = leave(disk, pages * 4096)
        recorded, errors, (status,) = parent.run((verb, folder))
        ballast.unlink()
        known |= set(recorded)
        is_whole(folder)
        assert known <= set(workspace_of(folder).index.documents())
        if not errors:
            break
        assert os.waitstatus_to_exitcode(status) == StoreError.exit_code
        is_told_on_one_screen(errors[0])
        assert statement(folder) == old
    assert pages > 0
    assert status == 0
    matrix_survives_the_loss_of_the_index(folder)


def test_gc_makes_room_on_a_full_disk(parent, disk):
    folder = disk / "project"
    write_project(folder)
    parent.run(("build", folder))
    workspace_of(folder).blobs.put(b"named by nothing" * 1000)
    leave(disk, 0)
    assert parent.run(("gc", folder))[1:] == ([], [0])
    assert not workspace_of(folder).blobs.has(digest_of(b"named by nothing" * 1000))
    (disk / "ballast").unlink()
    is_whole(folder)


# With the real compiler


QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart"


@pytest.fixture
def quickstart(tmp_path):
    return copy_quickstart(tmp_path / "quickstart")


def copy_quickstart(folder):
    return shutil.copytree(
        QUICKSTART, folder, ignore=shutil.ignore_patterns(".tilegate", "release", "__pycache__")
    )


def edit(folder, number):
    kernels = folder / "kernels.py"
    kernels.write_text(f"{kernels.read_text()}\n# revision {number}\n")


def command(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "tilegate", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def done(*words):
    with command(*words) as process:
        told, said = process.communicate()
    return process.returncode, told, said


def works(*words):
    code, told, said = done(*words)
    assert code == 0, told + said


def descendants(pid):
    """Every process below this one, as (pid, when it began): a number may be given out again."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name), fields[19]] = int(fields[1])
    found, pending = set(), {pid}
    while pending:
        below = {one for one, parent in parents.items() if parent in pending} - found
        found |= below
        pending = {one for one, _ in below}
    return found


def alive(processes):
    for pid, began in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[19] == began and fields[0] != "Z":
                yield pid


@pytest.mark.long
@pytest.mark.compiler
@pytest.mark.parametrize(("verb", "kills"), [("build", 4), ("evaluate", 3), ("promote", 3)])
def test_killing_the_real_thing_loses_nothing_and_leaves_no_job_behind(verb, kills, quickstart):
    took_s = {}
    for each in ("build", "evaluate", "promote"):
        began = time.monotonic()
        works(each, "gemm", "-C", quickstart)
        took_s[each] = time.monotonic() - began
    chance = random.Random(f"real kills of {verb}")
    for number in range(kills):
        if verb == "build":
            edit(quickstart, number)
        known = set(workspace_of(quickstart).index.documents())
        old = statement(quickstart)
        with command(verb, "gemm", "-C", quickstart) as process:
            time.sleep(chance.uniform(0.2, 1) * took_s[verb])
            jobs = descendants(process.pid)
            process.kill()
        until = time.monotonic() + 10
        while left := list(alive(jobs)):
            assert time.monotonic() < until, left
            time.sleep(0.05)
        is_whole(quickstart)
        assert known <= set(workspace_of(quickstart).index.documents())
        assert verb == "promote" or statement(quickstart) == old
        works(verb, "gemm", "-C", quickstart)
        is_whole(quickstart)
    matrix_survives_the_loss_of_the_index(quickstart)


@pytest.mark.long
@pytest.mark.compiler
def test_a_build_on_a_full_disk_says_so_and_goes_through_once_there_is_room(disk):
    folder = copy_quickstart(disk / "quickstart")
    ballast = leave(disk, 64 * 1024)
    code, told, said = done("build", "gemm", "-C", folder)
    assert (code, told) == (StoreError.exit_code, "")
    is_told_on_one_screen(said)
    ballast.unlink()
    works("build", "gemm", "-C", folder)
    is_whole(folder)
