"""Whatever is wrong with what is built: one screen that says what, where and what next, and nothing half written."""

import contextlib
import re
import secrets
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.elaborations import SCALED, bound, closure_of, contract_of, elaborate_all
from tilegate.build import jobs, told
from tilegate.cli import commands
from tilegate.records.artifact import Elaboration, Manifest
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.report import BuildReport
from tilegate.records.trace import ErrorClass, Stage
from tilegate.rules.expansion import expand
from tilegate.rules.sanitize import Subject, tell
from tilegate.sandbox import ELABORATE
from tilegate.store.workspace import Workspace

SCREEN = 24
"""Lines of the smallest terminal that people use."""

PROJECT = 'operators = ["operators"]\nkernels = ["kernels"]\ntargets = ["cpu:x86-64-v2"]\n'
OPERATORS = """
import tilegate

@tilegate.operator(inputs={"x": "T[M, N]"}, outputs={"y": "T[M, N]"}, dtypes={"T": ("float32", "bfloat16")})
def bumped(x):
    return x + 1
"""
BOUND = 'import tilegate\n\n@tilegate.kernel("operators:bumped", dynamic=("M", "N"), specialize={"T": "float32"})\n'
FACTORY = BOUND + "def bump(M, N, T):\n    return None\n"


def project(folder, kernels=FACTORY, *, operators=OPERATORS, toml=PROJECT):
    for name, text in (("tilegate.toml", toml), ("operators.py", operators), ("kernels.py", kernels)):
        (folder / name).write_text(text)
    return folder


def said(folder, *words):
    """Exit code of a command, and what it says on stdout and stderr."""
    done = CliRunner().invoke(commands, [*words, "-C", str(folder)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def screen(folder, *words):
    """Exit code and what is read, which fits one screen, names a next step, and leaves nothing half written."""
    code, stdout, stderr = said(folder, *words)
    lines = [*stdout.splitlines(), *stderr.splitlines()]
    assert len(lines) <= SCREEN
    assert any(line.startswith("next: ") and len(line) > len("next: ") for line in lines)
    assert "Traceback" not in "\n".join(lines)
    whole(folder)
    return code, " ".join(" ".join(lines).split())


def whole(folder):
    """Nothing that is being written is left, and what is recorded can be read."""
    if not (folder / ".tilegate").is_dir():
        return
    assert [path for path in folder.rglob("*") if path.name.startswith("tmp-")] == []
    workspace = Workspace(folder / ".tilegate")
    assert workspace.manifests() == []
    assert all(tell(trace) for _, trace in workspace.traces())
    assert said(folder, "status")[0] == 0


# Before any job, and in the job that reads the operators

PAGE_FAULTS = {
    "unknown axis": (
        BOUND.replace('("M", "N")', '("M", "Nn")') + "def bump(M, N, T): ...\n",
        ["unknown axis 'Nn'", "kernel bump (kernels:bump)", "'N'"],
    ),
    "axis that is left out": (
        BOUND.replace('("M", "N")', '("M",)') + "def bump(M, N, T): ...\n",
        ["axis N is neither dynamic nor specialized", "kernel bump", "specialize={"],
    ),
    "syntax error": (BOUND + "def bump(M, N, T:\n", ["syntax error", "kernels, line 4", "mend it there"]),
    "operator that nobody declares": (
        FACTORY.replace("operators:bumped", "operators:bumpd"),
        ["bound to operators:bumpd, which is declared nowhere", "kernels:bump", "declare: operators:bumped"],
    ),
    "relative import out of the package": (
        FACTORY + "from .. import helpers\n",
        ["leads out of the package", "kernels, line 6", "absolute name"],
    ),
    "binding that is computed": (
        'AXES = ("M", "N")\n' + FACTORY.replace('("M", "N")', "AXES"),
        ["dynamic is no literal: AXES", "kernels, line 4", "literals"],
    ),
}


@pytest.mark.parametrize(("kernels", "words"), PAGE_FAULTS.values(), ids=PAGE_FAULTS)
def test_a_binding_that_cannot_be_meant_is_refused(tmp_path, kernels, words):
    code, text = screen(project(tmp_path, kernels), "build")
    assert code == 2
    assert [word for word in words if word not in text] == []


OPERATOR_FAULTS = {
    "raises": ("raise ValueError('hunter2')", "importing the module raised ValueError"),
    "missing import": ("import nowhere_to_be_found", "neither in the closure nor installed"),
    "leaves by sys.exit": ("import sys\nsys.exit()", "leaves the process"),
    "leaves by os._exit": ("import os\nos._exit(3)", "left with status 3"),
}


@pytest.mark.parametrize(("operators", "word"), OPERATOR_FAULTS.values(), ids=OPERATOR_FAULTS)
def test_operators_that_cannot_be_read_are_told(tmp_path, operators, word):
    code, text = screen(project(tmp_path, operators=operators), "build")
    assert code == 2
    assert "the operators cannot be read where: operators" in text
    assert word in text
    assert "hunter2" not in text


def test_an_operator_that_contradicts_itself_is_told_in_its_own_words(tmp_path):
    operators = OPERATORS.replace('"T[M, N]"}, dtypes', '"T[M, N"}, dtypes')
    code, text = screen(project(tmp_path, operators=operators), "build")
    assert code == 2
    assert "'T[M, N' does not describe a tensor" in text
    assert "where: operator bumped, tensor y (operators, line 4)" in text


def test_a_refusal_cannot_move_the_cursor_of_a_terminal(tmp_path):
    raising = "from tilegate.errors import ContractError\nraise ContractError('\\x1b[2Jwrong\\n' * 1000)\n"
    code, text = screen(project(tmp_path, operators=raising), "build")
    assert code == 2
    assert "\x1b" not in text
    assert len(text) < 1000


# In the job that runs the factory: faults of the module, which end before TileLang is imported

MODULE_FAULTS = {
    "missing import": (
        "import nowhere_to_be_found\n",
        ["a module that is imported", "(kernel, line 6)", "install the package"],
    ),
    "missing name": (
        "from operators import nothing\n",
        ["a name is not in the module that it is imported from", "line 6"],
    ),
    "raises": ("raise KeyError('hunter2')\n", ["importing the module raised KeyError", "line 6"]),
    "raises what cannot be printed": (
        "class Mute(Exception):\n    def __str__(self):\n        raise self\nraise Mute\n",
        ["importing the module raised other, with a message of 0 characters", "line 9"],
    ),
    "half a character": ("raise ValueError('\\ud800' * 3)\n", ["with a message of 3 characters"]),
    "sys.exit": ("import sys\nsys.exit(0)\n", ["leaves the process", "line 7", "remove the exit"]),
    "os._exit": ("import os\nos._exit(7)\n", ["left with status 7", "remove what ends the process"]),
    "os._exit as if nothing were wrong": ("import os\nos._exit(0)\n", ["left with status 0"]),
    "kills itself": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        [f"died of signal {int(signal.SIGKILL)}", "bisect"],
    ),
    "crashes": ("import ctypes\nctypes.string_at(0)\n", [f"died of signal {int(signal.SIGSEGV)}"]),
    "prints megabytes": (
        "for _ in range(1000):\n    print('hunter2' * 1000)\nraise ValueError\n",
        ["importing the module raised ValueError", "line 8"],
    ),
    "lacks its factory": ("del bump\n", ["the factory is not in its module", "package.module:function"]),
}


@pytest.mark.parametrize(("more", "words"), MODULE_FAULTS.values(), ids=MODULE_FAULTS)
def test_a_kernel_module_that_fails_is_told(tmp_path, more, words):
    code, text = screen(project(tmp_path, FACTORY + more), "build")
    assert code == 1
    assert "bumped, bump (T=float32)" in text
    assert [word for word in words if word not in text] == []
    assert "hunter2" not in text


def test_a_child_that_the_module_forked_does_not_outlive_the_job(tmp_path):
    name = f"tg-{secrets.token_hex(5)}"
    forking = f"""
import ctypes, os, time
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)
    time.sleep(3600)
raise ValueError
"""
    code, text = screen(project(tmp_path, FACTORY + forking), "build")
    assert (code, "importing the module raised ValueError" in text) == (1, True)
    assert name not in running()


def running():
    """What every process of this machine calls itself."""
    names = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it went meanwhile
            names.append((process / "comm").read_text().strip())
    return names


@pytest.mark.parametrize(("clock", "template"), [("wall_s", "job-wall"), ("silence_s", "job-silent")])
def test_a_module_that_never_returns_is_ended(tmp_path, clock, template):
    project(tmp_path, FACTORY + "while True:\n    pass\n")
    closure, sources = closure_of(tmp_path, bound("kernels:bump"))
    asked = [jobs.Asked(closure, SCALED, one) for one in expand(closure.binding, SCALED)]
    [trace] = jobs.elaborate(asked, sources, policy=ELABORATE.within(**{clock: 1.5}))
    assert (trace.template, trace.kernel) == (template, "bump")
    assert "loop that never ends" in tell(trace)[1]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"step":1}', b"\xff", b"[" * 5000])
def test_a_failure_that_is_no_record_is_a_fault_of_the_protocol(data):
    assert told._told(data, Stage.ELABORATE, Subject()).template == "job-protocol"


# In the job that runs the factory: what the factory does and gives, many in one job

KERNELS = """
import sys

import tilelang
import tilelang.language as T


def rows(shape_x, shape_y, dtype="float32", second="float32"):
    @T.prim_func
    def main(x: T.Tensor(shape_x, dtype), y: T.Tensor(shape_y, second)):
        with T.Kernel(1):
            T.evaluate(0)

    return main


def good(M, N):
    return rows((M, N), (M, N))


table = [1, 2]


def list_of_functions(M, N):
    return [good(M, N)]


def nothing(M, N):
    good(M, N)


def compiled(M, N):
    return object.__new__(tilelang.JITKernel)


def raising(M, N):
    raise ValueError("hunter2 in /home/alice/rms.py")


class HunterTwoError(Exception):
    pass


def raising_its_own(M, N):
    raise HunterTwoError("hunter2")


def exiting(M, N):
    sys.exit("hunter2")


def interrupted(M, N):
    raise KeyboardInterrupt


def endless(M, N):
    return endless(M, N)


def out_of_memory(M, N):
    return bytearray(1 << 50)


def asking_too_much(M, N, hunter2):
    return good(M, N)


@tilelang.jit(compile_flags=["-Dhunter2"])
def flagged(M, N):
    return good(M, N)


def flagged_inside(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        T.annotate_compile_flags(["-Dhunter2"])
        with T.Kernel(1):
            T.evaluate(0)

    return main


def one_tensor(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32")):
        with T.Kernel(1):
            T.evaluate(0)

    return main


def with_a_scalar(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), hunter2: T.int32):
        with T.Kernel(1):
            T.evaluate(0)

    return main


def flat(M, N):
    return rows((M,), (M, N))


def of_another_dtype(M, N):
    return rows((M, N), (M, N), second="float16")


def of_another_extent(M, N):
    return rows((M, N + 1), (M, N))


def baked(M, N):
    return rows((64, N), (M, N))


def open_where_fixed(M, N):
    return rows((M, T.dynamic("hunter2")), (M, N))


def computed(M, N):
    return rows((M * 2, N), (M, N))


def square(M, N):
    return rows((M, M), (M, N))
"""

OPEN = {"dynamic": ("M", "N"), "specialize": {"T": ("float32",)}}
FACTORY_FAULTS = {
    "table": ({}, "factory-not-callable", "cannot be called; its class: list"),
    "absent": ({}, "factory-missing", "the factory is not in its module"),
    "list_of_functions": ({}, "factory-result", "of class: list"),
    "nothing": ({}, "factory-result", "of class: NoneType"),
    "compiled": ({}, "factory-result", "of class: JITKernel"),
    "raising": ({}, "factory-raised", "raised ValueError, with a message of 29 characters (kernel, line 37)"),
    "raising_its_own": ({}, "factory-raised", "raised other, with a message of 7 characters"),
    "exiting": ({}, "factory-exits", "leaves the process"),
    "interrupted": ({}, "factory-exits", "leaves the process"),
    "endless": ({}, "factory-raised", "raised RecursionError"),
    "out_of_memory": ({}, "memory", "memory ran out"),
    "asking_too_much": ({}, "factory-parameter", "parameter 3 of the factory"),
    "flagged": ({}, "compile-flags", "asks for compile flags"),
    "flagged_inside": ({}, "compile-flags", "asks for compile flags"),
    "one_tensor": ({}, "tensor-count", "takes 1 arguments where the contract has 2 tensors"),
    "with_a_scalar": ({}, "scalar-parameter", "a scalar where the contract has tensor y"),
    "flat": ({}, "rank", "x has rank 1 in the kernel and 2 in the contract"),
    "of_another_dtype": ({}, "dtype", "y is float16 in the kernel and float32 in the contract"),
    "of_another_extent": ({}, "extent", "axis N of x is 25 in the kernel and 24 in the binding"),
    "baked": ({}, "extent-baked", "axis M of x is dynamic in the binding and constant in the kernel"),
    "open_where_fixed": ({}, "extent-open", "axis N of x is specialized in the binding and a symbol"),
    "computed": ({}, "extent-expression", "axis M of x is an expression"),
    "square": (OPEN, "symbol-shared", "one symbol of the kernel stands for axis N of x and for axis M"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    (folder / "kernels.py").write_text(KERNELS)
    cases = {name: (SCALED, bound(f"kernels:{name}", **how)) for name, (how, _, _) in FACTORY_FAULTS.items()}
    cases["constant"] = (
        contract_of({"x": ("float32", "M", 4)}, {"y": ("float32", "M", 4)}),
        bound("kernels:good", specialize={}, constants={"N": 5}),
    )
    cases["zzz.good"] = (SCALED, bound("kernels:good"))
    return elaborate_all(folder, cases)


@pytest.mark.compiler
@pytest.mark.parametrize("name", FACTORY_FAULTS)
def test_a_factory_that_contradicts_its_contract_is_told(outcomes, name):
    _, template, words = FACTORY_FAULTS[name]
    [trace] = outcomes[name]
    sentence, hint = tell(trace)
    assert trace.template == template
    assert words in sentence
    assert hint
    assert (trace.operator, trace.kernel) == ("scaled", name)
    assert not re.search("hunter|/home|alice", encode(trace).decode() + sentence, re.IGNORECASE)


@pytest.mark.compiler
def test_a_constant_extent_of_the_contract_is_compared(outcomes):
    [trace] = outcomes["constant"]
    assert tell(trace)[0] == "dimension 1 of x is 4 in the contract and something else in the kernel"


@pytest.mark.compiler
def test_a_factory_that_fails_leaves_the_others_alone(outcomes):
    assert isinstance(outcomes["zzz.good"][0], Elaboration)


# In the job that compiles

MARKER = "MARKER-of-a-customer-5c1d"
PASTED = (
    BOUND.replace('"T": "float32"', '"T": ("float32", "bfloat16")')
    + f'''
def bump(M, N, T):
    import tilelang.language as tl

    helper = """
    /* made for {MARKER} */
    extern "C" float bump_one(float v) {{ float {MARKER.replace("-", "_")} = v; return v + 1.0f }}
    """

    @tl.prim_func
    def rows(x: tl.Tensor((M, N), T), y: tl.Tensor((M, N), T)):
        with tl.Kernel(M) as row:
            if T == "float32":
                tl.import_source(helper)
            for j in tl.serial(N):
                y[row, j] = tl.call_extern("float32", "bump_one", x[row, j]) if T == "float32" else x[row, j]

    return rows
'''
)


@pytest.mark.compiler
def test_a_typo_in_a_pasted_helper_leaks_nothing_and_the_mended_build_works(tmp_path, capfd):
    code, stdout, stderr = said(project(tmp_path, PASTED), "build", "--json")
    report = decode(BuildReport, stdout.encode().rstrip(b"\n"), where="stdout")
    traces = {line.specialization.dtypes["T"]: line.trace for line in report.lines}
    workspace = Workspace(tmp_path / ".tilegate")
    recorded = b"".join(encode(trace) for _, trace in workspace.traces()).decode()
    told = " ".join(word for trace in traces.values() for word in tell(trace))
    assert code == 1
    assert (traces["float32"].template, traces["float32"].error) == (
        "generated-syntax",
        ErrorClass.HOST_COMPILER,
    )
    assert traces["bfloat16"].template == "no-bfloat16"
    assert "narrow the dtypes" in tell(traces["bfloat16"])[1]
    everything = "\n".join(
        (stdout, stderr, recorded, told, *said(tmp_path, "status")[1:], *capfd.readouterr())
    )
    for secret in (
        MARKER,
        MARKER.replace("-", "_"),
        "bump_one",
        "/closure",
        "/usr/",
        "site-packages",
        str(tmp_path),
    ):
        assert secret not in everything
    whole(tmp_path)

    mended = PASTED.replace("1.0f }", "1.0f; }").replace('("float32", "bfloat16")', '("float32",)')
    code, text, _ = said(project(tmp_path, mended), "build")
    assert code == 0
    assert "bumped" in text
    assert len(workspace.manifests()) == 1


# The workspace


def test_a_workspace_that_is_a_file_is_told_before_any_work(tmp_path):
    (tmp_path / ".tilegate").write_text("not a folder")
    code, text = screen(project(tmp_path), "build")
    assert code == 3
    assert "the workspace cannot be written" in text
    assert f"where: {tmp_path / '.tilegate'}" in text
    assert (tmp_path / ".tilegate").read_text() == "not a folder"


def test_an_index_that_is_no_database_is_told_and_mended_by_what_is_typed(tmp_path):
    (tmp_path / ".tilegate").mkdir()
    index = tmp_path / ".tilegate" / "index.sqlite"
    index.write_text("not a database, but long enough to be read as the header of one " * 20)
    code, stdout, stderr = said(project(tmp_path), "build")
    assert (code, stdout) == (3, "")
    assert "the index of the workspace is corrupt" in stderr
    assert "next: tilegate store rebuild   (it fills the index anew from the blobs)" in stderr
    assert said(tmp_path, "store", "rebuild")[0] == 0
    assert said(tmp_path, "status")[0] == 0


def test_records_of_another_schema_version_are_left_alone(tmp_path):
    """A newer tilegate wrote them: they are neither read as ours nor in the way."""
    newer = b'{"abi":"tilegate-abi/9","schema":"tilegate.manifest/9"}'
    place = tmp_path / ".tilegate" / "blobs" / "sha256" / digest_of(newer).removeprefix("sha256:")
    place.parent.mkdir(parents=True)
    place.write_bytes(newer)
    code, text = screen(project(tmp_path, FACTORY + "raise ValueError\n"), "build")
    assert (code, "importing the module raised ValueError" in text) == (1, True)
    assert place.read_bytes() == newer


def test_a_record_of_ours_that_was_damaged_is_told_with_its_place(tmp_path):
    damaged = b'{"abi":"tilegate-abi/1","schema":"tilegate.manifest/3"}'
    place = tmp_path / ".tilegate" / "blobs" / "sha256" / digest_of(damaged).removeprefix("sha256:")
    place.parent.mkdir(parents=True)
    place.write_bytes(damaged)
    code, stdout, stderr = said(project(tmp_path), "build")
    assert (code, stdout) == (3, "")
    assert f"not a {Manifest.__name__}" in stderr
    assert str(place) in stderr
