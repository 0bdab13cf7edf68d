"""What a model spends in the three operators, plain and patched, side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from operators import attention, gelu, layer_norm
from patch import attention_of, encoders_of, patch
from transformers.activations import GELUActivation
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SEAMS = {layer_norm.name: torch.nn.LayerNorm, gelu.name: GELUActivation}
"""The modules that stand for an operator, whoever answers for them. Attention has no module of its own."""


@dataclass
class Timing:
    """Of one way to run the model, all in seconds."""

    totals_s: list[float] = field(default_factory=list)
    """Of whole rounds."""
    calls_s: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """Of every call, by operator and number of elements."""

    def spent_s(self, operator: str) -> float:
        """In a round. Medians of calls of one size: a neighbour's burst is nobody's cost."""
        calls = self.calls_s[operator].values()
        return sum(statistics.median(seconds) * len(seconds) for seconds in calls) / len(self.totals_s)

    def share(self, operator: str) -> float:
        return self.spent_s(operator) / statistics.median(self.totals_s)

    def add(self, operator: str, elements: int, seconds: float) -> None:
        self.calls_s.setdefault(operator, {}).setdefault(elements, []).append(seconds)


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


def _one_round(model: torch.nn.Module, encode: Callable[[], object], timing: Timing) -> None:
    with ExitStack() as watches:
        for operator, kind in SEAMS.items():
            for module in model.modules():
                if isinstance(module, kind):
                    watches.enter_context(_watched_module(module, operator, timing))
        watches.enter_context(_watched_attention(model, timing))
        start = time.perf_counter()
        encode()
        timing.totals_s.append(time.perf_counter() - start)


@contextmanager
def _watched_module(module: torch.nn.Module, operator: str, timing: Timing) -> Iterator[None]:
    """From outside of its forward: whatever answers, being timed costs the same."""
    started: list[float] = []

    def before(*_: object) -> None:
        started.append(time.perf_counter())

    def after(_module: object, _inputs: object, y: torch.Tensor) -> None:
        timing.add(operator, y.numel(), time.perf_counter() - started.pop())

    hooks = (module.register_forward_pre_hook(before), module.register_forward_hook(after))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _watched_attention(model: torch.nn.Module, timing: Timing) -> Iterator[None]:
    """Around the function that transformers calls by name, be it torch's or ours."""
    (name,) = {attention_of(encoder) for encoder in encoders_of(model)}
    answer = ALL_ATTENTION_FUNCTIONS[name]

    def watched(*arguments: Any, **more: Any) -> Any:
        start = time.perf_counter()
        result = answer(*arguments, **more)
        timing.add(attention.name, result[0].numel(), time.perf_counter() - start)
        return result

    ALL_ATTENTION_FUNCTIONS[name] = watched
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS[name]
