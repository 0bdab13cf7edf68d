"""Build: source closure -> IR -> artifact, each step in a job of its own. What was built is not built again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tilegate.build.bindings import expand
from tilegate.build.jobs import Built, Elaborated, compile_artifacts, describe, elaborate, read_toolchain
from tilegate.errors import BindingError, StoreError
from tilegate.pipeline.opened import Opened, open_project
from tilegate.records.artifact import Manifest
from tilegate.records.closure import Binding, Closure, Specialization
from tilegate.records.contract import Contract
from tilegate.records.declaration import Declaration
from tilegate.records.isolation import Isolation
from tilegate.records.report import BuildLine, BuildReport
from tilegate.records.target import Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace
from tilegate.rules.sanitize import tell

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One binding, ready to be built."""

    closure: Closure
    sources: dict[str, bytes]
    contract: Contract
    specializations: tuple[Specialization, ...]


def build(
    folder: Path,
    *,
    targets: Sequence[str] = (),
    only: Sequence[str] = (),
    progress: Progress = lambda _: None,
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
    kernels = _prepare(opened, toolchain, progress)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        done = list(pool.map(lambda k: _build_kernel(opened, k, wanted, toolchain, progress), kernels))
    isolation = dict.fromkeys(i for _, used in done for i in used)
    return BuildReport(lines=tuple(line for lines, _ in done for line in lines), isolation=tuple(isolation))


def _writable(opened: Opened) -> None:
    """Fail before minutes of work, not behind them."""
    try:
        (opened.workspace.root).mkdir(parents=True, exist_ok=True)
        probe = opened.workspace.root / f"tmp-probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StoreError(
            "the workspace cannot be written",
            where=str(opened.workspace.root),
            why=error.strerror or type(error).__name__,
            next_step="give it a writable folder: mount it read-write, or copy the project",
        ) from None


def _prepare(opened: Opened, toolchain: Toolchain, progress: Progress) -> list[_Kernel]:
    """Closures and contracts. Operators are described in a job only where the workspace lacks them."""
    closures = [(binding, *opened.closure(binding)) for binding in opened.bindings]
    known: dict[str, str] = {}
    for _, manifest in opened.workspace.manifests():
        if manifest.toolchain == toolchain:
            known[manifest.elaboration.closure] = manifest.elaboration.contract
    if any(closure.digest not in known for _, closure, _ in closures):
        progress("reading contracts")
        declared = _describe(opened)
    else:
        declared = {}
    kernels: list[_Kernel] = []
    for binding, closure, sources in closures:
        if declared:
            contract = _contract(binding, declared)
        else:
            contract = opened.declaration(known[closure.digest]).contract
        kernels.append(_Kernel(closure, sources, contract, expand(binding, contract)))
    return kernels


def _describe(opened: Opened) -> dict[str, Declaration]:
    files, sources = opened.operator_files()
    found = describe(opened.project.operators, files, sources)
    if isinstance(found, CompilerTrace):
        sentence, hint = tell(found)
        raise BindingError(
            "the operators cannot be read",
            where=", ".join(opened.project.operators),
            why=sentence,
            next_step=hint,
        )
    for declared in found:
        opened.workspace.record(declared)
    return {declared.operator: declared for declared in found}


def _contract(binding: Binding, declared: dict[str, Declaration]) -> Contract:
    module, _, function = binding.operator.partition(":")
    found = [
        d
        for name, d in declared.items()
        if name == binding.operator
        or (name.endswith(f":{function}") and name.partition(".")[0] == module.partition(".")[0])
    ]
    if len(found) != 1:  # a name that a package re-exports is declared in one of its modules
        known = ", ".join(sorted(declared)) or "none"
        raise BindingError(
            f"kernel {binding.kernel} is bound to {binding.operator}, which is not declared",
            where=binding.factory,
            why=f"the modules under `operators` declare: {known}",
            next_step="mend the binding, or list the operator's module under `operators` in tilegate.toml",
        )
    return found[0].contract


def _build_kernel(
    opened: Opened, kernel: _Kernel, targets: Sequence[Target], toolchain: Toolchain, progress: Progress
) -> tuple[list[BuildLine], list[Isolation]]:
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
    opened.workspace.record(kernel.closure)
    for digest, data in kernel.sources.items():
        if not opened.workspace.blobs.has(digest):
            opened.workspace.blobs.put(data)
    progress(f"{name}: running its factory")
    elaborated = elaborate(kernel.closure, kernel.contract, missing, kernel.sources)
    good = [one for one in elaborated if isinstance(one, Elaborated)]
    for ready_ir in good:
        opened.workspace.blobs.put(ready_ir.ir)
    progress(f"{name}: compiling {len(good)} x {len(targets)}")
    built = iter(compile_artifacts(good, targets, toolchain) if good else [])
    isolation: list[Isolation] = []
    for specialization, one in zip(missing, elaborated, strict=True):
        for target in targets:
            outcome = next(built) if isinstance(one, Elaborated) else one
            lines.append(_record(opened, kernel, specialization, target, outcome))
            if isinstance(outcome, Built):
                isolation += outcome.manifest.isolation
    return lines, isolation


def _ready(
    opened: Opened, kernel: _Kernel, toolchain: Toolchain
) -> dict[tuple[str, str], tuple[str, Manifest]]:
    """Artifacts of this very closure and toolchain that are already there, by specialization and target."""
    return {
        (str(m.elaboration.specialization), str(m.target)): (digest, m)
        for digest, m in opened.workspace.manifests(kernel.contract.name)
        if m.elaboration.closure == kernel.closure.digest
        and m.elaboration.contract == kernel.contract.digest
        and m.toolchain == toolchain
        and opened.workspace.blobs.has(m.library.digest)
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
