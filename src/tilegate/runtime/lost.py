"""In front of every operator once a device is lost: its calls raise there, and others go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilegate.records.miss import Miss, MissReason
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.faults import device_lost


class Lost:
    """Same face as the call that it stands in front of. Swapped in, so that no call asks while all is well."""

    def __init__(
        self,
        name: str,
        inner: Callable[..., Any],
        explain: Callable[..., Explanation],
        lost: Mapping[int, tuple[str, ...]],
    ) -> None:
        """Args:
        name: of the operator.
        inner: answers calls on other devices.
        explain: likewise.
        lost: suspects, by number of the place.
        """

        def gone(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
            for value in (*args, *kwargs.values()):
                if getattr(value, "is_cuda", False) and value.get_device() in lost:
                    return int(value.get_device())
            return None

        def call(*args: Any, **kwargs: Any) -> Any:
            place = gone(args, kwargs)
            if place is not None:
                raise device_lost(name, f"cuda:{place}", "an earlier call met it", lost[place])
            return inner(*args, **kwargs)

        def explained(*args: Any, **kwargs: Any) -> Explanation:
            if gone(args, kwargs) is not None:
                return Explanation(operator=name, kernel=None, misses=(Miss(reason=MissReason.STICKY),))
            return explain(*args, **kwargs)

        self.call, self.explain = call, explained
