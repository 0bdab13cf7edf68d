"""Attacks, run inside a job. Each aims at a canary that the host has planted, at its own job, or asks the kernel
for something that does no harm where it is granted. Every bomb has a bound.

An attack returns what it saw (`attempt.Claim`). Which attacks there are and what is expected of them stands in
`tilegate.drill.expected`; a probe `read-it` is the function `read_it` of its theme's module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from tilegate.drill.probes.attempt import made
from tilegate.drill.props import Props
from tilegate.records.canonical import decode, encode
from tilegate.records.drill import Claim

TASK = "tilegate.drill.probes:work"
QUIET = "tilegate.drill.probes:quiet"
CLAIM = "claim"
Emit = Callable[[str, bytes], None]


def work(inputs: Mapping[str, bytes], emit: Emit) -> None:
    """Make one attack: `theme`, `probe` and `props` are its inputs."""
    theme, probe = inputs["theme"].decode(), inputs["probe"].decode()
    props = decode(Props, inputs["props"], where="the props of a drill")
    arguments = (props, emit) if theme == "results" else (props,)
    emit(CLAIM, encode(made(partial(attack_of(theme, probe), *arguments))))


def quiet(inputs: Mapping[str, bytes], emit: Emit) -> None:
    """No attack: sends its input back."""
    emit("quiet", inputs["quiet"])


def attack_of(theme: str, probe: str) -> Callable[..., Claim]:
    module = importlib.import_module(module_of(theme))
    return cast("Callable[..., Claim]", getattr(module, probe.replace("-", "_")))


def module_of(theme: str) -> str:
    return f"tilegate.drill.probes.{theme}"
