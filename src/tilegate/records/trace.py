"""The compiler trace that may leave the build host: built up from an allow-list, never scrubbed down.

Every field is an enum, a bounded number, a contract identifier, or a template with typed slots. There is no
field that could hold source text, a path, a command line, an address, a name of a host or user, or data.
"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta

from tilegate.records.canonical import Digest, Document, Name, Record, digest_of, encode

Small = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class Stage(enum.Enum):
    DESCRIBE = "describe"
    ELABORATE = "elaborate"
    COMPILE = "compile"
    EVALUATE = "evaluate"
    LOAD = "load"


class ErrorClass(enum.Enum):
    FACTORY_RAISED = "factory_raised"
    FACTORY_RESULT = "factory_result"
    CONTRADICTION = "contradiction"
    UNSUPPORTED = "unsupported"
    LOWERING = "lowering"
    HOST_COMPILER = "host_compiler"
    MISSING_TOOL = "missing_tool"
    IMPORT = "import"
    SYNTAX = "syntax"
    TIMEOUT = "timeout"
    SILENT = "silent"
    MEMORY = "memory"
    OUTPUT = "output"
    SIGNAL = "signal"
    PROTOCOL = "protocol"
    UNKNOWN = "unknown"


class Location(Record, frozen=True):
    """Where, as a role and a line: `kernel, line 14`."""

    role: Annotated[str, Meta(pattern=r"\A(kernel|operator|generated|tilelang)\Z")]
    line: Small


class CompilerTrace(Document, frozen=True, tag="tilegate.compiler-trace/1"):
    stage: Stage
    error: ErrorClass
    template: Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9-]{2,63}\Z")]
    """A key of `rules.sanitize.TEMPLATES`: the sentence and its hint live in the program, not in the record."""
    numbers: dict[Name, Small] = {}
    """Typed slots of the template: counts, ranks, extents, signal numbers."""
    words: dict[Name, Name] = {}
    """Typed slots: axes, tensors, dtypes, exception classes of the standard library or torch."""
    operator: Name | None = None
    kernel: Name | None = None
    axes: dict[Name, Small] = {}
    dtypes: dict[Name, Name] = {}
    target: Annotated[str, Meta(pattern=r"\A[a-z]+:[a-z0-9_-]+\Z")] | None = None
    toolchain: Digest | None = None
    location: Location | None = None

    @property
    def fingerprint(self) -> str:
        """Same fault, same fingerprint: kernel, shape, location and toolchain are left out."""
        core = CompilerTrace(stage=self.stage, error=self.error, template=self.template, words=self.words)
        return digest_of(encode(core))
