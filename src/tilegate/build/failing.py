"""Inside a job: a failure that the job can name itself, and the record of one that it cannot."""

from __future__ import annotations

import traceback

import msgspec

from tilegate.build.requests import Failure
from tilegate.sandbox.importer import ROOT

MESSAGE_CHARS = 16_384


class Diagnosed(Exception):  # noqa: N818 - a diagnosis, not an error of this program
    """The job knows what is wrong: a template of rules.sanitize with its slots."""

    def __init__(self, template: str, *, numbers: dict[str, int] | None = None, **words: str) -> None:
        super().__init__(template)
        self.template = template
        self.numbers = numbers or {}
        self.words = words


def failure(step: str, error: BaseException) -> bytes:
    """The failure as a frame; raw text is capped here and read once, by the sanitizer."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(ROOT)]
    return msgspec.json.encode(
        Failure(
            step=step,
            kind=f"{type(error).__module__}.{type(error).__qualname__}",
            message=_message(error),
            line=(frames[-1].lineno or 0) if frames else msgspec.UNSET,
            template=error.template if isinstance(error, Diagnosed) else "",
            numbers=error.numbers if isinstance(error, Diagnosed) else {},
            words=error.words if isinstance(error, Diagnosed) else {},
        )
    )


def _message(error: BaseException) -> str:
    """What an exception says, as text that can be sent: its `__str__` may fail, or give half a character."""
    try:
        return str(error)[:MESSAGE_CHARS].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - an author's __str__ may raise anything
        return ""
