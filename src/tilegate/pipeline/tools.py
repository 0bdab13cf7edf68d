"""The steps that leave this process, as one value: tests put others in their place, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tilegate.build.jobs import Asked, Compile, Elaborated, compiler, describe, elaborate
from tilegate.evaluate.run import Subject
from tilegate.evaluate.run import evaluate as run_plan
from tilegate.records.closure import SourceFile
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import Evaluation
from tilegate.records.isolation import JobPolicy
from tilegate.records.plan import Plan
from tilegate.records.target import DeviceClass, Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace


class Describe(Protocol):
    def __call__(
        self,
        modules: Sequence[str],
        files: Sequence[SourceFile],
        sources: Mapping[str, bytes],
        *,
        policy: JobPolicy,
    ) -> list[Declaration] | CompilerTrace: ...


class Elaborate(Protocol):
    def __call__(
        self, asked: Sequence[Asked], sources: Mapping[str, bytes], *, policy: JobPolicy, parallel: int
    ) -> list[Elaborated | CompilerTrace]: ...


class Compiler(Protocol):
    def __call__(
        self, targets: Sequence[Target], toolchain: Toolchain, *, policy: JobPolicy, parallel: int
    ) -> AbstractContextManager[Compile]: ...


class RunPlan(Protocol):
    def __call__(
        self,
        subject: Subject,
        plan: Plan,
        device: DeviceClass,
        versions: dict[str, str],
        *,
        policy: JobPolicy,
        progress: Callable[[int], None],
    ) -> Evaluation: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What `pipeline.build` and `pipeline.evaluate` ask to be done in jobs."""

    describe: Describe = describe
    elaborate: Elaborate = elaborate
    compiler: Compiler = compiler
    run_plan: RunPlan = run_plan


TOOLS = Tools()
"""The real ones."""
