"""The commands: exit codes, one document on stdout, sentences on stderr."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from tests import artifacts, world
from tests.written import imported
from tilegate import processor
from tilegate.cli import commands
from tilegate.errors import ToolError, UsageError
from tilegate.pipeline.explain import _workload as workload_of
from tilegate.pipeline.opened import open_project
from tilegate.records.canonical import decode, encode
from tilegate.records.closure import Specialization
from tilegate.records.contract import Attribute
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.plan import Entry, Layout, Origin, Values, Workload
from tilegate.records.report import (
    BuildLine,
    BuildReport,
    Cell,
    Check,
    DoctorReport,
    EvaluateReport,
    ExplainCandidate,
    ExplainReport,
    Matrix,
    MatrixRow,
    PromotedLine,
    PromoteReport,
)
from tilegate.records.target import X86_64_LEVELS, DeviceClass, Target
from tilegate.records.verdict import Reason, Rejected
from tilegate.report.terminal import render

FILES = {
    "tilegate.toml": 'operators = ["ops"]\nkernels = ["kernels"]\ntargets = ["cpu:x86-64-v2"]\n',
    "ops.py": """
        import tilegate
        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="twice")
        def twice(x):
            return 2 * x
    """,
    "kernels.py": """
        import tilegate
        @tilegate.kernel("ops:twice", dynamic=("n",))
        def rows(n):
            raise AssertionError("a kernel's module is read, never imported")
    """,
}


def run(*words):
    return CliRunner().invoke(commands, [str(word) for word in words], catch_exceptions=False)


def answer(kind, *words, exit_code=0):
    """The one document that a command prints with --json, and its sentences."""
    result = run(*words, "--json")
    assert result.exit_code == exit_code, result.output
    assert result.stdout.endswith("}\n")
    return decode(kind, result.stdout[:-1].encode(), where="stdout"), result.stderr


@pytest.fixture
def project(tmp_path):
    """A project with nothing built."""
    with imported(tmp_path, FILES, "ops", name="project") as module:
        contract = module.twice.contract()
    (tmp_path / "project/contract.json").write_bytes(encode(contract))
    return tmp_path / "project"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A processor that runs `cpu:x86-64-v2` and nothing above it."""
    file = tmp_path / "cpuinfo"
    file.write_text(f"model name : test\nflags : {' '.join(X86_64_LEVELS['x86-64-v2'])}\n")
    monkeypatch.setattr(processor, "CPUINFO", file)


def build(project, *, target="x86-64-v2"):
    """What `tilegate build` would record, with a kernel of gcc's."""
    from tilegate.records.contract import Contract

    contract = decode(Contract, (project / "contract.json").read_bytes(), where="test")
    opened = open_project(project)
    (binding,) = opened.bindings
    closure, sources = opened.closure(binding)
    elaboration = world.elaboration_of(contract, kernel="rows", tiles={"n": (1,)})
    elaboration = msgspec.structs.replace(elaboration, closure=closure.digest)
    where = Target(backend="cpu", arch=target)
    manifest, library = world.artifact(elaboration, world.SCALE, "FACTOR=2", target=where)
    for data in (*sources.values(), library):
        opened.workspace.blobs.put(data)
    declared = Declaration(operator="ops:twice", contract=contract, served=(Workload(axes={"n": 4}),))
    for document in (closure, declared, manifest):
        opened.workspace.record(document)
    return opened, contract, manifest


def evaluate(project, verdict, extents=range(65)):
    """What `tilegate evaluate` would record if every entry gave one verdict."""
    opened, contract, manifest = build(project)
    entries = [
        Entry(
            workload=Workload(axes={"n": n}),
            layout=Layout.ALIGNED,
            values=Values.NORMAL,
            origin=Origin.SERVED,
        )
        for n in extents
    ]
    plan = artifacts.plan_of(contract, manifest, entries)
    opened.workspace.record(plan)
    opened.workspace.record(artifacts.evaluated(plan, manifest, lambda _: verdict, device=world.DEVICE))


# Usage errors


@pytest.mark.parametrize(
    "command", [[], *([name] for name in commands.commands)], ids=lambda c: c[0] if c else "-"
)
def test_every_command_has_help(command):
    for option in ("--help", "-h"):
        result = run(*command, option)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith("Usage:")
        assert "Options:" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["status", "-C", "/nowhere"], "does not exist"),
        (["status", "-C", "{folder}"], "there is no tilegate.toml"),
        (["status", "--jsn"], "there is no option --jsn\nnext: did you mean '--json'?"),
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["store", "chek"], "there is no command 'chek'\nnext: did you mean 'check'?"),
        (["explain"], "error: missing argument 'OPERATOR'\nnext: "),
    ],
    ids=lambda v: v[-1] if isinstance(v, list) else "",
)
def test_words_that_are_off_exit_with_2(words, told, tmp_path):
    result = run(*(word.format(folder=tmp_path) for word in words))
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


@pytest.mark.parametrize(
    ("words", "told", "next_step"),
    [
        (["build", "-t", "cpu:native"], "unknown target 'cpu:native'", "cpu:x86-64-v3"),
        (["build", "row"], "no operator or kernel is named row", "did you mean 'rows'?"),
        (["build", "twice", "fast"], "no operator or kernel is named fast", "known here: rows, twice"),
        (["evaluate"], "there is nothing to evaluate", "tilegate build"),
        (["promote"], "there is nothing to promote", "tilegate build && tilegate evaluate"),
        (["explain", "twice", "n=4"], "there is no release to explain", "tilegate promote"),
        (["explain", "twice", "n"], "'n' is not AXIS=EXTENT", "tilegate explain twice n=<n>"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_cannot_be_done_yet_exits_with_2_and_says_what_to_type(words, told, next_step, project):
    result = run(*words, "-C", project)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {told}\n")
    assert next_step in result.stderr.partition("\nnext: ")[2]


CONTRACT = artifacts.contract_of({"x": ("n",)}, {"y": ("n",)}, dtypes={"x": "T", "y": "T"})
CHOICES = tuple(Attribute(name=kind, kind=kind) for kind in ("bool", "int", "float", "str"))
CALL = {"n": "4", "bool": "true", "int": "3", "float": "0.5", "str": "mean"}


def test_words_of_a_call_are_read_as_the_contract_has_them():
    contract = msgspec.structs.replace(CONTRACT, attributes=CHOICES)
    read = workload_of(contract, CALL)
    assert (read.axes, read.dtypes) == ({"n": 4}, {"T": "float32"})
    assert read.attributes == {"bool": True, "int": 3, "float": 0.5, "str": "mean"}


@pytest.mark.parametrize(
    ("word", "value", "told"),
    [
        ("T", "float64", "T is 'float64', which is none of its alternatives"),
        ("bool", "yes", "bool is 'yes', which is no bool"),
        ("int", "0.5", "int is '0.5', which is no int"),
        ("float", "half", "float is 'half', which is no float"),
        ("str", None, "made_up needs more: str"),
        ("n", "+4", "n is '+4', where an extent belongs"),
    ],
)
def test_words_of_a_call_that_are_off_are_told_and_not_explained(word, value, told):
    contract = msgspec.structs.replace(CONTRACT, attributes=CHOICES)
    words = {k: v for k, v in {**CALL, word: value}.items() if v is not None}
    with pytest.raises(UsageError, match=re.escape(told)) as caught:
        workload_of(contract, words)
    assert caught.value.next_step


# Tool errors


def test_a_workspace_that_cannot_be_read_exits_with_3(project):
    (project / ".tilegate").write_text("a file")
    for command in ("status", "build"):
        result = run(command, "-C", project)
        assert (result.exit_code, result.stdout) == (ToolError.exit_code, "")
        assert ".tilegate" in result.stderr
        assert "\nnext: " in result.stderr


# From records to a release


def test_nothing_evaluated_is_rejected_with_1_and_released_is_nothing(project, machine):
    build(project)
    (row,) = answer(Matrix, "status", "-C", project)[0].rows
    assert (row.operator, row.kernel, row.cells["cpu:x86-64-v2"].state) == ("twice", "rows", "built")
    report, sentences = answer(PromoteReport, "promote", "-C", project, exit_code=1)
    assert (report.release, report.version, len(report.rejected)) == (None, 0, 1)
    assert sentences == ""
    assert not (project / "release").exists()
    told = run("promote", "-C", project)
    assert told.exit_code == 1
    assert "rejected: " in told.stdout
    assert "next: " in told.stdout


def test_what_failed_is_rejected_with_1(project, machine):
    evaluate(project, EntryVerdict.WRONG)
    report, _ = answer(PromoteReport, "promote", "-C", project, exit_code=1)
    assert report.release is None
    (row,) = answer(Matrix, "status", "-C", project)[0].rows
    assert row.cells["cpu:x86-64-v2"].state == "rejected"


def test_what_passed_is_released_with_0_and_explained(project, machine):
    evaluate(project, EntryVerdict.PASSED)
    report, sentences = answer(PromoteReport, "promote", "-C", project)
    assert (report.version, report.release) == (1, str(project / "release"))
    assert [line.classes for line in report.lines] == [("0 <= n <= 64",)]
    assert sentences == f"release 1 in {project / 'release'} (unsigned: loads with allow_unsigned=True)\n"
    matrix, _ = answer(Matrix, "status", "-C", project)
    assert matrix.release_version == 1
    assert matrix.rows[0].cells["cpu:x86-64-v2"] == Cell(state="promoted", text="0 <= n <= 64")

    inside, _ = answer(ExplainReport, "explain", "twice", "n=64", "-C", project)
    assert (inside.served_by, inside.shape_class) == ("rows for cpu:x86-64-v2", "0 <= n <= 64")
    outside, _ = answer(ExplainReport, "explain", "twice", "n=65", "-C", project)
    assert (outside.served_by, outside.reason) == (None, "no evidence for this shape (n=65)")
    assert run("explain", "twice", "m=1", "-C", project).exit_code == 2
    assert run("explain", "thrice", "n=1", "-C", project).exit_code == 2
    assert answer(PromoteReport, "promote", "-C", project)[0].version == 2


def test_what_this_machine_cannot_run_is_no_failure(project, machine):
    build(project, target="x86-64-v4")
    report, sentences = answer(EvaluateReport, "evaluate", "-C", project)
    assert [(line.target, line.evaluation) for line in report.lines] == [("cpu:x86-64-v4", None)]
    assert sentences == "device: cpu:x86-64-v2 (test)\n"


def test_a_build_without_kernels_is_an_empty_document(project):
    (project / "tilegate.toml").write_text('operators = ["ops"]\n')
    assert answer(BuildReport, "build", "-C", project)[0].lines == ()


def test_doctor_measures_the_isolation_of_a_real_job():
    result = run("doctor", "--json")
    report = decode(DoctorReport, result.stdout[:-1].encode(), where="stdout")
    assert result.exit_code == (0 if report.accepted else 1)
    found = {check.name: check for check in report.checks}
    assert "filtered system calls" in found["isolation full"].found
    assert "uid" in found["isolation reduced"].found
    assert all(check.ok or check.mend for check in report.checks)


# On the terminal

MARKUP = "[bold]x[/bold] [/red]"
SPECIALIZATION = Specialization(attributes={"mode": MARKUP})
LINE = BuildLine(
    operator=MARKUP, kernel=MARKUP, specialization=SPECIALIZATION, target=MARKUP, manifest="sha256:0"
)
ODDLY_NAMED = [
    BuildReport(lines=(LINE, msgspec.structs.replace(LINE, target="cpu")), isolation=()),
    PromoteReport(
        release=None,
        version=0,
        lines=(
            PromotedLine(
                operator=MARKUP,
                kernel=MARKUP,
                specialization=SPECIALIZATION,
                target=MARKUP,
                classes=(MARKUP,),
                notes=(MARKUP,),
            ),
        ),
        rejected=(Rejected(subject=MARKUP, reasons=(Reason(code="x", message=MARKUP, next_step=MARKUP),)),),
    ),
    Matrix(
        device=DeviceClass(backend="cpu", arch="none", model=MARKUP),
        targets=(MARKUP,),
        rows=(
            MatrixRow(
                operator=MARKUP,
                kernel=MARKUP,
                specialization=SPECIALIZATION,
                cells={MARKUP: Cell(state="built", text=MARKUP)},
            ),
        ),
    ),
    ExplainReport(
        operator=MARKUP,
        workload=Workload(axes={}, attributes={"mode": MARKUP}),
        served_by=None,
        reason=MARKUP,
        candidates=(
            ExplainCandidate(kernel=MARKUP, target=MARKUP, specialization=SPECIALIZATION, classes=(MARKUP,)),
        ),
        evidence=(MARKUP,),
    ),
    DoctorReport(checks=(Check(name=MARKUP, ok=False, found=MARKUP, mend=MARKUP, needed_for=MARKUP),)),
]


@pytest.mark.parametrize("report", ODDLY_NAMED, ids=lambda r: type(r).__name__)
def test_markup_in_a_name_is_text(report):
    console = Console(width=2000, file=io.StringIO(), highlight=False)
    for piece in render(report):
        console.print(piece)
    printed = console.file.getvalue()
    written = encode(report).decode().count(MARKUP)
    assert printed.count(MARKUP) >= written - 1, "a matrix names a target by column and by cell"
    assert printed.count("[bold]") == printed.count("[/bold]") == printed.count("[/red]")


# A process of its own

WITHOUT = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
runpy.run_module("tilegate", run_name="__main__")
"""


def test_without_click_the_message_says_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "click"], capture_output=True, text=True, check=False
    )
    told = "error: the commands need click\nnext: pip install 'tilegate[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", told)


GONE = """
import os, sys
from tilegate.cli import commands
for words in (["status"], ["status", "--json"]):
    if os.fork() == 0:
        commands([*words, "-C", sys.argv[1]])
    print(os.waitstatus_to_exitcode(os.wait()[1]), file=sys.stderr)
"""


def test_a_reader_that_has_gone_is_no_failure(project):
    """A table and a document, to `| head -0`: exit code 0, and not a word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", GONE, project]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr.split() == ["0", "0"]
