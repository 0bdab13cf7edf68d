"""A project folder, opened: its words, its bindings, its workspace, and the source as it stands now."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from tilegate.build.bindings import bindings_in
from tilegate.build.closure import collect, reach, read_source
from tilegate.build.project import load_project
from tilegate.build.toolchain import read_toolchain
from tilegate.errors import BindingError, ProjectError
from tilegate.records.artifact import Manifest
from tilegate.records.closure import Binding, Closure, SourceFile
from tilegate.records.declaration import Declaration
from tilegate.records.policy import Policy
from tilegate.records.project import Project
from tilegate.records.target import Target
from tilegate.rules.spelling import did_you_mean
from tilegate.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Opened:
    folder: Path
    project: Project
    workspace: Workspace
    policy: Policy
    bindings: tuple[Binding, ...]

    @property
    def roots(self) -> tuple[Path, ...]:
        """Where modules are looked for: the project, then installed packages."""
        installed = dict.fromkeys(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))
        return (self.folder, *installed)

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(Target.parse(text) for text in self.project.targets)

    def closure(self, binding: Binding) -> tuple[Closure, dict[str, bytes]]:
        return collect(binding, self.roots)

    def operator_files(self) -> tuple[tuple[SourceFile, ...], dict[str, bytes]]:
        return reach(self.project.operators, self.roots, where="operators of tilegate.toml")

    def current(self) -> list[tuple[str, Manifest]]:
        """Artifacts of the source as it stands now, one for each specialization and target: of the toolchain
        that is installed where there is one, else the last that was built.
        """
        toolchain = read_toolchain()
        closures = {self.closure(binding)[0].digest for binding in self.bindings}
        found: dict[tuple[object, ...], tuple[str, Manifest]] = {}
        for digest, manifest in self.workspace.manifests():
            built = manifest.elaboration
            if built.closure in closures:
                key = (built.operator, built.kernel, str(built.specialization), str(manifest.target))
                if key not in found or found[key][1].toolchain != toolchain:
                    found[key] = (digest, manifest)
        return list(found.values())

    def declaration(self, contract: str) -> Declaration:
        """The declaration that a contract's digest belongs to."""
        for _, declared in reversed(self.workspace.declarations()):
            if declared.contract.digest == contract:
                return declared
        raise ProjectError(
            "an artifact's contract is not in the workspace",
            where=contract,
            next_step="tilegate build",
        )


def _names(binding: Binding) -> set[str]:
    return {binding.operator.partition(":")[2], binding.kernel}


def _named(folder: Path, bindings: Sequence[Binding], only: Sequence[str]) -> None:
    """Every name that was asked for is one of an operator or a kernel."""
    known = sorted({name for binding in bindings for name in _names(binding)})
    for name in only:
        if name not in known:
            bind = "bind a kernel first: list its module under `kernels` in tilegate.toml"
            raise BindingError(
                f"no operator or kernel is named {name}",
                where=str(folder),
                next_step=did_you_mean(name, known) if known else bind,
            )


def open_project(folder: Path, *, only: Sequence[str] = ()) -> Opened:
    """Read tilegate.toml and the bindings that its modules hold. Nothing is imported.

    Args:
        folder: holds tilegate.toml.
        only: names of operators or kernels to keep; none keeps all.

    Raises:
        ProjectError, BindingError: with the file and the mend.
    """
    try:
        folder = folder.resolve()
    except OSError as error:
        raise ProjectError(
            "the project's folder is not there any more",
            where=str(folder),
            why=error.strerror or type(error).__name__,
            next_step="go to the project, or name its folder with -C",
        ) from None
    project = load_project(folder)
    bindings: list[Binding] = [table.binding() for table in project.kernel]
    roots = (folder, Path(sysconfig.get_path("purelib")))
    for module in project.kernels:
        data, is_package = read_source(module, roots, where="kernels of tilegate.toml")
        bindings += bindings_in(module, data, is_package=is_package)
    _named(folder, bindings, only)
    kept = tuple(b for b in bindings if not only or _names(b) & set(only))
    return Opened(
        folder=folder,
        project=project,
        workspace=Workspace(folder / ".tilegate"),
        policy=Policy() if project.policy is UNSET else project.policy,
        bindings=kept,
    )
