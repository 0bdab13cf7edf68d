"""Build: source closure -> IR -> artifact, each step in a job of its own. What was built is not built again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from tilegate.build.bindings import expand
from tilegate.build.toolchain import read_toolchain
from tilegate.errors import BindingError
from tilegate.pipeline.family import Bench, Kernel, Progress, families
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.tools import TOOLS, Tools
from tilegate.records.closure import Binding
from tilegate.records.declaration import Declaration
from tilegate.records.isolation import Isolation, Level
from tilegate.records.report import BuildLine, BuildReport
from tilegate.records.target import Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace
from tilegate.rules.sanitize import tell
from tilegate.rules.spelling import did_you_mean
from tilegate.sandbox import DESCRIBE, stop_jobs
from tilegate.store.files import store_error

Done = tuple[list[BuildLine], list[Isolation]]
"""Of some kernels."""

PROBE_BYTES = 1 << 16
"""Less room than this is too little for any artifact."""

STOPPING_S = 0.05
"""Between two looks at what still runs after Ctrl-C."""


def build(
    folder: Path,
    *,
    targets: Sequence[str] = (),
    only: Sequence[str] = (),
    level: Level = Level.FULL,
    progress: Progress = lambda _: None,
    tools: Tools = TOOLS,
) -> BuildReport:
    """Build every kernel of a project for its targets, and record artifacts and failures in the workspace.

    Raises:
        UsageError: project, binding or target; before any job is started.
        ToolError: the workspace cannot be written, or jobs cannot be isolated as `level` asks.
    """
    opened = open_project(folder, only=only)
    wanted = tuple(Target.parse(t) for t in targets) or opened.targets
    toolchain = read_toolchain()
    _writable(opened)
    kernels = _prepare(opened, toolchain, level, progress, tools)
    groups = families(kernels)
    cores = len(os.sched_getaffinity(0))
    bench = Bench(
        opened=opened, targets=wanted, toolchain=toolchain, level=level,
        parallel=max(1, cores // max(1, len(groups))), progress=progress, tools=tools,
    )  # fmt: skip
    done = _each(groups, bench.build, cores)
    order = {(k.contract.name, k.closure.binding.kernel): place for place, k in enumerate(kernels)}
    lines = sorted(
        (line for lines, _ in done for line in lines), key=lambda one: order[one.operator, one.kernel]
    )
    isolation = dict.fromkeys(one for _, used in done for one in used)
    return BuildReport(lines=tuple(lines), isolation=tuple(isolation))


def _writable(opened: Opened) -> None:
    """Fail before minutes of work, not behind them."""
    root = opened.workspace.root
    probe = root / f"tmp-probe-{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise store_error(
            error,
            what="the workspace cannot be written",
            where=root,
            next_step="make room there, or let it be a folder that can be written",
        ) from None


def _each(groups: Sequence[list[Kernel]], work: Callable[[list[Kernel]], Done], at_once: int) -> list[Done]:
    """Work on families side by side. Ctrl-C ends the jobs that run, and nothing else is begun."""
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        going = [pool.submit(work, group) for group in groups]
        try:
            return [one.result() for one in going]
        except KeyboardInterrupt:
            for one in going:
                one.cancel()
            while wait(going, timeout=STOPPING_S).not_done:  # one may have begun its next job meanwhile
                stop_jobs()
            raise
        finally:
            for one in going:
                one.cancel()


def _prepare(
    opened: Opened, toolchain: Toolchain, level: Level, progress: Progress, tools: Tools
) -> list[Kernel]:
    """Closures and contracts. Operators are described in a job only where the workspace lacks them."""
    closures = [(binding, *opened.closure(binding)) for binding in opened.bindings]
    there = {d.contract.digest: d for _, d in opened.workspace.declarations()}
    known: dict[str, Declaration] = {}
    for _, manifest in opened.workspace.manifests():
        if manifest.toolchain == toolchain and manifest.elaboration.contract in there:
            known[manifest.elaboration.closure] = there[manifest.elaboration.contract]
    declared: dict[str, Declaration] | None = None
    if any(closure.digest not in known for _, closure, _ in closures):
        progress("reading contracts")
        declared = _describe(opened, level, tools)
    kernels: list[Kernel] = []
    for binding, closure, sources in closures:
        declaration = known[closure.digest] if declared is None else _declaration(opened, binding, declared)
        kernels.append(Kernel(closure, sources, declaration, expand(binding, declaration.contract)))
    return kernels


def _describe(opened: Opened, level: Level, tools: Tools) -> dict[str, Declaration]:
    files, sources = opened.operator_files()
    found = tools.describe(opened.project.operators, files, sources, policy=DESCRIBE.at(level))
    if isinstance(found, CompilerTrace):
        sentence, hint = tell(found)
        by_hand = f": python -c 'import {', '.join(opened.project.operators)}'" if "by hand" in hint else ""
        raise BindingError(
            "the operators cannot be read",
            where=", ".join(opened.project.operators),
            why=sentence,
            next_step=hint + by_hand,
        )
    return {declared.operator: declared for declared in found}


def _declaration(opened: Opened, binding: Binding, declared: dict[str, Declaration]) -> Declaration:
    module, _, function = binding.operator.partition(":")
    found = [
        d
        for name, d in declared.items()
        if name == binding.operator
        or (name.endswith(f":{function}") and name.partition(".")[0] == module.partition(".")[0])
    ]
    if len(found) == 1:  # a name that a package re-exports is declared in one of its modules
        return found[0]
    known = sorted([d.operator for d in found] or declared)
    if module.partition(".")[0] not in {listed.partition(".")[0] for listed in opened.project.operators}:
        mend = f'add "{module}" to `operators` in tilegate.toml, if it declares the operator'
    elif not known:
        mend = f"put @tilegate.operator(...) on top of {function}"
    else:
        mend = did_you_mean(binding.operator, known)
    raise BindingError(
        f"kernel {binding.kernel} is bound to {binding.operator}, which is declared "
        + ("in several modules" if found else "nowhere"),
        where=binding.factory,
        why=f"the modules under `operators` declare: {', '.join(known) or 'nothing'}",
        next_step=mend,
    )
