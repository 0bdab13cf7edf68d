"""The workspace: nothing half-written, nothing lost, nothing doubled, nothing taken for what it is not."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegate.errors import RecordError, SchemaError, StoreError
from tilegate.records.artifact import ABI, Elaboration, Manifest
from tilegate.records.canonical import Blob, blob_of, digest_of, encode
from tilegate.records.closure import Binding, Closure, Specialization
from tilegate.records.contract import Contract, NonFinite, Tolerance
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import Evaluation, Vouch
from tilegate.records.isolation import Isolation, Level
from tilegate.records.plan import Plan
from tilegate.records.policy import Policy
from tilegate.records.profile import Profile
from tilegate.records.release import Release
from tilegate.records.target import DeviceClass, Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace, ErrorClass, Stage
from tilegate.store.blobs import Blobs
from tilegate.store.files import store_error
from tilegate.store.index import Index
from tilegate.store.workspace import Workspace

V3, V4 = (Target(backend="cpu", arch=arch) for arch in ("x86-64-v3", "x86-64-v4"))
ISOLATION = Isolation(
    level=Level.REDUCED,
    network=False,
    own_pids=False,
    own_files=False,
    filtered=True,
    landlock=7,
    cgroup=False,
    uid=60600,
)


def contract(name="rms_norm"):
    return Contract(
        name=name, inputs=(), outputs=(), dtypes={}, attributes=(), in_place=(), tolerance=Tolerance(),
        non_finite=NonFinite.EXCLUDED, values={}, reference=digest_of(name.encode()),
    )  # fmt: skip


def elaboration(operator="rms_norm", kernel="rows"):
    return Elaboration(
        operator=operator, kernel=kernel, contract=contract(operator).digest, closure=digest_of(b"closure"),
        specialization=Specialization(), entry="main", tensors=(), symbols=("tokens",), tiles={}, stages=(),
        pass_configs={}, ir=digest_of(b"ir"),
    )  # fmt: skip


def manifest(operator="rms_norm", kernel="rows", target=V3):
    return Manifest(
        abi=ABI, elaboration=elaboration(operator, kernel), target=target, toolchain=Toolchain(versions={}),
        isolation=(ISOLATION,), identity="identity", library=blob_of(b"library"),
    )  # fmt: skip


def evaluation(of, plan="plan"):
    return Evaluation(
        contract=of.elaboration.contract, manifest=digest_of(encode(of)), library=of.library.digest,
        plan=digest_of(plan.encode()), device=DeviceClass(backend="cpu", arch="x86-64-v3", model="a model"),
        versions={}, isolation=ISOLATION, vouch=Vouch.OBSERVED, results=(),
    )  # fmt: skip


def trace(operator="rms_norm", line=1):
    return CompilerTrace(
        stage=Stage.ELABORATE, error=ErrorClass.LOWERING, template="no-layout", operator=operator,
        numbers={"line": line},
    )  # fmt: skip


def declaration(operator="rms_norm"):
    return Declaration(operator=f"package.module:{operator}", contract=contract(operator), served=())


def one_of_each():
    built = manifest()
    closure = Closure(binding=Binding(operator="p.m:rms_norm", factory="p.k:rows", kernel="rows"), files=())
    plan = Plan(contract=contract().digest, manifest=digest_of(encode(built)), nonce="nonce", entries=())
    release = Release(version=1, policy=Policy(), contracts=(), candidates=())
    return [
        declaration(), closure, elaboration(), built, plan, evaluation(built), trace(), trace(None), release,
    ]  # fmt: skip


def rows(root):
    """The whole index as it stands in the file, in order."""
    query = "SELECT digest, schema, operator, kernel, target, contract, manifest FROM documents ORDER BY seq"
    with closing(sqlite3.connect(root / "index.sqlite")) as db:
        return db.execute(query).fetchall()


def damage(blobs, digest, data):
    blobs.path(digest).unlink()
    blobs.path(digest).write_bytes(data)


def child(code, *arguments, **options):
    """A process of its own, in which the names of this file are at hand."""
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


# Blobs


@settings(max_examples=50, deadline=None)
@given(contents=st.lists(st.binary(max_size=64), max_size=8))
def test_every_content_that_was_put_is_got(contents):
    """get(put(data).digest) == data, and the digests are those of the contents, each once."""
    with tempfile.TemporaryDirectory() as folder:
        blobs = Blobs(Path(folder) / "workspace")
        put = [blobs.put(data) for data in contents]
        assert [blobs.get(blob.digest) for blob in put] == contents
        assert [blob.size for blob in put] == [len(data) for data in contents]
        assert sorted(blobs) == sorted({digest_of(data) for data in contents})


def test_putting_again_leaves_the_file_alone(tmp_path):
    blobs = Blobs(tmp_path)
    path = blobs.path(blobs.put(b"data").digest)
    before = path.stat()
    blobs.put(b"data")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_digests_come_oldest_first(tmp_path):
    blobs = Blobs(tmp_path)
    put = [blobs.put(bytes([n])).digest for n in range(20)]
    assert list(blobs) == put
    assert put != sorted(put)


@pytest.mark.parametrize("found", [b"dat", b"datA", b"data ", b""])
def test_a_corrupt_blob_is_never_returned(tmp_path, found):
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"data").digest
    damage(blobs, digest, found)
    with pytest.raises(StoreError, match=digest) as caught:
        blobs.get(digest)
    assert caught.value.where == str(blobs.path(digest))
    assert digest_of(found) in caught.value.why
    assert caught.value.next_step


def test_a_corrupt_blob_is_mended_by_putting_it_again(tmp_path):
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"data").digest
    damage(blobs, digest, b"datA")
    blobs.put(b"data")
    assert blobs.get(digest) == b"data"


def test_a_missing_blob_says_what_makes_it(tmp_path):
    with pytest.raises(StoreError, match="does not hold") as caught:
        Blobs(tmp_path / "nowhere").get(digest_of(b"data"))
    assert "tilegate build" in caught.value.next_step
    assert not (tmp_path / "nowhere").exists()


def test_a_symbolic_link_is_no_blob_and_is_never_written_through(tmp_path):
    blobs = Blobs(tmp_path / "workspace")
    digest = blobs.put(b"data").digest
    blobs.path(digest).unlink()
    (tmp_path / "elsewhere").write_bytes(b"data")
    blobs.path(digest).symlink_to(tmp_path / "elsewhere")
    assert not blobs.has(digest)
    with pytest.raises(StoreError, match=digest) as caught:
        blobs.get(digest)
    assert "symbolic link" in caught.value.why
    (tmp_path / "elsewhere").write_bytes(b"precious")
    blobs.put(b"data")
    assert blobs.get(digest) == b"data"
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


def test_a_fifo_in_place_of_a_blob_does_not_hang(tmp_path):
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"data").digest
    blobs.path(digest).unlink()
    os.mkfifo(blobs.path(digest))
    with pytest.raises(StoreError) as caught:
        blobs.get(digest)
    assert "not a regular file" in caught.value.why


@pytest.mark.parametrize("digest", ["sha256:../../../etc/passwd", "sha256:" + "0" * 64 + "\n", "", "0" * 64])
def test_a_digest_never_walks_out_of_the_workspace(tmp_path, digest):
    for ask in (Blobs(tmp_path).get, Blobs(tmp_path).has):
        with pytest.raises(StoreError, match="not a sha256 digest"):
            ask(digest)


def test_leftovers_of_a_killed_process_are_not_blobs(tmp_path):
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"data").digest
    (blobs.path(digest).parent / "tmp-0123456789abcdef").write_bytes(b"half a bl")
    assert list(blobs) == [digest]
    assert Index(tmp_path, blobs).rebuild() == 0


def test_the_output_of_a_job_cannot_pass_for_evidence(tmp_path):
    """A factory could return, as its IR, the bytes of an evaluation in which everything passed."""
    workspace = Workspace(tmp_path / "workspace")
    with pytest.raises(StoreError, match=r"calls itself a tilegate\.evaluation/2"):
        workspace.blobs.put(encode(evaluation(manifest())))
    assert not (tmp_path / "workspace").exists()


def test_a_record_of_another_schema_is_told_as_such(tmp_path):
    blobs = Blobs(tmp_path)
    digest = blobs.put_record(trace()).digest
    with pytest.raises(SchemaError, match="compiler-trace/1"):
        blobs.get_record(Manifest, digest)
    newer = encode(trace()).replace(b"compiler-trace/1", b"compiler-trace/2")
    blobs.path(digest_of(newer)).write_bytes(newer)
    with pytest.raises(SchemaError, match="compiler-trace/2") as caught:
        blobs.get_record(CompilerTrace, digest_of(newer))
    assert caught.value.where == str(blobs.path(digest_of(newer)))


def test_a_record_in_another_spelling_is_refused(tmp_path):
    blobs = Blobs(tmp_path)
    digest = blobs.put(b'{ "versions": {} }').digest
    with pytest.raises(RecordError):
        blobs.get_record(Toolchain, digest)


PUTTER = """
import sys
from pathlib import Path
from test_store import Blobs
blobs = Blobs(Path(sys.argv[1]))
for n in range(100_000):
    print(blobs.put(f"{sys.argv[2]} {n} ".encode() * 20_000).digest, flush=True)
"""


@pytest.mark.parametrize("after", [1, 3, 8, 20])
def test_a_killed_writer_leaves_whole_blobs_and_none_it_acknowledged_is_lost(tmp_path, after):
    with child(PUTTER, tmp_path, after) as writer:
        acknowledged = [writer.stdout.readline().strip() for _ in range(after)]
        writer.kill()
    blobs = Blobs(tmp_path)
    found = list(blobs)
    assert set(acknowledged) <= set(found)
    for digest in found:
        blobs.get(digest)


KILLED_WHILE_WRITING = """
import resource, signal, sys
from pathlib import Path
from test_store import Blobs
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
Blobs(Path(sys.argv[1])).put(b"x" * 1001)
"""


def test_a_writer_killed_in_the_middle_of_a_write_leaves_no_blob(tmp_path):
    """The kernel kills it at byte 1000 of 1001: what is on disk then is half a blob, under no blob's name."""
    with child(KILLED_WHILE_WRITING, tmp_path) as writer:
        pass
    assert writer.returncode == -signal.SIGXFSZ
    blobs = Blobs(tmp_path)
    (leftover,) = (tmp_path / "blobs" / "sha256").iterdir()
    assert leftover.stat().st_size == 1000
    assert list(blobs) == []
    assert blobs.get(blobs.put(b"x" * 1001).digest) == b"x" * 1001


FULL = """
import resource, sys
from pathlib import Path
from test_store import Blobs, StoreError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Blobs(Path(sys.argv[1])).put(b"x" * 1001)
except StoreError as error:
    print(error)
"""


def test_a_write_that_the_disk_cuts_short_leaves_nothing(tmp_path):
    with child(FULL, tmp_path) as writer:
        said = writer.stdout.read()
    assert "cannot write to the workspace" in said
    assert "larger than this process may write" in said
    assert list((tmp_path / "blobs" / "sha256").iterdir()) == []


def test_a_full_disk_is_said_in_words(tmp_path):
    """The error is the one that the kernel gives for a full disk."""
    with (
        pytest.raises(OSError, match="No space") as caught,
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert store_error(caught.value, what="w", where=tmp_path, next_step="n").why == "the disk is full"


READ_ONLY = """
import os, sys
from pathlib import Path
from test_store import StoreError, Workspace, trace
if os.getuid() == 0:
    os.setuid(65534)  # permissions mean nothing to root
try:
    Workspace(Path(sys.argv[1])).record(trace())
except StoreError as error:
    print(error)
"""


def test_a_read_only_workspace_is_said_in_words():
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "workspace").mkdir()
        folder.chmod(0o755)
        (folder / "workspace").chmod(0o555)
        with child(READ_ONLY, folder / "workspace") as writer:
            said = writer.stdout.read()
    finally:
        shutil.rmtree(folder)
    assert "cannot write to the workspace" in said
    assert "read-only for this user" in said
    assert "next: " in said


def test_a_file_in_place_of_the_workspace_is_said_in_words(tmp_path):
    (tmp_path / "workspace").touch()
    workspace = Workspace(tmp_path / "workspace")
    with pytest.raises(StoreError, match="something else stands in its place"):
        workspace.record(trace())
    with pytest.raises(StoreError):
        workspace.traces()


# Index and workspace


def test_asking_a_workspace_that_is_not_there_creates_nothing(tmp_path):
    workspace = Workspace(tmp_path / "workspace")
    assert workspace.manifests() == []
    assert workspace.evaluations(digest_of(b"")) == []
    assert workspace.traces() == []
    assert workspace.declarations() == []
    assert list(tmp_path.iterdir()) == []


def test_documents_come_back_by_what_they_are_about(tmp_path):
    workspace = Workspace(tmp_path)
    built = [manifest(), manifest(kernel="other"), manifest("softmax"), manifest(target=V4)]
    evidence = [evaluation(built[0]), evaluation(built[1]), evaluation(built[0], "another plan")]
    traces = [trace(), trace("softmax"), trace(None)]
    for document in (*built, *evidence, *traces, declaration(), declaration("softmax")):
        workspace.record(document)

    def found(pairs):
        for digest, record in pairs:
            assert digest == digest_of(encode(record))
        return [record for _, record in pairs]

    assert found(workspace.manifests()) == built
    assert found(workspace.manifests("rms_norm")) == [built[0], built[1], built[3]]
    assert found(workspace.manifests(target=V3)) == built[:3]
    assert found(workspace.manifests("softmax", V4)) == []
    assert found(workspace.evaluations(digest_of(encode(built[0])))) == [evidence[0], evidence[2]]
    assert found(workspace.traces()) == traces
    assert found(workspace.traces("softmax")) == [traces[1]]
    assert found(workspace.declarations()) == [declaration(), declaration("softmax")]


def test_a_document_that_no_query_asks_for_is_found_by_digest(tmp_path):
    workspace = Workspace(tmp_path)
    blob = workspace.record(Profile(lines=()))
    assert workspace.load(Profile, blob.digest) == Profile(lines=())


def test_recording_again_neither_doubles_nor_reorders(tmp_path):
    workspace = Workspace(tmp_path)
    for document in [*one_of_each(), *reversed(one_of_each())]:
        workspace.record(document)
    assert [row[0] for row in rows(tmp_path)] == [digest_of(encode(d)) for d in one_of_each()]


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(9)), kept=st.integers(0, 9))
def test_a_rebuilt_index_is_the_one_that_was_lost(order, kept):
    """Rows derive from the blobs alone: deleting the index loses nothing, not even the order."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        workspace = Workspace(root)
        workspace.blobs.put(b"a source, not a record")
        workspace.record(declaration("first"))
        for place in order[:kept]:
            workspace.record(one_of_each()[place])
        before = rows(root)
        (root / "index.sqlite").unlink()
        workspace.declarations()
        assert rows(root) == before
        assert workspace.index.rebuild() == len(before) == kept + 1
        assert rows(root) == before


def test_a_record_whose_writer_died_before_the_index_is_found_by_rebuilding(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.record(declaration())
    workspace.blobs.put_record(trace())
    assert workspace.traces() == []
    workspace.index.rebuild()
    assert [record for _, record in workspace.traces()] == [trace()]


def test_an_index_of_another_version_is_filled_anew(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.record(trace())
    before = rows(tmp_path)
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as db:
        db.executescript("DROP TABLE documents; CREATE TABLE documents (other); PRAGMA user_version = 99")
    assert len(workspace.traces()) == 1
    assert rows(tmp_path) == before


DIES_WITH_A_LOG = """
import os, signal, sqlite3, sys
from pathlib import Path
from test_store import Workspace, declaration, trace
workspace = Workspace(Path(sys.argv[1]))
workspace.record(declaration())
reader = sqlite3.connect(Path(sys.argv[1]) / "index.sqlite")
reader.execute("SELECT count(*) FROM documents").fetchall()  # keeps the log from being folded in
workspace.index.rebuild()
workspace.record(trace())
workspace.blobs.put_record(trace("softmax"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_index_deleted_after_a_crash_is_not_spoiled_by_the_log_that_stayed(tmp_path):
    with child(DIES_WITH_A_LOG, tmp_path):
        pass
    assert (tmp_path / "index.sqlite-wal").stat().st_size > 0
    (tmp_path / "index.sqlite").unlink()
    workspace = Workspace(tmp_path)
    assert len(workspace.declarations()) == 1
    assert len(workspace.traces()) == 2  # the log knows of one; the blobs know of both
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_row_survives_the_death_of_its_writer(tmp_path):
    with child(DIES_WITH_A_LOG, tmp_path):
        pass
    assert len(Workspace(tmp_path).traces()) == 1


def test_a_corrupt_index_says_how_to_mend_it(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.record(trace())
    (tmp_path / "index.sqlite").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StoreError, match="corrupt") as caught:
        workspace.traces()
    assert caught.value.next_step == "tilegate store rebuild   (it fills the index anew from the blobs)"
    assert workspace.rebuild() == 1
    assert len(workspace.traces()) == 1


def test_a_locked_index_says_who_to_wait_for(tmp_path):
    blobs = Blobs(tmp_path)
    digest = blobs.put_record(trace()).digest
    index = Index(tmp_path, blobs, wait_s=0.01)
    index.rebuild()
    with closing(sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked") as caught:
            index.insert(digest, trace())
        assert "other tilegate command" in caught.value.next_step
        assert index.traces() == [digest]  # reading goes on beside a writer


def test_a_record_that_is_named_but_damaged_is_not_left_out(tmp_path):
    workspace = Workspace(tmp_path)
    digest = workspace.record(trace()).digest
    damage(workspace.blobs, digest, b"{}")
    for ask in (workspace.traces, workspace.index.rebuild):
        with pytest.raises(StoreError, match=digest):
            ask()


RECORDER = """
import sys
from pathlib import Path
from test_store import Workspace, trace
workspace = Workspace(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(3):
    workspace.record(trace("shared", n))
    workspace.record(trace(f"own{sys.argv[2]}", n))
"""


def test_eight_processes_at_once_lose_nothing_and_double_nothing(tmp_path):
    """They meet on a workspace that does not exist yet, so making the index is contested as well."""
    root = tmp_path / "workspace"
    recorders = [child(RECORDER, root, n, stdin=subprocess.PIPE) for n in range(8)]
    for recorder in recorders:
        assert recorder.stdout.readline() == "ready\n"
    for recorder in recorders:
        recorder.stdin.write("go\n")
        recorder.stdin.flush()
    for recorder in recorders:
        recorder.communicate()
        assert recorder.returncode == 0
    wanted = [trace("shared", n) for n in range(3)]
    wanted += [trace(f"own{k}", n) for k in range(8) for n in range(3)]
    found = [digest for digest, _ in Workspace(root).traces()]
    assert sorted(found) == sorted(digest_of(encode(record)) for record in wanted)
    assert Index(root, Blobs(root)).rebuild() == 27


def test_blob_sizes_are_those_of_the_canonical_bytes(tmp_path):
    assert Workspace(tmp_path).record(trace()) == Blob(
        digest=digest_of(encode(trace())), size=len(encode(trace()))
    )
