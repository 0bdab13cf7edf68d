"""Kernels of the same files are built together: one sandbox is warmed for all of them, and jobs run side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilegate.build.jobs import Asked, Built, Elaborated
from tilegate.pipeline.opened import Opened
from tilegate.pipeline.tools import Tools
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import digest_of, encode
from tilegate.records.closure import Closure, Specialization
from tilegate.records.contract import Contract
from tilegate.records.declaration import Declaration
from tilegate.records.isolation import Isolation, Level
from tilegate.records.report import BuildLine
from tilegate.records.target import Target
from tilegate.records.toolchain import Toolchain
from tilegate.records.trace import CompilerTrace
from tilegate.sandbox import COMPILE, ELABORATE

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One binding, ready to be built."""

    closure: Closure
    sources: dict[str, bytes]
    declared: Declaration
    specializations: tuple[Specialization, ...]

    @property
    def contract(self) -> Contract:
        return self.declared.contract


@dataclass(frozen=True, slots=True)
class Bench:
    """What every family of one build is built with."""

    opened: Opened
    targets: tuple[Target, ...]
    toolchain: Toolchain
    level: Level
    parallel: int
    """Jobs of one family at once."""
    progress: Progress
    tools: Tools

    def build(self, family: Sequence[Kernel]) -> tuple[list[BuildLine], list[Isolation]]:
        """Lines of each kernel, and the isolation of what was built now. What was built before is not built again."""
        lines: list[BuildLine] = []
        missing: list[tuple[Kernel, Specialization]] = []
        for kernel in family:
            ready = _ready(self.opened, kernel, self.toolchain)
            for s in kernel.specializations:
                found = [ready.get((str(s), str(t))) for t in self.targets]
                if all(found):
                    lines += [
                        _line(kernel, s, t, f, cached=True)
                        for t, f in zip(self.targets, found, strict=True)
                        if f
                    ]
                else:
                    missing.append((kernel, s))
        if not missing:
            return lines, []
        made = self._make(missing)
        with self.opened.workspace.writing():
            for kernel, elaborated, _ in made:
                _store_inputs(self.opened, kernel, [elaborated] if isinstance(elaborated, Elaborated) else [])
            for (kernel, specialization), (_, _, outcomes) in zip(missing, made, strict=True):
                for target, outcome in zip(self.targets, outcomes, strict=True):
                    lines.append(_record(self.opened, kernel, specialization, target, outcome))
        built = [one for _, _, outcomes in made for one in outcomes if isinstance(one, Built)]
        return lines, [isolation for one in built for isolation in one.manifest.isolation]

    def _make(
        self, missing: Sequence[tuple[Kernel, Specialization]]
    ) -> list[tuple[Kernel, Elaborated | CompilerTrace, list[Built | CompilerTrace]]]:
        """Of each kernel and specialization: its IR, and what became of it for each target."""
        names = ", ".join(dict.fromkeys(kernel.closure.binding.kernel for kernel, _ in missing))
        self.progress(f"{names}: running factories")
        elaborated = self.tools.elaborate(
            [Asked(kernel.closure, kernel.contract, specialization) for kernel, specialization in missing],
            {digest: data for kernel, _ in missing for digest, data in kernel.sources.items()},
            policy=ELABORATE.at(self.level),
            parallel=self.parallel,
        )
        good = [(one, target) for one in elaborated if isinstance(one, Elaborated) for target in self.targets]
        self.progress(f"{names}: compiling {len(good)}")
        compiled = iter(
            self.tools.compile(good, self.toolchain, policy=COMPILE.at(self.level), parallel=self.parallel)
            if good
            else []
        )
        return [
            (kernel, one, [next(compiled) if isinstance(one, Elaborated) else one for _ in self.targets])
            for (kernel, _), one in zip(missing, elaborated, strict=True)
        ]


def families(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Kernels by the files they are made from, in the order in which each first comes."""
    found: dict[object, list[Kernel]] = {}
    for kernel in kernels:
        found.setdefault(kernel.closure.files, []).append(kernel)
    return list(found.values())


def _store_inputs(opened: Opened, kernel: Kernel, elaborated: Sequence[Elaborated]) -> None:
    """What manifests name, before any manifest, and also where it is there already: gc may have seen it so."""
    for data in (*kernel.sources.values(), *(one.ir for one in elaborated)):
        opened.workspace.blobs.put(data)
    opened.workspace.record(kernel.closure)
    opened.workspace.record(kernel.declared)


def _ready(
    opened: Opened, kernel: Kernel, toolchain: Toolchain
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
    kernel: Kernel,
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
    kernel: Kernel,
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
