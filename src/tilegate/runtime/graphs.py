"""CUDA graphs: which artifacts each holds, and whether it replays what would no longer be served.

A replay asks nobody: no guard, no counter, no kill switch. So captures are recorded, at their two ends and
nowhere else. Each artifact counts its calls anyway, in the table that its guard reads; what was counted between
the ends is what the graph holds. A call pays nothing for it. Calls of other threads during a capture are
counted too: a graph may be said to hold more than it does, never less.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Counts = Mapping[str, int]
"""Calls that each artifact has served, by name."""


@dataclass(frozen=True, slots=True)
class Graph:
    """One CUDA graph, as it was captured."""

    generation: int
    """What was served at the beginning of the capture: `tilegate.generation()` then."""
    artifacts: dict[str, int]
    """Calls that it replays, by artifact as `stats` names it. None, where references were captured alone."""
    captured: Callable[[], Any]
    """The object that captured it (`torch.cuda.CUDAGraph`), or None once that is gone."""


class Recorder:
    """The captures of this process. `counts` must tell of every artifact that calls might reach."""

    def __init__(self, counts: Callable[[], Counts], generation: Callable[[], int]) -> None:
        self._counts = counts
        self._generation = generation
        self._lock = threading.Lock()
        self._begun: dict[int, tuple[int, Counts]] = {}
        self._graphs: weakref.WeakKeyDictionary[Any, Graph] = weakref.WeakKeyDictionary()

    def begin(self, captured: Any) -> None:
        """A capture begins, or is about to."""
        with self._lock:
            self._graphs.pop(captured, None)
            self._begun[id(captured)] = self._generation(), dict(self._counts())

    def end(self, captured: Any) -> None:
        """It has ended well."""
        with self._lock:
            begun = self._begun.pop(id(captured), None)
            if begun is not None:
                generation, before = begun
                held = {name: n - before.get(name, 0) for name, n in self._counts().items()}
                held = {name: n for name, n in held.items() if n > 0}
                self._graphs[captured] = Graph(generation, held, weakref.ref(captured))

    def forget(self, captured: Any) -> None:
        """It failed, or the graph was let go."""
        with self._lock:
            self._begun.pop(id(captured), None)
            self._graphs.pop(captured, None)

    def graphs(self) -> tuple[Graph, ...]:
        """Of all graphs that still exist, the oldest first."""
        with self._lock:
            return tuple(self._graphs.values())

    def held(self) -> frozenset[str]:
        """Artifacts that some graph may replay, one being captured included."""
        with self._lock:
            names: Iterable[str] = [name for graph in self._graphs.values() for name in graph.artifacts]
            return frozenset(names)


def watch(kind: Any, recorder: Recorder) -> Callable[[], None]:
    """Record whatever `kind`, which is `torch.cuda.CUDAGraph` or looks like it, captures from now on. torch has
    no hook for it, so the three methods are wrapped; the undo puts back those that nobody else has wrapped.
    """
    wrapped = {
        "capture_begin": _begins(kind.capture_begin, recorder),
        "capture_end": _ends(kind.capture_end, recorder),
        "reset": _forgets(kind.reset, recorder),
    }
    before = {name: vars(kind).get(name) for name in wrapped}
    for name, method in wrapped.items():
        setattr(kind, name, method)

    def undo() -> None:
        for name, method in wrapped.items():
            if vars(kind).get(name) is method:
                if before[name] is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, before[name])

    return undo


def _begins(method: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(method)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.begin(
            self
        )  # first: a call that another thread makes meanwhile is one too many, not one too few
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            recorder.forget(self)
            raise

    return capture_begin


def _ends(method: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(method)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            found = method(self, *args, **kwargs)
        except BaseException:
            recorder.forget(self)
            raise
        recorder.end(self)
        return found

    return capture_end


def _forgets(method: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(method)
    def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.forget(self)
        return method(self, *args, **kwargs)

    return reset
