"""Reviewed files are imported from memory: what a job runs is what was hashed, under one fixed path.

Nothing of a closure touches the job's disk, so there is no bytecode that could stand in for the source, and
spans in the IR carry `/closure/...` on every machine: the IR's digest does not depend on a folder.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, ModuleType

from tilegate.records.closure import SourceFile

ROOT = "/closure/"


class ClosureImporter(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds the modules of one closure before any that are installed.

    A package in the closure is complete: a submodule that was not reviewed is not found, even where an
    installed copy has it.
    """

    def __init__(self, files: Sequence[SourceFile], sources: Mapping[str, bytes]) -> None:
        self._files = {file.module: file for file in files}
        self._text = {file.module: importlib.util.decode_source(sources[file.digest]) for file in files}
        modules = [module.split(".") for module in self._files]
        above = {".".join(parts[:n]) for parts in modules for n in range(1, len(parts))}
        self._namespaces = above - set(self._files)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target  # names alone decide
        file = self._files.get(fullname)
        if file is not None:
            return importlib.util.spec_from_loader(
                fullname, self, origin=ROOT + file.path, is_package=file.is_package
            )
        if fullname in self._namespaces:  # a folder without __init__.py
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [ROOT + fullname.replace(".", "/")]
            return spec
        package = fullname.partition(".")[0]
        if package != fullname and (package in self._files or package in self._namespaces):
            raise ModuleNotFoundError(f"{fullname} is not in the reviewed closure", name=fullname)
        return None

    def get_source(self, fullname: str) -> str:
        return self._text[fullname]

    def is_package(self, fullname: str) -> bool:
        return self._files[fullname].is_package

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text[fullname], ROOT + self._files[fullname].path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = ROOT + self._files[module.__name__].path
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - this is what a loader does


def install(files: Sequence[SourceFile], sources: Mapping[str, bytes]) -> None:
    sys.meta_path.insert(0, ClosureImporter(files, sources))
