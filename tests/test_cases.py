"""Kernels with a known fault, the whole way from source to release: each ends as it should."""

import fcntl
import importlib
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import tilegate
from tilegate import pipeline
from tilegate.library import Rows, open_library
from tilegate.pipeline.evaluate import evidence
from tilegate.pipeline.opened import open_project
from tilegate.pipeline.promote import read_release
from tilegate.records.canonical import decode, encode
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.miss import GUARD_CODES, MissReason
from tilegate.records.plan import Layout, Values
from tilegate.records.report import PromoteReport
from tilegate.runtime import operator as registry
from tilegate.sandbox import EVALUATE

pytestmark = pytest.mark.compiler

CASES = Path(__file__).parent / "cases"
TERMINATING = ("gemm", "negate_rows", "shifted", "row_max", "row_max_of_finite")
IMPATIENT = EVALUATE.within(silence_s=6.0)
"""The hang is told soon; imports have a limit of their own."""


class Worked(NamedTuple):
    folder: Path
    report: PromoteReport

    def serves(self, operator):
        """The shape classes that the release holds for an operator."""
        release = read_release(self.folder / "release")
        return [c for one in release.candidates if one.operator == operator for c in one.classes]

    def refused(self, operator):
        """(code, message) of every reason why nothing serves an operator."""
        found = [r for r in self.report.rejected if r.subject.startswith(f"{operator} ")]
        return [(reason.code, reason.message) for one in found for reason in one.reasons]

    def artifact(self, operator):
        opened = open_project(self.folder, only=[operator])
        [(digest, manifest)] = opened.current()
        return digest, manifest, opened.workspace.blobs.get(manifest.library.digest)

    def evaluations(self, operator):
        """Of each evaluation, in order: its plan's nonce, and (entry, result) of every entry."""
        opened = open_project(self.folder, only=[operator])
        recorded = evidence(opened, self.artifact(operator)[0])
        return [(plan.nonce, [(plan.entries[r.index], r) for r in e.results]) for _, plan, e in recorded]


@pytest.fixture(scope="module")
def worked(tmp_path_factory):
    """Built, evaluated and promoted once for all processes of a test run: the first to come does it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder, report = shared / "cases", shared / "cases.promote.json"
    with (shared / "cases.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not report.exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(CASES, folder, ignore=shutil.ignore_patterns("__pycache__"))
            report.write_bytes(encode(work_through(folder)))
    return Worked(folder, decode(PromoteReport, report.read_bytes(), where="the report"))


def work_through(folder):
    assert pipeline.build(folder).accepted
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(pipeline.evaluate, folder, only=["significand"], policy=IMPATIENT)
        pipeline.evaluate(folder, only=TERMINATING)
        pipeline.evaluate(folder, only=["negate_rows"])
        waiting.result()
    return pipeline.promote(folder)


@pytest.fixture
def served(worked, monkeypatch):
    """The operators of the cases, with their release in force."""
    monkeypatch.setattr(registry, "OPERATORS", {})
    monkeypatch.syspath_prepend(worked.folder)
    contracts = importlib.import_module("case_contracts")
    tilegate.use(worked.folder / "release", allow_unsigned=True)
    yield contracts
    tilegate.use(None)
    del sys.modules["case_contracts"]


def test_a_lost_k_tail_becomes_a_guard(worked):
    [(_, results)] = worked.evaluations("gemm")
    at_100 = {result.verdict for entry, result in results if entry.workload.axes["K"] == 100}
    classes = worked.serves("gemm")
    assert at_100 == {EntryVerdict.WRONG}
    assert classes
    assert all("K % 32 == 0" in str(one) for one in classes)
    assert not [k for one in classes for k in range(1000) if k % 32 and k in one.axes["K"]]
    assert any(one.admits({"M": 9, "N": 20, "K": 128}) for one in classes)


def test_a_call_with_a_k_tail_is_answered_by_the_reference(served):
    generator = torch.Generator().manual_seed(3)
    for k in (64, 100):
        a = torch.randn(16, k, generator=generator)
        b = torch.randn(k, 16, generator=generator)
        torch.testing.assert_close(served.gemm(a, b), a @ b)
    counted = tilegate.stats()["gemm"]
    assert sum(counted.hits.values()) == 1
    assert counted.misses == {"no evidence for this shape (M=16, K=100, N=16)": 1}


def test_a_kernel_that_hangs_for_one_value_is_rejected(worked):
    [(_, results)] = worked.evaluations("significand")
    verdicts = {entry.values: result.verdict for entry, result in results if entry.layout is Layout.ALIGNED}
    assert verdicts.pop(Values.ZEROS) is EntryVerdict.HUNG
    assert set(verdicts.values()) == {EntryVerdict.PASSED}
    assert [code for code, _ in worked.refused("significand")] == ["VALUE_DEPENDENT"]
    assert worked.serves("significand") == []


def test_rows_that_are_never_written_are_seen_on_every_run(worked):
    (nonce, first), (another_nonce, second) = worked.evaluations("negate_rows")
    at_40 = [
        (r.verdict, r.count) for e, r in first if e.workload.axes["M"] == 40 and e.layout is Layout.ALIGNED
    ]
    assert nonce != another_nonce
    assert at_40
    assert set(at_40) == {(EntryVerdict.UNWRITTEN, 8 * 24)}
    assert seen(first) == seen(second)


def seen(results):
    """Verdicts by what was run: why it was run differs, since failures are asked for again."""
    return {(encode(e.workload), e.layout, e.values): (r.verdict, r.count, r.detail) for e, r in results}


def test_rows_that_are_never_written_become_a_guard(worked):
    classes = worked.serves("negate_rows")
    assert classes
    assert all("M % 16 == 0" in str(one) for one in classes)
    assert not [m for one in classes for m in range(1000) if m % 16 and m in one.axes["M"]]


def test_a_short_second_argument_is_a_miss_before_launch(served):
    x, shift = torch.arange(1000.0), torch.tensor([0.5])
    assert served.shifted(x, shift).equal(x + shift)
    assert tilegate.stats()["shifted"].misses == {"tensors disagree on an axis (n: 1000 in x, 1 in shift)": 1}
    assert sum(tilegate.stats()["shifted"].hits.values()) == 0
    assert served.shifted(x, x).equal(x + x)
    assert sum(tilegate.stats()["shifted"].hits.values()) == 1


def test_a_short_second_argument_raises_what_plain_pytorch_raises(served):
    x, shift = torch.ones(1000), torch.ones(999)
    with pytest.raises(RuntimeError) as plain:
        x + shift
    with pytest.raises(RuntimeError) as through_the_operator:
        served.shifted(x, shift)
    assert str(through_the_operator.value) == str(plain.value)


@pytest.mark.parametrize("short", [1, 2], ids=["input", "output"])
def test_a_short_tensor_is_refused_and_its_neighbours_are_unharmed(worked, short):
    _, manifest, data = worked.artifact("shifted")
    library = open_library(data, identity=manifest.identity)
    arenas = [torch.full((1064,), 7.0) for _ in range(3)]
    tensors = [arena[: 500 if place == short else 1000] for place, arena in enumerate(arenas)]
    refused = library.entry(*tensors, Rows.admitting_all(manifest.symbols).address)
    assert GUARD_CODES[refused & 0xFF] is MissReason.SYMBOL
    assert refused >> 8 & 0xFF == short
    assert all(arena.eq(7.0).all() for arena in arenas)


def test_a_swallowed_nan_rejects_the_kernel_where_nan_is_in_the_contract(worked):
    [(_, results)] = worked.evaluations("row_max")
    of_nan = {result.verdict for entry, result in results if entry.values is Values.NAN}
    [(code, message)] = worked.refused("row_max")
    assert of_nan == {EntryVerdict.NONFINITE}
    assert code == "VALUE_DEPENDENT"
    assert "with NaN is NONFINITE while normal values passed" in message
    assert worked.serves("row_max") == []


def test_a_swallowed_nan_is_accepted_where_the_contract_excludes_it(worked):
    [(_, results)] = worked.evaluations("row_max_of_finite")
    assert {result.verdict for _, result in results} == {EntryVerdict.PASSED}
    assert not {Values.NAN, Values.INF} & {entry.values for entry, _ in results}
    assert any(one.admits({"M": 12}) for one in worked.serves("row_max_of_finite"))
