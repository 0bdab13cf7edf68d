"""An operator declared while a release is in use: what answers for it is decided at its first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegate.records.miss import Miss
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.operator import Operator


class Pending:
    """Same face as `dispatch.Site`. `settle` attaches something else to the operator.

    Its module is still being imported, and the reference may reach functions that stand further down: a
    digest taken now would be another one than evaluation saw.
    """

    def __init__(self, declared: Operator, settle: Callable[[Operator], None]) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            import torch  # noqa: PLC0415 - `import tilegate` must stay cheap

            if torch.compiler.is_compiling():  # what settling does cannot be traced
                return declared.reference(*args, **kwargs)
            settle(declared)
            return declared(*args, **kwargs)

        def explain(*args: Any, **kwargs: Any) -> Explanation:
            settle(declared)
            return declared.explain(*args, **kwargs)

        self.call, self.explain = call, explain

    def hits(self) -> dict[str, int]:
        return {}

    def misses(self) -> dict[Miss, int]:
        return {}
