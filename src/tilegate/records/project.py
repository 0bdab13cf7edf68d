"""tilegate.toml: which modules declare operators, which hold kernels, for which targets."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from tilegate.records.closure import Binding
from tilegate.records.contract import AttributeValue
from tilegate.records.policy import Policy


class KernelTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[[kernel]]` table: binds a kernel that lives in a package which must not be edited."""

    operator: str
    factory: str
    kernel: str = ""
    dynamic: tuple[str, ...] = ()
    specialize: dict[str, tuple[AttributeValue, ...]] = {}
    parameters: dict[str, str] = {}
    constants: dict[str, AttributeValue] = {}
    backends: tuple[str, ...] = ()

    def binding(self) -> Binding:
        return Binding(
            operator=self.operator,
            factory=self.factory,
            kernel=self.kernel or self.factory.rpartition(":")[2],
            dynamic=self.dynamic,
            specialize=self.specialize,
            parameters=self.parameters,
            constants=self.constants,
            backends=self.backends,
        )


class Project(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operators: tuple[str, ...]
    """Modules that declare operators."""
    kernels: tuple[str, ...] = ()
    """Modules with `@tilegate.kernel`, read as text: they are imported only inside a job."""
    kernel: tuple[KernelTable, ...] = ()
    targets: tuple[str, ...] = ("cpu:x86-64-v3",)
    policy: Policy | UnsetType = UNSET
