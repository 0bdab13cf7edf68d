"""What a model spends in its layer norms, plain and patched, side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from patch import patch


@dataclass
class Timing:
    """Of one way to run the model. `norms` holds the seconds of every layer-norm call, by tokens."""

    totals_s: list[float] = field(default_factory=list)
    norms: dict[int, list[float]] = field(default_factory=dict)

    def median_us(self, low: int, high: int) -> float:
        """Median of the calls with `low <= tokens < high`, in microseconds."""
        return 1e6 * statistics.median(s for n, calls in self.norms.items() if low <= n < high for s in calls)

    def share(self) -> float:
        """Of a round's time that goes to layer norms. Medians: a neighbour's burst is nobody's cost."""
        norms = sum(statistics.median(calls) * len(calls) for calls in self.norms.values())
        return norms / len(self.totals_s) / statistics.median(self.totals_s)


def measure(model: torch.nn.Module, encode: Callable[[], object], rounds: int) -> tuple[Timing, Timing]:
    """Plain and patched, by turns, so that a machine that drifts drifts for both.

    Returns:
        The timing of the plain model and of the patched one, under whatever release is in use.
    """
    plain, patched = Timing(), Timing()
    for _ in range(rounds):
        _one_round(model, encode, plain)
        leave = patch(model)
        _one_round(model, encode, patched)
        leave()
    return plain, patched


def buckets(timing: Timing) -> Iterator[tuple[int, int, int]]:
    """Powers of two `low <= tokens < high` that occurred, with the calls of each in a round."""
    for power in range(max(timing.norms).bit_length()):
        low, high = 1 << power, 2 << power
        calls = sum(len(seconds) for n, seconds in timing.norms.items() if low <= n < high)
        if calls:
            yield low, high, calls // len(timing.totals_s)


def _one_round(model: torch.nn.Module, encode: Callable[[], object], timing: Timing) -> None:
    with _stopwatch(model, timing):
        start = time.perf_counter()
        encode()
        timing.totals_s.append(time.perf_counter() - start)


@contextmanager
def _stopwatch(model: torch.nn.Module, timing: Timing) -> Iterator[None]:
    """Times layer norms from outside of their forward: whatever answers, being timed costs the same."""
    started: list[float] = []

    def before(*_: object) -> None:
        started.append(time.perf_counter())

    def after(_module: object, _inputs: object, y: torch.Tensor) -> None:
        seconds = time.perf_counter() - started.pop()
        timing.norms.setdefault(y.shape[:-1].numel(), []).append(seconds)

    norms = [m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)]
    hooks = [norm.register_forward_pre_hook(before) for norm in norms]
    hooks += [norm.register_forward_hook(after) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
