"""tilegate store: check finds whatever is wrong, rebuild loses nothing, gc takes nothing that is needed."""

import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.artifacts import contract_of, entry_at, evaluated, manifest_of, plan_of, wrong_where
from tests.kill_child import TOOLS, Parent, revise, write_project
from tilegate import pipeline
from tilegate.cli import commands
from tilegate.errors import ProjectError, StoreError, TrustError, UsageError
from tilegate.pipeline.evaluate import regressions
from tilegate.pipeline.opened import open_project
from tilegate.records.artifact import Manifest
from tilegate.records.bundle import Export
from tilegate.records.canonical import blob_of, decode, digest_of, encode, peek_schema, schema_of
from tilegate.records.closure import Binding, Closure, SourceFile
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import Evaluation
from tilegate.records.plan import Plan
from tilegate.records.policy import Policy
from tilegate.records.profile import Profile
from tilegate.records.release import Candidate, Release
from tilegate.records.report import StoreReport
from tilegate.records.shape import ShapeClass
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace, ErrorClass, Stage
from tilegate.rules.retention import EVALUATION, MANIFEST, PARTS, RAW, Held, Reference, held_of, plan_gc
from tilegate.store.blobs import Blobs
from tilegate.store.check import KNOWN
from tilegate.store.workspace import Workspace

INDEX = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A project: revision 0 is evaluated and released, 1 evaluated, 2 is current and only built."""
    folder = tmp_path_factory.mktemp("store") / "project"
    write_project(folder)
    for revision in range(3):
        revise(folder, revision)
        pipeline.build(folder, tools=TOOLS)
        if revision < 2:
            pipeline.evaluate(folder, tools=TOOLS)
        if revision < 1:
            pipeline.promote(folder)
    return folder


@pytest.fixture
def project(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "project"))


def workspace_of(folder):
    return Workspace(folder / ".tilegate")


def run(*words):
    return CliRunner().invoke(commands, [str(word) for word in words], catch_exceptions=False)


def report_of(*words, exit_code=0):
    done = run("store", *words, "--json")
    assert done.exit_code == exit_code, done.output
    return decode(StoreReport, done.stdout[:-1].encode(), where="stdout")


def faults(folder):
    return {(fault.kind, fault.what): fault for fault in pipeline.store.check(folder).faults}


def one(workspace, kind, place=0):
    """(digest, document): the document of a kind that was written first, or at another place."""
    contents = ((digest, workspace.blobs.get(digest)) for digest in workspace.index.documents())
    found = [(digest, data) for digest, data in contents if peek_schema(data) == schema_of(kind)]
    return found[place][0], decode(kind, found[place][1], where=found[place][0])


def lose_index(folder):
    for name in INDEX:
        (folder / ".tilegate" / name).unlink(missing_ok=True)


def blobs_of(folder):
    return set(workspace_of(folder).blobs)


# check


def test_a_whole_store_is_told_in_numbers(project):
    report = report_of("check", "-C", project)
    counts = {"closure": 6, "declaration": 1, "evaluation": 4, "manifest": 6, "plan": 4}
    assert {schema.split(".")[-1].split("/")[0]: n for schema, n in report.documents.items()} == counts
    assert report.blobs == len(blobs_of(project)) == 21 + 4 + 6 + 6  # operators, kernels, IR, libraries
    assert report.size == sum(path.stat().st_size for path in (project / ".tilegate/blobs/sha256").iterdir())
    assert report.leftovers == 0
    done = run("store", "check", "-C", project)
    assert done.exit_code == 0
    assert "nothing is wrong" in done.stdout


def test_a_project_without_a_workspace_has_nothing_wrong_and_gets_none(tmp_path):
    write_project(tmp_path / "project")
    for verb in ("check", "rebuild", "gc"):
        assert report_of(verb, "-C", tmp_path / "project").blobs == 0
    assert not (tmp_path / "project" / ".tilegate").exists()


def test_a_folder_that_is_no_project_is_told(tmp_path):
    for verb in (pipeline.store.check, pipeline.store.rebuild, pipeline.store.gc):
        with pytest.raises(ProjectError):
            verb(tmp_path)


@pytest.mark.parametrize("content", [b"", b"another content"])
def test_a_corrupt_blob_is_found_with_its_place(project, content):
    workspace = workspace_of(project)
    digest, _ = one(workspace, Evaluation)
    path = workspace.blobs.path(digest)
    path.unlink()
    path.write_bytes(content)
    (fault,) = report_of("check", "-C", project, exit_code=1).faults
    assert (fault.kind, fault.what) == ("corrupt", digest)
    assert digest_of(content) in fault.why
    assert str(path) in fault.next_step
    done = run("store", "check", "-C", project)
    assert digest in done.stdout
    assert "next: " in done.stdout


ROLES = {
    "library": lambda w: one(w, Manifest)[1].library.digest,
    "ir": lambda w: one(w, Manifest)[1].elaboration.ir,
    "closure": lambda w: one(w, Manifest)[1].elaboration.closure,
    "source": lambda w: one(w, Closure)[1].files[0].digest,
    "contract": lambda w: one(w, Declaration)[0],
    "plan": lambda w: one(w, Evaluation)[1].plan,
    "manifest": lambda w: one(w, Evaluation)[1].manifest,
}


@pytest.mark.parametrize("role", ROLES)
def test_a_missing_blob_is_found_with_what_names_it(project, role):
    workspace = workspace_of(project)
    gone = ROLES[role](workspace)
    workspace.blobs.path(gone).unlink()
    lose_index(project)
    wanted = one(workspace, Manifest)[1].elaboration.contract if role == "contract" else gone
    (fault,) = report_of("check", "-C", project, exit_code=1).faults
    assert (fault.kind, fault.what) == ("missing", wanted)
    assert fault.why.startswith(f"it is the {role} of tilegate.")


@pytest.mark.parametrize("role", ["library", "ir", "closure", "source", "contract"])
def test_build_makes_again_what_is_missing_as_check_says(project, role):
    workspace = workspace_of(project)
    revise(project, 0)  # whose artifact is the one that was written first
    workspace.blobs.path(ROLES[role](workspace)).unlink()
    lose_index(project)
    (fault,) = pipeline.store.check(project).faults
    assert fault.next_step.startswith("tilegate build")
    assert pipeline.build(project, tools=TOOLS).accepted
    assert pipeline.store.check(project).faults == ()


@pytest.mark.parametrize("role", ["plan", "manifest"])
def test_without_a_copy_the_store_is_mended_by_removing_what_names_the_missing(project, role):
    workspace = workspace_of(project)
    workspace.blobs.path(ROLES[role](workspace)).unlink()
    while found := [fault for fault in pipeline.store.check(project).faults if fault.kind == "missing"]:
        assert "remove what names it; then tilegate store rebuild, build and evaluate" in found[0].next_step
        workspace.blobs.path(re.search("sha256:[0-9a-f]{64}", found[0].why)[0]).unlink()
    assert pipeline.store.rebuild(project).faults == ()
    pipeline.build(project, tools=TOOLS)
    pipeline.evaluate(project, tools=TOOLS)
    assert pipeline.store.check(project).faults == ()


def test_a_record_of_a_newer_tilegate_is_unknown_not_ignored(project):
    workspace = workspace_of(project)
    newer = encode(one(workspace, Evaluation)[1]).replace(b"evaluation/2", b"evaluation/3")
    workspace.blobs.path(digest_of(newer)).write_bytes(newer)
    fault = faults(project)["unknown", digest_of(newer)]
    assert "evaluation/3" in fault.why
    assert "the tilegate that wrote it" in fault.next_step


def test_a_record_that_no_tilegate_wrote_is_unknown(project):
    workspace = workspace_of(project)
    edited = encode(one(workspace, Evaluation)[1]).replace(b'"passed"', b'"pleased"')
    workspace.blobs.path(digest_of(edited)).write_bytes(edited)
    assert ("unknown", digest_of(edited)) in faults(project)


def test_a_stranger_among_the_blobs_is_unknown(project):
    stranger = project / ".tilegate/blobs/sha256/notes.txt"
    stranger.touch()
    assert list(faults(project)) == [("unknown", str(stranger))]


def test_leftovers_are_counted_and_are_no_fault(project):
    for name in ("tmp-1", "blobs/sha256/tmp-2", "../release/tmp-3", "../release/blobs/sha256/tmp-4"):
        (project / ".tilegate" / name).touch()
    assert report_of("check", "-C", project).leftovers == 4


def test_evidence_that_no_query_finds_is_a_fault_of_the_index(project):
    workspace = workspace_of(project)
    with sqlite3.connect(project / ".tilegate/index.sqlite") as db:
        db.execute("DELETE FROM documents WHERE digest = ?", [one(workspace, Evaluation)[0]])
    db.close()
    (fault,) = report_of("check", "-C", project, exit_code=1).faults
    assert (fault.kind, fault.next_step) == ("index", "tilegate store rebuild")
    assert fault.why == "documents that it lacks: 1"
    assert report_of("rebuild", "-C", project).accepted
    assert report_of("check", "-C", project).accepted


def test_a_row_without_its_record_is_a_fault_of_the_index(project):
    workspace = workspace_of(project)
    workspace.blobs.path(one(workspace, Evaluation)[0]).unlink()
    (fault,) = pipeline.store.check(project).faults
    assert (fault.kind, fault.next_step) == ("index", "tilegate store rebuild")
    assert pipeline.store.rebuild(project).accepted


@pytest.mark.parametrize("which", ["contract", "manifest", "library", "evaluation", "index.json"])
def test_a_damaged_release_is_found(project, which):
    standing = decode(Release, next(statements(project / "release")), where="release")
    path = {
        "contract": standing.contracts[0],
        "manifest": standing.candidates[0].manifest,
        "library": standing.candidates[0].library,
        "evaluation": standing.candidates[0].evaluations[0],
    }.get(which)
    damaged = Blobs(project / "release").path(path.digest) if path else project / "release" / which
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (fault,) = report_of("check", "-C", project, exit_code=1).faults
    assert (fault.kind, fault.what) == ("corrupt", str(damaged))
    assert fault.next_step


def statements(release):
    blobs = Blobs(release)
    for digest in blobs:
        if b'"schema":"tilegate.release/1"' in (data := blobs.get(digest)):
            yield data


# rebuild


@pytest.mark.parametrize("damage", ["deleted", "no database", "empty", "half of it", "of another version"])
def test_the_matrix_is_the_same_after_the_index_was_lost(project, damage):
    before = pipeline.status(project)
    index = project / ".tilegate/index.sqlite"
    data = index.read_bytes()
    lose_index(project)
    if damage == "of another version":
        index.write_bytes(data)
        with sqlite3.connect(index) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
    elif damage != "deleted":
        index.write_bytes(
            {"no database": b"no database" * 999, "empty": b""}.get(damage, data[: len(data) // 2])
        )
    report = report_of("rebuild", "-C", project)
    assert report.faults == ()
    assert pipeline.status(project) == before
    assert pipeline.store.check(project).faults == ()


@pytest.mark.parametrize("written", [False, True])
def test_a_record_of_a_dead_writer_counts_once_it_is_there_and_in_its_place(tmp_path, written):
    """The writer died before or after it wrote the blob; a rebuilt index gives the same answers."""
    workspace = Workspace(tmp_path)
    first, second = (Release(version=n, policy=Policy(), contracts=(), candidates=()) for n in (1, 2))
    a, b = (digest_of(encode(release)) for release in (first, second))
    workspace.index.announce(a, first)
    if written:
        workspace.blobs.put_record(first)
    workspace.record(second)
    assert workspace.index.documents() == ([a, b] if written else [b])
    workspace.record(first)
    assert workspace.index.documents() == ([a, b] if written else [b, a])
    workspace.rebuild()
    assert workspace.index.documents() == ([a, b] if written else [b, a])


def test_a_rebuild_does_not_pass_over_a_corrupt_blob(project):
    workspace = workspace_of(project)
    digest, _ = one(workspace, Evaluation)
    workspace.blobs.path(digest).unlink()
    workspace.blobs.path(digest).write_bytes(b"")
    done = run("store", "rebuild", "-C", project)
    assert done.exit_code == 3
    assert digest in done.stderr
    assert "tilegate store check" in done.stderr


# gc: the rule

N = 3


@st.composite
def stores(draw):
    """Blobs that name each other as those of a workspace do, with gaps; names are kept short."""

    def pick(noun):
        return f"{noun}{draw(st.integers(0, N - 1))}"

    held = {f"{noun}{i}": Held() for noun in ("source", "ir", "library") for i in range(N)}
    for i in range(N):
        held[f"closure{i}"] = held_as(Closure, source=pick("source"))
        held[f"declaration{i}"] = held_as(Declaration)._replace(contract=pick("contract"))
        held[f"manifest{i}"] = held_as(
            Manifest,
            contract=pick("contract"),
            closure=pick("closure"),
            ir=pick("ir"),
            library=pick("library"),
        )
        held[f"plan{i}"] = held_as(Plan, manifest=pick("manifest"))
        held[f"evaluation{i}"] = held_as(Evaluation, plan=pick("plan"), manifest=pick("manifest"))
        held[f"evaluation{i}"] = held[f"evaluation{i}"]._replace(failed=draw(st.booleans()))
        held[f"export{i}"] = held_as(
            Export, plan=pick("plan"), manifest=pick("manifest"), closure=pick("closure")
        )
    held["trace"] = held_as(CompilerTrace)
    names = sorted(held)
    for gone in draw(st.sets(st.sampled_from(names), max_size=4)):
        del held[gone]
    released = draw(
        st.sets(st.sampled_from([n for n in names if n.startswith(("manifest", "evaluation"))]), max_size=2)
    )
    young = draw(st.sets(st.sampled_from(names), max_size=2)) & held.keys()
    current = draw(st.none() | st.sets(st.sampled_from([f"closure{i}" for i in range(N)]), max_size=1))
    return held, released, young, current


def held_as(kind, **names):
    return Held(str(schema_of(kind)), tuple(Reference(role, digest) for role, digest in names.items()))


def decided(store):
    held, released, young, current = store
    waves = plan_gc(held, released=released, young=young, current=current)
    return waves, {digest for wave in waves for digest in wave}


def rests_on(held, digest):
    """Blobs that a blob names: a contract through the declarations that hold it."""
    for role, name in held[digest].names if digest in held else ():
        if role == "contract":
            yield from (d for d, other in held.items() if other.contract == name)
        else:
            yield name


@given(stores())
def test_nothing_that_is_kept_or_released_names_what_is_removed(store):
    """1. Nothing that is kept names something that is removed, and neither does anything that a release names."""
    held, released, young, _ = store
    _, removed = decided(store)
    assert removed <= held.keys()
    assert not removed & (released | young)
    for digest in held.keys() - removed:
        assert not removed & set(rests_on(held, digest))


@given(stores())
def test_only_superseded_artifacts_without_a_failure_go(store):
    """2. Every artifact is kept, or only every superseded one goes; no failure is ever removed."""
    held, released, young, current = store
    _, removed = decided(store)
    failed = {d for d, one in held.items() if one.failed}
    assert not removed & failed
    spared = {held[d].named("manifest") for d in failed}
    for digest in (d for d in held if held[d].schema == MANIFEST):
        superseded = current is not None and held[digest].named("closure") not in current
        if digest in removed:
            assert superseded
            assert digest not in spared
        elif superseded:
            others = {d for d in held.keys() - removed if digest not in (d, held[d].named("manifest"))}
            firm = {d for d in others if held[d].schema not in PARTS}
            assert digest in spared or digest in needed(held, firm | released | young)
    assert "trace" not in removed


def needed(held, starts):
    found = set()
    pending = list(starts)
    while pending:
        digest = pending.pop()
        if digest not in found:
            found.add(digest)
            pending += rests_on(held, digest)
    return found


@given(stores())
def test_evidence_only_accumulates(store):
    """3. All evaluations of an artifact that is kept are kept."""
    held, *_ = store
    _, removed = decided(store)
    for digest in (d for d in removed if held[d].schema == EVALUATION):
        assert held[digest].named("manifest") in removed


@given(stores())
def test_waves_go_from_what_names_to_what_is_named(store):
    """4. Whoever is stopped between two waves leaves no name behind that leads nowhere."""
    held, *_ = store
    waves, removed = decided(store)
    for number, wave in enumerate(waves):
        before = {digest for earlier in waves[: number + 1] for digest in earlier}
        for digest in wave:
            assert not before & set(rests_on(held, digest))
    assert sum(map(len, waves)) == len(removed)


@given(stores())
def test_every_part_that_stays_is_needed(store):
    """A part stays only where a release, something young, or something that stays rests on it."""
    held, released, young, _ = store
    _, removed = decided(store)
    firm = {d for d in held.keys() - removed if held[d].schema not in PARTS}
    assert held.keys() - removed <= needed(held, firm | released | young)


def documents():
    """One document of every kind that a workspace knows, each with all that it can name."""
    contract = contract_of({"x": ("n",)}, {"y": ("n",)})
    manifest = manifest_of(contract, {})
    plan = plan_of(contract, manifest, [entry_at({"n": 1})])
    evaluation = evaluated(plan, manifest, wrong_where(lambda axes: axes["n"] == 1))
    source = SourceFile(module="m", path="m.py", digest=digest_of(b"m"), size=1)
    candidate = Candidate(
        operator=manifest.operator, contract=contract.digest, kernel="tiled", target=manifest.target,
        manifest=blob_of(encode(manifest)), library=manifest.library, evaluations=(blob_of(encode(evaluation)),),
        devices=(evaluation.device,), classes=(ShapeClass(axes={}, alignment_bytes=4),),
    )  # fmt: skip
    contracts = (blob_of(encode(contract)),)
    return [
        contract, manifest, manifest.elaboration, plan, evaluation, Profile(lines=()), Toolchain(versions={}),
        Closure(binding=Binding(operator="p:f", factory="p:k", kernel="k"), files=(source,)),
        Export(
            manifest=plan.manifest, plan=plan.digest, declaration=digest_of(b"d"), closure=digest_of(b"closure")
        ),
        Declaration(operator="p:f", contract=contract, served=()),
        Release(version=1, policy=Policy(), contracts=contracts, candidates=(candidate,)),
        CompilerTrace(stage=Stage.LOAD, error=ErrorClass.IMPORT, template="import", toolchain=digest_of(b"t")),
    ]  # fmt: skip


@pytest.mark.parametrize("document", documents(), ids=lambda document: schema_of(type(document)))
def test_no_digest_in_a_record_is_overlooked(document):
    """A field that names a blob and that retention does not know would be a blob that gc takes."""
    said = set(re.findall(r"sha256:[0-9a-f]{64}", encode(document).decode()))
    no_blobs = {digest_of(b"reference"), digest_of(b"t")}  # of a contract's source, of a trace's toolchain
    assert said - no_blobs == {reference.digest for reference in held_of(document).names}


def test_every_kind_of_document_is_looked_at_above():
    assert {schema_of(type(document)) for document in documents()} == set(KNOWN)


def test_a_failure_is_told_from_a_pass():
    held = {one.schema: one.failed for one in map(held_of, documents())}
    assert [schema for schema, failed in held.items() if failed] == [EVALUATION]
    assert RAW not in held


# gc: the command


def kernels(folder):
    built = [manifest for _, manifest in workspace_of(folder).manifests()]
    return sorted(manifest.elaboration.kernel for manifest in built)


def test_gc_takes_what_a_dead_build_left_and_nothing_else(project):
    before = blobs_of(project)
    matrix = pipeline.status(project)
    workspace = workspace_of(project)
    orphan = workspace.blobs.put(b"named by nothing" * 100)
    closure = workspace.record(Closure(binding=Binding(operator="a:f", factory="b:k", kernel="k"), files=()))
    report = report_of("gc", "-C", project, "--grace-s", 0)
    assert report.removed == {"content": 1, "tilegate.closure/2": 1}
    assert report.freed == orphan.size + closure.size
    assert blobs_of(project) == before
    assert pipeline.status(project) == matrix
    assert pipeline.store.check(project).faults == ()


def test_a_dry_run_removes_nothing_and_tells_the_same(project):
    workspace = workspace_of(project)
    workspace.blobs.put(b"named by nothing")
    (project / ".tilegate/tmp-1").write_bytes(b"half")
    before = blobs_of(project)
    dry = report_of("gc", "-C", project, "--grace-s", 0, "--superseded", "--dry-run")
    assert dry.dry_run
    assert blobs_of(project) == before
    assert (project / ".tilegate/tmp-1").exists()
    wet = report_of("gc", "-C", project, "--grace-s", 0, "--superseded")
    assert (dry.removed, dry.freed) == (wet.removed, wet.freed)
    assert wet.removed["leftovers"] == 1
    assert blobs_of(project) < before
    assert not (project / ".tilegate/tmp-1").exists()


def test_gc_says_what_it_freed(project):
    workspace_of(project).blobs.put(b"x" * 2048)
    done = run("store", "gc", "-C", project, "--grace-s", 0)
    assert "removed 1 content: 2.0 kB" in done.stdout


def test_what_is_young_stays(project):
    """A writer that has not come to the record yet: its blob, and all that this names, are kept for an hour."""
    workspace = workspace_of(project)
    source = workspace.blobs.put(b"a source")
    file = SourceFile(module="m", path="m.py", digest=source.digest, size=source.size)
    workspace.record(Closure(binding=Binding(operator="a:f", factory="b:k", kernel="k"), files=(file,)))
    (project / ".tilegate/tmp-1").touch()
    report = report_of("gc", "-C", project)
    assert report.removed == {}
    assert report.leftovers == 1
    assert workspace.blobs.has(source.digest)


def test_putting_again_what_is_there_makes_it_young_in_its_old_place(tmp_path):
    """Or gc would take it between the second writer's put and the record that names it."""
    blobs = Blobs(tmp_path)
    path = blobs.path(blobs.put(b"data").digest)
    before = path.stat()
    for _ in range(10_000):  # the kernel's clock for files goes in steps
        blobs.put(b"data")
        if path.stat().st_ctime_ns != before.st_ctime_ns:
            break
    assert path.stat().st_ctime_ns > before.st_ctime_ns
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_gc_does_not_enter_the_span_of_a_writer(tmp_path):
    workspace = Workspace(tmp_path)
    with workspace.writing():
        workspace.blobs.put(b"a library")  # a span within the span
        with (
            pytest.raises(StoreError, match="cannot lock the workspace") as caught,
            workspace.blobs.held_alone(wait_s=0),
        ):
            pytest.fail("gc would take the library")
    assert "another tilegate command" in caught.value.why
    with workspace.blobs.held_alone(wait_s=0):
        pass


def test_superseded_artifacts_go_where_no_release_names_them_and_nothing_failed(project):
    before = regressions(open_project(project), "scale")
    release = (project / "release/index.json").read_bytes()
    assert kernels(project) == ["tail"] * 3 + ["whole"] * 3
    assert report_of("gc", "-C", project, "--grace-s", 0).removed == {}
    report = report_of("gc", "-C", project, "--grace-s", 0, "--superseded")
    # Of "whole", the released revision 0 and the current one stay; of "tail", every one that failed.
    assert kernels(project) == ["tail"] * 3 + ["whole"] * 2
    gone = {schema_of(kind): 1 for kind in (Manifest, Closure, Plan, Evaluation)}
    assert report.removed == {**gone, "content": 2}
    assert regressions(open_project(project), "scale") == before != []
    assert (project / "release/index.json").read_bytes() == release
    assert pipeline.store.check(project).faults == ()


def test_what_another_release_names_stays_with_keep(project):
    revise(project, 1)
    assert pipeline.promote(project, release=project.parent / "other").release
    revise(project, 2)
    report = report_of(
        "gc", "-C", project, "--grace-s", 0, "--superseded", "--keep", project.parent / "other"
    )
    assert report.removed == {}


def test_what_an_earlier_release_names_stays(project):
    """Rolling back is writing its statement again."""
    revise(project, 1)
    pipeline.promote(project)
    pipeline.build(project, tools=TOOLS)
    pipeline.evaluate(project, tools=TOOLS)
    revise(project, 2)
    assert len(list(statements(project / "release"))) == 2
    assert report_of("gc", "-C", project, "--grace-s", 0, "--superseded").removed == {}


def test_a_slip_in_keep_removes_nothing(project):
    workspace_of(project).blobs.put(b"named by nothing")
    before = blobs_of(project)
    (project.parent / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no release"):
        pipeline.store.gc(project, keep=[project.parent / "empty"], grace_s=0)
    assert blobs_of(project) == before


def test_a_damaged_release_removes_nothing(project):
    workspace_of(project).blobs.put(b"named by nothing")
    before = blobs_of(project)
    (project / "release/oci-layout").unlink()
    with pytest.raises(TrustError):
        pipeline.store.gc(project, grace_s=0)
    assert blobs_of(project) == before


def test_a_store_that_cannot_be_read_in_full_loses_nothing(project):
    """What a damaged record names cannot be known."""
    workspace = workspace_of(project)
    workspace.blobs.put(b"named by nothing")
    digest, _ = one(workspace, Evaluation)
    workspace.blobs.path(digest).unlink()
    workspace.blobs.path(digest).write_bytes(b"")
    before = blobs_of(project)
    report = report_of("gc", "-C", project, "--grace-s", 0, exit_code=1)
    assert [fault.what for fault in report.faults] == [digest]
    assert report.removed == {}
    assert blobs_of(project) == before


def test_gc_needs_no_source_unless_it_asks_what_is_superseded(project):
    (project / "kernels.py").write_text("def broken(:\n")
    assert report_of("gc", "-C", project).accepted
    assert run("store", "gc", "-C", project, "--superseded").exit_code == 2


# Many at once


@pytest.fixture(scope="module")
def parent():
    parent = Parent()
    yield parent
    parent.close()


def test_eight_evaluations_at_once_beside_gc_lose_nothing_and_double_nothing(project, parent):
    """Four of one artifact and four of another, while superseded artifacts are removed again and again."""
    before = set(workspace_of(project).index.documents())
    asked = [(f"evaluate {kernel}", project) for kernel in ("whole", "tail") for _ in range(4)]
    parent.start(*asked, ("gc", project), ("gc", project))
    recorded, errors, statuses = parent.wait()
    assert (errors, statuses) == ([], [0] * 10)
    workspace = workspace_of(project)
    assert len(recorded) == len(set(recorded)) == 16  # a plan and an evaluation each
    assert set(recorded) <= set(workspace.index.documents())
    counts = {m.elaboration.kernel: len(workspace.evaluations(d)) for d, m in open_project(project).current()}
    assert counts == {"whole": 4, "tail": 4}
    assert pipeline.store.check(project).faults == ()
    assert len(before - set(workspace.index.documents())) == 4  # of the superseded one
    order, matrix = workspace.index.documents(), pipeline.status(project)
    pipeline.store.rebuild(project)
    assert workspace.index.documents() == order
    assert pipeline.status(project) == matrix


def test_eight_builds_at_once_make_each_artifact_once(project, parent):
    revise(project, 3)
    parent.start(*[("build", project)] * 8)
    recorded, errors, statuses = parent.wait()
    assert (errors, statuses) == ([], [0] * 8)
    workspace = workspace_of(project)
    assert set(recorded) <= set(workspace.index.documents())
    assert kernels(project) == ["tail"] * 4 + ["whole"] * 4
    assert pipeline.store.check(project).faults == ()
