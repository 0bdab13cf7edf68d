"""Kernels of the same files are built together: one sandbox is warmed for all of them, and jobs run side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
class _Piece:
    """One artifact to be made: of a kernel, at a specialization, for a target."""

    kernel: Kernel
    specialization: Specialization
    target: Target

    @property
    def asked(self) -> Asked:
        return Asked(self.kernel.closure, self.kernel.contract, self.specialization, self.target.lowering)

    @property
    def key(self) -> tuple[str, str, str]:
        """Alike for pieces that share their IR."""
        return self.kernel.closure.digest, str(self.specialization), self.target.lowering

    def line(self, **outcome: Any) -> BuildLine:
        return BuildLine(
            operator=self.kernel.contract.name,
            kernel=self.kernel.closure.binding.kernel,
            specialization=self.specialization,
            target=str(self.target),
            **outcome,
        )


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
        """A line for each piece, and the isolation of what was built now. What was built before is not built again."""
        lines: list[BuildLine] = []
        missing: list[_Piece] = []
        for kernel in family:
            ready = _ready(self.opened, kernel, self.toolchain)
            for piece in self._pieces(kernel):
                found = ready.get((str(piece.specialization), str(piece.target)))
                if found is None:
                    missing.append(piece)
                else:
                    lines.append(_made(piece, found, cached=True))
        if not missing:
            return lines, []
        elaborated, outcomes = self._make(missing)
        with self.opened.workspace.writing():
            for kernel in family:
                _store_inputs(self.opened, kernel, [one for one in elaborated if isinstance(one, Elaborated)])
            lines += [
                _record(self.opened, piece, outcome) for piece, outcome in zip(missing, outcomes, strict=True)
            ]
        built = [one for one in outcomes if isinstance(one, Built)]
        return lines, [isolation for one in built for isolation in one.manifest.isolation]

    def _pieces(self, kernel: Kernel) -> list[_Piece]:
        wanted = kernel.closure.binding.backends
        targets = [target for target in self.targets if not wanted or target.backend in wanted]
        return [_Piece(kernel, s, target) for s in kernel.specializations for target in targets]

    def _make(
        self, missing: Sequence[_Piece]
    ) -> tuple[list[Elaborated | CompilerTrace], list[Built | CompilerTrace]]:
        """IR, once for each lowering, and what became of each piece."""
        names = ", ".join(dict.fromkeys(piece.kernel.closure.binding.kernel for piece in missing))
        self.progress(f"{names}: running factories")
        asked = {piece.key: piece.asked for piece in missing}
        targets, policy = [piece.target for piece in missing], COMPILE.at(self.level)
        with self.tools.compiler(
            targets, self.toolchain, policy=policy, parallel=self.parallel
        ) as compiled_of:
            elaborated = self.tools.elaborate(
                list(asked.values()),
                {digest: data for piece in missing for digest, data in piece.kernel.sources.items()},
                policy=ELABORATE.at(self.level),
                parallel=self.parallel,
            )
            ir = dict(zip(asked, elaborated, strict=True))
            pairs = [(ir[piece.key], piece.target) for piece in missing]
            good = [(one, target) for one, target in pairs if isinstance(one, Elaborated)]
            self.progress(f"{names}: compiling {len(good)}")
            compiled = iter(compiled_of(good))
        return elaborated, [next(compiled) if isinstance(one, Elaborated) else one for one, _ in pairs]


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


def _record(opened: Opened, piece: _Piece, outcome: Built | CompilerTrace) -> BuildLine:
    if isinstance(outcome, CompilerTrace):
        opened.workspace.record(outcome)
        return piece.line(trace=outcome)
    opened.workspace.blobs.put(outcome.library)
    blob = opened.workspace.record(outcome.manifest)
    return _made(piece, (blob.digest, outcome.manifest), cached=False)


def _made(piece: _Piece, found: tuple[str, Manifest], *, cached: bool) -> BuildLine:
    digest, manifest = found
    return piece.line(manifest=digest, size=manifest.library.size, cached=cached)
