"""Build: source closure -> IR -> artifact, each step in a job of its own. What was built is not built again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tilegate.build.bindings import expand
from tilegate.build.jobs import Built, Elaborated
from tilegate.build.toolchain import read_toolchain
from tilegate.errors import BindingError
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.tools import TOOLS, Tools
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import digest_of, encode
from tilegate.records.closure import Binding, Closure, Specialization
from tilegate.records.contract import Contract
from tilegate.records.declaration import Declaration
from tilegate.records.isolation import Isolation
from tilegate.records.report import BuildLine, BuildReport
from tilegate.records.target import Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace
from tilegate.rules.sanitize import tell
from tilegate.rules.spelling import did_you_mean
from tilegate.sandbox import stop_jobs
from tilegate.store.files import store_error

Progress = Callable[[str], None]

Done = tuple[list[BuildLine], list[Isolation]]
"""Of one kernel."""

PROBE_BYTES = 1 << 16
"""Less room than this is too little for any artifact."""

STOPPING_S = 0.05
"""Between two looks at what still runs after Ctrl-C."""


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One binding, ready to be built."""

    closure: Closure
    sources: dict[str, bytes]
    declared: Declaration
    specializations: tuple[Specialization, ...]

    @property
    def contract(self) -> Contract:
        return self.declared.contract


def build(
    folder: Path,
    *,
    targets: Sequence[str] = (),
    only: Sequence[str] = (),
    progress: Progress = lambda _: None,
    tools: Tools = TOOLS,
) -> BuildReport:
    """Build every kernel of a project for its targets, and record artifacts and failures in the workspace.

    Raises:
        UsageError: project, binding or target; before any job is started.
        ToolError: the workspace cannot be written.
    """
    opened = open_project(folder, only=only)
    wanted = tuple(Target.parse(t) for t in targets) or opened.targets
    toolchain = read_toolchain()
    _writable(opened)
    kernels = _prepare(opened, toolchain, progress, tools)
    done = _each(kernels, lambda k: _build_kernel(opened, k, wanted, toolchain, progress, tools))
    isolation = dict.fromkeys(i for _, used in done for i in used)
    return BuildReport(lines=tuple(line for lines, _ in done for line in lines), isolation=tuple(isolation))


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


def _each(kernels: Sequence[_Kernel], work: Callable[[_Kernel], Done]) -> list[Done]:
    """Work on kernels side by side. Ctrl-C ends the jobs that run, and nothing else is begun."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        going = [pool.submit(work, kernel) for kernel in kernels]
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


def _prepare(opened: Opened, toolchain: Toolchain, progress: Progress, tools: Tools) -> list[_Kernel]:
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
        declared = _describe(opened, tools)
    kernels: list[_Kernel] = []
    for binding, closure, sources in closures:
        declaration = known[closure.digest] if declared is None else _declaration(opened, binding, declared)
        kernels.append(_Kernel(closure, sources, declaration, expand(binding, declaration.contract)))
    return kernels


def _describe(opened: Opened, tools: Tools) -> dict[str, Declaration]:
    files, sources = opened.operator_files()
    found = tools.describe(opened.project.operators, files, sources)
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


def _build_kernel(
    opened: Opened,
    kernel: _Kernel,
    targets: Sequence[Target],
    toolchain: Toolchain,
    progress: Progress,
    tools: Tools,
) -> Done:
    ready = _ready(opened, kernel, toolchain)
    missing = [s for s in kernel.specializations if any((str(s), str(t)) not in ready for t in targets)]
    lines = [
        _line(kernel, s, t, ready[str(s), str(t)], cached=True)
        for s in kernel.specializations
        for t in targets
        if s not in missing
    ]
    if not missing:
        return lines, []
    name = kernel.closure.binding.kernel
    progress(f"{name}: running its factory")
    elaborated = tools.elaborate(kernel.closure, kernel.contract, missing, kernel.sources)
    good = [one for one in elaborated if isinstance(one, Elaborated)]
    progress(f"{name}: compiling {len(good)} x {len(targets)}")
    built = iter(tools.compile(good, targets, toolchain) if good else [])
    isolation: list[Isolation] = []
    with opened.workspace.writing():
        _store_inputs(opened, kernel, good)
        for specialization, one in zip(missing, elaborated, strict=True):
            for target in targets:
                outcome = next(built) if isinstance(one, Elaborated) else one
                lines.append(_record(opened, kernel, specialization, target, outcome))
                if isinstance(outcome, Built):
                    isolation += outcome.manifest.isolation
    return lines, isolation


def _store_inputs(opened: Opened, kernel: _Kernel, elaborated: Sequence[Elaborated]) -> None:
    """What manifests name, before any manifest, and also where it is there already: gc may have seen it so."""
    for data in (*kernel.sources.values(), *(one.ir for one in elaborated)):
        opened.workspace.blobs.put(data)
    opened.workspace.record(kernel.closure)
    opened.workspace.record(kernel.declared)


def _ready(
    opened: Opened, kernel: _Kernel, toolchain: Toolchain
) -> dict[tuple[str, str], tuple[str, Manifest]]:
    """Artifacts of this very closure and toolchain that are already there, by specialization and target.

    With all that they name: what is missing is made again.
    """
    has = opened.workspace.blobs.has
    if not all(map(has, (kernel.closure.digest, digest_of(encode(kernel.declared)), *kernel.sources))):
        return {}
    return {
        (str(m.elaboration.specialization), str(m.target)): (digest, m)
        for digest, m in opened.workspace.manifests(kernel.contract.name)
        if m.elaboration.closure == kernel.closure.digest
        and m.elaboration.contract == kernel.contract.digest
        and m.toolchain == toolchain
        and has(m.library.digest)
        and has(m.elaboration.ir)
    }


def _record(
    opened: Opened,
    kernel: _Kernel,
    specialization: Specialization,
    target: Target,
    outcome: Built | CompilerTrace,
) -> BuildLine:
    if isinstance(outcome, CompilerTrace):
        opened.workspace.record(outcome)
        return BuildLine(
            operator=kernel.contract.name,
            kernel=kernel.closure.binding.kernel,
            specialization=specialization,
            target=str(target),
            trace=outcome,
        )
    opened.workspace.blobs.put(outcome.library)
    blob = opened.workspace.record(outcome.manifest)
    return _line(kernel, specialization, target, (blob.digest, outcome.manifest), cached=False)


def _line(
    kernel: _Kernel,
    specialization: Specialization,
    target: Target,
    found: tuple[str, Manifest],
    *,
    cached: bool,
) -> BuildLine:
    digest, manifest = found
    return BuildLine(
        operator=kernel.contract.name,
        kernel=kernel.closure.binding.kernel,
        specialization=specialization,
        target=str(target),
        manifest=digest,
        size=manifest.library.size,
        cached=cached,
    )
