"""What importing an operator's module gives: its contract, and the workloads its author serves."""

from __future__ import annotations

from tilegate.records.canonical import Document
from tilegate.records.contract import Contract
from tilegate.records.plan import Workload


class Declaration(Document, frozen=True, tag="tilegate.declaration/1"):
    """Made in a sandboxed job (`describe`), so that the commands never import a user's module."""

    operator: str
    """`package.module:function`."""
    contract: Contract
    served: tuple[Workload, ...]
