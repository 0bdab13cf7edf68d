"""A tiny project whose compiler takes no time, and a process that runs commands on it in children to be killed.

Nothing opens its artifacts, so they are any bytes; verdicts are made up from the extents. All else is the
product's own: closures, records, workspace, coverage, release.

As a program it reads lines of JSON, `[[verb, folder, stop], ...]`, runs each verb in a fork of its own, all at once,
and says:

    begun <pid>                 a child is about to run its verb
    recorded <pid> <digest>     `Workspace.record` has returned there
    failed <pid> <text>         the verb raised an error of ours; the text as a JSON string
    ended <pid> <status>        as os.waitpid gives it

A child kills itself right before its step number `stop`, counted from 0, where that is not null. Steps are all that
others can see of it on the disk: a file or folder made, renamed or removed, a change of the index committed.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilegate import pipeline
from tilegate.build.jobs import Asked, Built, Elaborated, identity_of
from tilegate.errors import TilegateError
from tilegate.evaluate.run import Subject
from tilegate.pipeline.tools import Tools
from tilegate.records.artifact import ABI, Elaboration, Manifest, TensorAbi
from tilegate.records.canonical import Blob, Document, blob_of, digest_of
from tilegate.records.closure import SourceFile
from tilegate.records.contract import Contract, NonFinite, TensorSpec, Tolerance
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import EntryResult, EntryVerdict, Evaluation, Vouch
from tilegate.records.isolation import Isolation, Level
from tilegate.records.plan import Plan, Workload
from tilegate.records.target import DeviceClass, Target
from tilegate.records.toolchain import Toolchain
from tilegate.store.workspace import Workspace

ISOLATION = Isolation(
    level=Level.FULL,
    network=False,
    own_pids=True,
    own_files=True,
    filtered=True,
    landlock=7,
    cgroup=False,
    uid=60600,
)
TILE = 4

CONTRACT = Contract(
    name="scale",
    inputs=(TensorSpec(name="x", dtype="float32", dims=("n",)),),
    outputs=(TensorSpec(name="y", dtype="float32", dims=("n",)),),
    dtypes={},
    attributes=(),
    in_place=(),
    tolerance=Tolerance(),
    non_finite=NonFinite.EXCLUDED,
    values={},
    reference=digest_of(b"the reference"),
)

PROJECT = """
operators = ["operators"]
kernels = ["kernels"]
targets = ["cpu:x86-64-v2"]
"""

KERNELS = """
import tilegate

REVISION = {revision}

@tilegate.kernel("operators:scale", dynamic=("n",))
def whole(n):
    "Right at every extent."

@tilegate.kernel("operators:scale", dynamic=("n",))
def tail(n):
    "Loses the tail of the last tile."
"""


def write_project(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tilegate.toml").write_text(PROJECT)
    (folder / "operators.py").write_text("def scale(x):\n    return 2 * x\n")
    revise(folder, 0)


def revise(folder: Path, revision: int) -> None:
    """Edit the kernels, so that there is something to build, and what was built before is superseded."""
    (folder / "kernels.py").write_text(KERNELS.format(revision=revision))


def describe(
    modules: Sequence[str], files: Sequence[SourceFile], sources: Mapping[str, bytes], **_: object
) -> list[Declaration]:
    served = tuple(Workload(axes={"n": n}) for n in (4, 8, 9))
    return [Declaration(operator="operators:scale", contract=CONTRACT, served=served)]


def elaborate(asked: Sequence[Asked], sources: Mapping[str, bytes], **_: object) -> list[Elaborated]:
    made = []
    for one in asked:
        closure, contract = one.closure, one.contract
        ir = f"IR of {closure.digest}\n".encode() * 100
        tensors = tuple(
            TensorAbi(name=t.name, dtype=t.dtype, dims=t.dims, written=t.name == "y")
            for t in contract.arguments
        )
        elaboration = Elaboration(
            operator=contract.name, kernel=closure.binding.kernel, contract=contract.digest,
            closure=closure.digest, specialization=one.specialization, entry="main", tensors=tensors,
            symbols=("n",), tiles={"n": (TILE,)}, stages=(), pass_configs={}, ir=digest_of(ir),
        )  # fmt: skip
        made.append(Elaborated(elaboration, ir, ISOLATION))
    return made


@contextmanager
def compiler(
    _targets: Sequence[Target], toolchain: Toolchain, **_: object
) -> Iterator[Callable[[Sequence[tuple[Elaborated, Target]]], list[Built]]]:
    yield lambda asked: compiled(asked, toolchain)


def compiled(asked: Sequence[tuple[Elaborated, Target]], toolchain: Toolchain) -> list[Built]:
    made = []
    for one, target in asked:
        identity = identity_of(one.elaboration, target, toolchain)
        library = identity.encode() * 300
        manifest = Manifest(
            abi=ABI, elaboration=one.elaboration, target=target, toolchain=toolchain,
            isolation=(ISOLATION, ISOLATION), identity=identity, library=blob_of(library),
        )  # fmt: skip
        made.append(Built(manifest, library))
    return made


def run_plan(
    subject: Subject, plan: Plan, device: DeviceClass, versions: dict[str, str], **_: object
) -> Evaluation:
    def verdict(n: int) -> EntryVerdict:
        lost = subject.manifest.elaboration.kernel == "tail" and n % TILE
        return EntryVerdict.WRONG if lost else EntryVerdict.PASSED

    return Evaluation(
        contract=plan.contract, manifest=plan.manifest, library=subject.manifest.library.digest,
        plan=plan.digest, device=device, versions=versions, isolation=ISOLATION, vouch=Vouch.OBSERVED,
        results=tuple(
            EntryResult(index=i, verdict=verdict(e.workload.axes["n"])) for i, e in enumerate(plan.entries)
        ),
    )  # fmt: skip


TOOLS = Tools(describe=describe, elaborate=elaborate, compiler=compiler, run_plan=run_plan)

VERBS: dict[str, Callable[[Path], object]] = {
    "build": lambda folder: pipeline.build(folder, tools=TOOLS),
    "evaluate": lambda folder: pipeline.evaluate(folder, tools=TOOLS),
    "evaluate whole": lambda folder: pipeline.evaluate(folder, only=["whole"], tools=TOOLS),
    "evaluate tail": lambda folder: pipeline.evaluate(folder, only=["tail"], tools=TOOLS),
    "promote": pipeline.promote,
    "gc": lambda folder: pipeline.store.gc(folder, superseded=True, grace_s=0),
}


def say(word: str, *rest: object) -> None:
    os.write(1, f"{' '.join([word, str(os.getpid()), *map(str, rest)])}\n".encode())


def tell_what_is_recorded() -> None:
    record = Workspace.record

    def told(workspace: Workspace, document: Document) -> Blob:
        blob = record(workspace, document)
        say("recorded", blob.digest)
        return blob

    Workspace.record = told  # type: ignore[method-assign]


def stop_before(number: int) -> None:
    """Arm the kill: see above."""
    steps = itertools.count()

    def step() -> None:
        if next(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        made = event == "open" and isinstance(flags := arguments[2], int) and flags & os.O_CREAT
        opened = event == "open" and str(arguments[1]).startswith("w")  # made, and not yet written
        if made or opened or event in ("os.rename", "os.remove", "os.mkdir"):
            step()

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *rest: object) -> sqlite3.Cursor:
            if sql == "COMMIT":
                step()
            return super().execute(sql, *rest)

    sys.addaudithook(heard)
    sqlite3.connect = functools.partial(sqlite3.connect, factory=Connection)  # type: ignore[assignment]


def child(verb: str, folder: Path, stop: int | None) -> None:
    """Never returns."""
    try:
        os.setsid()
        if stop is not None:
            stop_before(stop)
        tell_what_is_recorded()
        say("begun")
        VERBS[verb](folder)
    except TilegateError as error:
        say("failed", json.dumps(str(error)))
        os._exit(error.exit_code)
    except BaseException:  # noqa: BLE001 - whatever it is, the fork must not go on as its parent
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


class Parent:
    """The other end: starts this program, which has imported everything before it forks the first child."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            bufsize=1, start_new_session=True,
        )  # fmt: skip

    def start(self, *asked):
        """Begin (verb, folder, stop) at once; the pids in the order in which they began."""
        asked = [(verb, str(folder), *(stop or [None])) for verb, folder, *stop in asked]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._heard, begun = [], []
        self._left = len(asked)
        while len(begun) < len(asked):
            assert self._left, self._heard
            word, pid, *_ = self._hear()
            if word == "begun":
                begun.append(int(pid))
        return begun

    def wait(self):
        """Digests whose recording was told, error texts, and the statuses of all children."""
        while self._left:
            self._hear()
        found = {word: [" ".join(rest) for w, _, *rest in self._heard if w == word]
                 for word in ("recorded", "failed", "ended")}  # fmt: skip
        texts = [json.loads(text) for text in found["failed"]]
        return found["recorded"], texts, [int(status) for status in found["ended"]]

    def run(self, *asked):
        self.start(*asked)
        return self.wait()

    def _hear(self):
        line = self._process.stdout.readline()
        assert line, "the parent is gone"
        words = line.split(" ")
        words[-1] = words[-1].rstrip("\n")
        self._heard.append(words)
        self._left -= words[0] == "ended"
        return words

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def main() -> None:
    for line in sys.stdin:
        children = []
        for verb, folder, stop in json.loads(line):
            pid = os.fork()
            if pid == 0:
                child(verb, Path(folder), stop)
            children.append(pid)
        for pid in children:
            _, status = os.waitpid(pid, 0)
            os.write(1, f"ended {pid} {status}\n".encode())


if __name__ == "__main__":
    main()
