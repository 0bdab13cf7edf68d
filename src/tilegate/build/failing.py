"""Failures on their way out of a job: those that it can name itself, those that it cannot, and refusals of ours."""

from __future__ import annotations

import traceback

import msgspec

from tilegate.build.requests import Failure
from tilegate.errors import ContractError
from tilegate.sandbox.importer import ROOT

MESSAGE_CHARS = 16_384
PART_CHARS = 500
"""Shown of each part of a refusal."""

_PARTS = ("what", "where", "why", "next_step")


TOOLCHAIN = ("tilelang", "tvm", "tvm_ffi")


class Diagnosed(Exception):  # noqa: N818 - a diagnosis, not an error of this program
    """The job knows what is wrong: a template of rules.sanitize with its slots."""

    def __init__(self, template: str, *, numbers: dict[str, int] | None = None, **words: str) -> None:
        super().__init__(template)
        self.template = template
        self.numbers = numbers or {}
        self.words = words


class CompilerFailed(Exception):  # noqa: N818 - carried to the sanitizer, which knows the tools' words
    """A compiler or the linker said no; the message is its own."""


def failure(step: str, error: BaseException, *, module: str = "") -> bytes:
    """The failure as a frame; raw text is capped here and read once, by the sanitizer or by `refusal`."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in TOOLCHAIN:
        error = Diagnosed("toolchain-missing").with_traceback(error.__traceback__)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(ROOT)]
    return msgspec.json.encode(
        Failure(
            step=step,
            kind=f"{type(error).__module__}.{type(error).__qualname__}",
            message=_message(error),
            line=(frames[-1].lineno or 0) if frames else msgspec.UNSET,
            template=error.template if isinstance(error, Diagnosed) else "",
            numbers=error.numbers if isinstance(error, Diagnosed) else {},
            words=_words(error, module),
        )
    )


def refusal(data: bytes) -> ContractError | None:
    """The error of a failure that says that an operator is declared wrongly; None for any other failure.

    It is shown to whoever builds, and recorded nowhere. The job may lie in it as an author may in a
    declaration; what could move a terminal's cursor is taken out.
    """
    try:
        told = msgspec.json.decode(data, type=Failure, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if told.kind != f"{ContractError.__module__}.{ContractError.__qualname__}":
        return None
    what, where, why, next_step = (_shown(told.words.get(part, "")) for part in _PARTS)
    module = _shown(told.words.get("module", ""))
    line = "" if told.line is msgspec.UNSET else f", line {told.line}"
    return ContractError(
        what, where=f"{where} ({module}{line})".lstrip(), why=why, next_step=next_step or "mend it there"
    )


def _words(error: BaseException, module: str) -> dict[str, str]:
    if isinstance(error, Diagnosed):
        return error.words
    if isinstance(error, ContractError):
        return {"module": module} | {part: getattr(error, part) for part in _PARTS}
    return {}


def _shown(text: str) -> str:
    return "".join(c for c in text[:PART_CHARS] if c.isprintable())


def _message(error: BaseException) -> str:
    """What an exception says, as text that can be sent: its `__str__` may fail, or give half a character."""
    try:
        return str(error)[:MESSAGE_CHARS].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - an author's __str__ may raise anything
        return ""
