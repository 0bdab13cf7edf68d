"""An operator for which the table has nothing: the reference answers, and the reason is counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tilegate.records.miss import Miss, MissReason
from tilegate.runtime.counting import reading
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.strict import guard_miss


class Unserved:
    """Same face as `dispatch.Site`, with one answer."""

    def __init__(
        self,
        name: str,
        reference: Callable[..., Any],
        reason: MissReason,
        *,
        strict: bool,
        skipped: tuple[str, ...] = (),
    ) -> None:
        self._name = name
        self.reason = reason
        self._skipped = skipped
        self._miss = Miss(reason=reason)
        self._count = count = itertools.count()
        import torch  # noqa: PLC0415 - `import tilegate` must stay cheap

        tracing = torch.compiler.is_dynamo_compiling

        def call(*args: Any, **kwargs: Any) -> Any:
            if not tracing():  # a count is nothing that a graph could hold
                next(count)
            return reference(*args, **kwargs)

        def refuse(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - the signature of any call
            next(count)
            raise guard_miss(name, Miss(reason=reason))

        self.call = refuse if strict and reason is not MissReason.REFERENCE_ONLY else call

    def hits(self) -> dict[str, int]:
        return {}

    def misses(self) -> dict[Miss, int]:
        count = reading(self._count)
        return {self._miss: count} if count else {}

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:  # noqa: ARG002 - the answer is the same
        return Explanation(operator=self._name, kernel=None, misses=(self._miss,), skipped=self._skipped)
