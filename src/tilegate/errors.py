"""The errors of tilegate, by whose side failed.

    TilegateError
    ├── UsageError            exit 2   the caller's words are off
    │   ├── ContractError              an operator's declaration
    │   ├── BindingError               a kernel's binding, or what its factory returned
    │   └── ProjectError               tilegate.toml
    ├── ToolError             exit 3   a tool, the machine or the disk failed
    │   ├── RecordError                bytes that are not the record they should be
    │   │   └── SchemaError            a record of another schema version
    │   ├── StoreError                 the workspace cannot be read or written
    │   └── SandboxError               a job could not be started in the isolation asked for
    ├── TrustError            exit 4   bytes, digests or signatures do not agree
    ├── DeviceError           -        a device is lost, or a call stopped half way: no reference may answer
    └── GuardMiss             -        an operator with `strict=True` met a call that no evidence covers

A negative *decision* (not admitted, not promoted) is no error but a value: `records.verdict.Rejected`.
"""

from __future__ import annotations


class TilegateError(Exception):
    """What went wrong, where, why, and what to do next, in that order and each in words of its own."""

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", why: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append(f"  why:   {self.why}")
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)


class UsageError(TilegateError):
    """The caller's words are off: an option, a name, a declaration."""

    exit_code = 2


class ContractError(UsageError):
    """An operator is declared wrongly; raised when its module is imported."""


class BindingError(UsageError):
    """A kernel's binding contradicts its operator, or its factory returned something else."""


class ProjectError(UsageError):
    """tilegate.toml is missing, or says something that cannot be meant."""


class ToolError(TilegateError):
    """A tool, the machine or the disk failed; the input may be fine."""


class RecordError(ToolError):
    """Bytes that do not decode to the record they are said to be."""


class SchemaError(RecordError):
    """A record of another schema version than this tilegate reads."""


class StoreError(ToolError):
    """The workspace cannot be read or written."""


class SandboxError(ToolError):
    """A job could not be started in the isolation asked for."""


class TrustError(TilegateError):
    """Bytes, digests or signatures do not agree. Nothing of it is opened."""

    exit_code = 4


class DeviceError(TilegateError):
    """A device's context is dead, or an in-place call stopped half way: no reference can answer the call.

    Beside `GuardMiss` the only error that a call raises of its own.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        why: str = "",
        next_step: str = "",
        device: str = "",
        suspects: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, where=where, why=why, next_step=next_step)
        self.device = device
        """As torch spells it: `cuda:0`."""
        self.suspects = suspects
        """Artifacts that were launched since the device was last known to be good, as `stats` names them."""


class GuardMiss(TilegateError):  # noqa: N818 - a miss is no error unless one asks for it to be
    """A strict operator met a call that no evidence covers."""
