"""CUDA graphs replay what they hold, whatever is served: captures are recorded, and engines are told to recapture.

Graphs are captured by a class like torch's, over the stand-in driver.
"""

from __future__ import annotations

import functools
import gc
import threading

import pytest

import tilegate
from tests import world
from tests.gpus import H200, GpuTensor, part
from tilegate.runtime.graphs import Recorder, watch


@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="graph_twice")
def twice(x):
    return 2 * x


@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="graph_other")
def other(x):
    return 2 * x


class CudaGraph:
    """Captures as `torch.cuda.CUDAGraph` does, as far as Python sees it."""

    driver = None

    def capture_begin(self, pool=None, **options):
        if pool == "taken":
            raise RuntimeError("pool")
        self.driver.capture(on=True)

    def capture_end(self):
        self.driver.capture(on=False)

    def reset(self):
        pass


@pytest.fixture
def graphs(monkeypatch, machine):
    CudaGraph.driver = machine(H200)
    kind = type("CudaGraph", (CudaGraph,), dict(vars(CudaGraph)))
    monkeypatch.setattr("torch.cuda.CUDAGraph", kind)
    yield kind
    tilegate.use(None)
    tilegate.reference_only(mode=False)


@pytest.fixture
def told():
    heard = []
    undo = tilegate.on_recapture(heard.append)
    yield heard
    undo()


def serve(folder, *parts, **kwargs):
    world.write_parts(folder, *parts, **kwargs)
    return tilegate.use(folder, allow_unsigned=True)


def captured(kind, *calls):
    graph = kind()
    graph.capture_begin()
    for call in calls:
        call(GpuTensor(4))
    graph.capture_end()
    return graph


def held(graph):
    (found,) = (g for g in tilegate.graphs() if g.captured() is graph)
    return {name.partition(" (")[0]: n for name, n in found.artifacts.items()}


# What a graph holds


def test_a_capture_launches_binaries_and_is_recorded_with_what_it_holds(tmp_path, graphs):
    serve(tmp_path, part(twice.contract()), part(other.contract(), kernel="another"))
    twice(GpuTensor(4))
    first = captured(graphs, twice, twice, other)
    twice(GpuTensor(4))
    second = captured(graphs, other)
    assert held(first) == {"body for cuda:sm_90a": 2, "another for cuda:sm_90a": 1}
    assert held(second) == {"another for cuda:sm_90a": 1}
    assert {g.generation for g in tilegate.graphs()} == {tilegate.generation()}
    assert len(graphs.driver.launches()) == 6


def test_a_graph_of_references_alone_is_recorded_too(tmp_path, graphs):
    """A later release would serve what it holds."""
    serve(tmp_path, part(other.contract()))
    assert held(captured(graphs, twice)) == {}


def test_a_call_of_another_thread_may_be_counted_to_a_graph_and_none_is_lost(tmp_path, graphs):
    serve(tmp_path, part(twice.contract()), part(other.contract(), kernel="another"))
    graph = graphs()
    graph.capture_begin()
    twice(GpuTensor(4))
    thread = threading.Thread(target=lambda: other(GpuTensor(4)))
    thread.start()
    thread.join()
    graph.capture_end()
    assert held(graph)["body for cuda:sm_90a"] == 1


def test_a_release_taken_away_during_a_capture_leaves_what_ran_on_record(tmp_path, graphs, told):
    serve(tmp_path, part(twice.contract()))
    graph = graphs()
    graph.capture_begin()
    twice(GpuTensor(4))
    serve(tmp_path / "next", part(twice.contract(), kernel="newer"))
    twice(GpuTensor(4))
    graph.capture_end()
    assert held(graph) == {"body for cuda:sm_90a": 1, "newer for cuda:sm_90a": 1}
    (found,) = tilegate.graphs()
    assert found.generation != tilegate.generation()


def test_graphs_that_are_gone_reset_or_failed_are_not_on_record(tmp_path, graphs):
    serve(tmp_path, part(twice.contract()))
    kept, dropped, again = (captured(graphs, twice) for _ in range(3))
    again.reset()
    del dropped
    gc.collect()
    with pytest.raises(RuntimeError, match="pool"):
        graphs().capture_begin(pool="taken")
    assert [g.captured() for g in tilegate.graphs()] == [kept]


def test_artifacts_for_the_processor_are_in_no_graph(tmp_path, graphs):
    import torch

    serve(tmp_path, part(twice.contract()), world.part(other.contract(), world.SCALE, "FACTOR=3"))
    tilegate.synchronized()
    graph = captured(graphs, lambda _: other(torch.ones(4)))
    assert (held(graph), tilegate.suspects()) == ({}, ())


def test_captured_artifacts_stay_suspects_since_replays_are_not_counted(tmp_path, graphs):
    serve(tmp_path, part(twice.contract()), part(other.contract(), kernel="another"))
    graph = captured(graphs, twice)
    other(GpuTensor(4))
    tilegate.synchronized()
    assert [s.partition(" for")[0] for s in tilegate.suspects()] == ["body"]
    graph.reset()
    assert tilegate.suspects() == ()


def test_an_engine_with_captures_of_its_own_can_record_them(tmp_path, graphs):
    class Mine:
        pass

    serve(tmp_path, part(twice.contract()))
    mine = Mine()
    with tilegate.recording(mine):
        twice(GpuTensor(4))
    assert held(mine) == {"body for cuda:sm_90a": 1}
    with pytest.raises(KeyError), tilegate.recording(mine):
        raise KeyError
    assert tilegate.graphs() == ()


# Generations


def test_each_change_of_what_is_served_is_told_with_the_graphs_that_are_stale(tmp_path, graphs, told):
    serve(tmp_path / "a", part(twice.contract()))
    (first,) = told
    graph = captured(graphs, twice)
    serve(tmp_path / "b", part(twice.contract(), kernel="newer"))
    tilegate.reference_only()
    tilegate.use(None)
    numbers = [recapture.generation for recapture in told]
    assert len(set(numbers)) == len(numbers) == 4
    assert first.graphs == ()
    assert [[g.captured() for g in recapture.graphs] for recapture in told[1:]] == [[graph]] * 3


def test_what_is_served_again_has_its_number_again_and_its_graphs_are_good(tmp_path, graphs, told):
    serve(tmp_path, part(twice.contract()))
    before = tilegate.generation()
    graph = captured(graphs, twice)
    with tilegate.reference_only():
        assert tilegate.generation() != before
        during = captured(graphs, twice)
    assert tilegate.generation() == before
    assert [[g.captured() for g in recapture.graphs] for recapture in told[-2:]] == [[graph], [during]]
    told.clear()
    tilegate.use(tmp_path, allow_unsigned=True)
    assert told == [], "the same release: the same bytes"


def test_a_callback_hears_when_all_is_attached_and_may_fail_without_undoing_it(tmp_path, graphs):
    heard = []

    def fails(_recapture):
        heard.append(len(graphs.driver.launches()))
        twice(GpuTensor(4))
        raise ValueError("engine")

    undo = [tilegate.on_recapture(fails), tilegate.on_recapture(lambda r: heard.append(r.generation))]
    with pytest.raises(ExceptionGroup, match="on_recapture"):
        serve(tmp_path, part(twice.contract()))
    assert (heard, len(graphs.driver.launches())) == ([0, tilegate.generation()], 1)
    for take_back in undo:
        take_back()
        take_back()
    tilegate.use(None)
    assert len(heard) == 2


def test_an_operator_edited_in_a_living_process_is_another_generation(tmp_path, graphs):
    from tests.written import imported

    text = """
        import tilegate
        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="graph_edited")
        def edited(x):
            return 2 * x
    """
    with imported(tmp_path / "a", {"ops.py": text}, "ops", name="graph_ops") as module:
        serve(tmp_path / "release", part(module.edited.contract()))
        before = tilegate.generation()
    with imported(tmp_path / "b", {"ops.py": text.replace("2 *", "3 *")}, "ops", name="graph_ops"):
        assert tilegate.generation() != before


# The class of torch


def test_torchs_class_is_wrapped_only_while_artifacts_for_gpus_are_in_use(tmp_path, graphs):
    before = dict(vars(graphs))
    serve(tmp_path / "cpu", world.part(twice.contract(), world.SCALE, "FACTOR=3"))
    assert dict(vars(graphs)) == before
    serve(tmp_path / "gpu", part(twice.contract()))
    assert vars(graphs)["capture_begin"] is not before["capture_begin"]
    tilegate.use(None)
    assert dict(vars(graphs)) == before


def test_undoing_leaves_what_somebody_else_has_wrapped_meanwhile():
    kind = type("Graph", (CudaGraph,), {})
    undo = watch(kind, Recorder(dict, int))
    theirs = kind.capture_end
    wrapped = kind.capture_end = functools.partialmethod(theirs)
    undo()
    assert vars(kind)["capture_end"] is wrapped
    assert "capture_begin" not in vars(kind)


def test_the_real_class_of_torch_has_what_is_wrapped():
    import torch

    assert {"capture_begin", "capture_end", "reset"} <= vars(torch.cuda.CUDAGraph).keys()
