"""How an entry is run: plainly first, then under its condition. What differs between the runs is a fault.

A launch takes a `Trial`, which knows how to spoil all memory, put the inputs, and call; it returns the call's
refusal, or 0 once the device has come to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tilegate.records.plan import Condition

if TYPE_CHECKING:
    import torch

POLL_S = 0.0002
DELAY_CYCLES = 20_000_000
"""Of a kernel that only waits, in front of the inputs on a side stream: about 10 ms."""
BUSY_BYTES = 256 * 2**20
"""What the neighbour works on: more than caches hold, so that it takes memory and multiprocessors alike."""
BUSY_ROUNDS = (32, 256, 2048)
"""Kernels of the neighbour; more of them where it had ended before the artifact's call was made."""


class Trial(Protocol):
    """One run of an entry."""

    def spoil(self) -> None:
        """Poison every tensor, the inputs too, and write the canaries anew."""

    def put(self) -> None:
        """Write the inputs, on the current stream."""

    def call(self) -> int: ...


Launch = Callable[[Trial], int]


class Launches(Protocol):
    def under(self, condition: Condition) -> Sequence[Launch]:
        """At least two; the first is a plain one."""


class OnHost:
    """Calls return when they are done, and there is but one condition."""

    def under(self, _condition: Condition) -> Sequence[Launch]:
        return (self._plain, self._plain)

    def _plain(self, trial: Trial) -> int:
        trial.spoil()
        trial.put()
        return trial.call()


class OnCuda:
    """Calls return while the device still works. A fault of it is raised when it is waited for."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415

        self._torch: Any = torch
        self._side = torch.cuda.Stream()
        self._neighbour: torch.Tensor | None = None

    def under(self, condition: Condition) -> Sequence[Launch]:
        match condition:
            case Condition.PLAIN:
                return (self._plain, self._plain)
            case Condition.SIDE_STREAM:
                return (self._plain, self._on_side_stream)
            case Condition.BUSY:
                return (self._plain, self._beside_others)
            case Condition.GRAPH:
                graph = self._torch.cuda.CUDAGraph()
                return (
                    self._plain,
                    lambda trial: self._capture(trial, graph) or self._replay(trial, graph),
                    lambda trial: self._replay(trial, graph),
                )

    def _plain(self, trial: Trial) -> int:
        trial.spoil()
        trial.put()
        refusal = trial.call()
        self._settle()
        return refusal

    def _on_side_stream(self, trial: Trial) -> int:
        """The inputs arrive late, and on this stream alone."""
        trial.spoil()
        self._settle()
        with self._torch.cuda.stream(self._side):
            self._torch.cuda._sleep(DELAY_CYCLES)  # noqa: SLF001 - torch's own tests use it for this
            trial.put()
            refusal = trial.call()
            self._settle()
        return refusal

    def _beside_others(self, trial: Trial) -> int:
        for rounds in BUSY_ROUNDS:
            trial.spoil()
            trial.put()
            self._settle()
            done = self._disturb(rounds)
            refusal = trial.call()
            still_going = not done.query()
            self._settle()
            done.synchronize()
            if refusal or still_going:
                break
        return refusal

    def _disturb(self, rounds: int) -> Any:
        if self._neighbour is None:
            self._neighbour = self._torch.ones(BUSY_BYTES // 4, device="cuda")
            self._settle()
        with self._torch.cuda.stream(self._side):
            for _ in range(rounds):
                self._neighbour.mul_(1.0)
            done = self._torch.cuda.Event()
            done.record()
        return done

    def _capture(self, trial: Trial, graph: Any) -> int:
        trial.spoil()
        trial.put()
        self._settle()
        with self._torch.cuda.graph(graph):
            return trial.call()

    def _replay(self, trial: Trial, graph: Any) -> int:
        trial.spoil()
        trial.put()
        graph.replay()
        self._settle()
        return 0

    def _settle(self) -> None:
        """Wait for the current stream in small steps: whoever ends this process needs no answer of the driver."""
        event = self._torch.cuda.Event()
        event.record()
        while not event.query():
            time.sleep(POLL_S)
