"""From what a job said to a compiler trace that may leave the build host. Pure, and built up from a list.

A rule matches words of a compiler and names a template; only typed slots reach the record. Text that no rule
knows becomes its class and its length, never itself.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilegate.records.contract import DTYPES
from tilegate.records.trace import CompilerTrace, ErrorClass, Location, Stage
from tilegate.rules.templates import TEMPLATES

_E = ErrorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Raw: what is known of one failure on the build host."""

    stage: Stage
    ending: str
    """How the job ended: `finished` where it told the failure itself."""
    code: int = 0
    """Exit status or signal number."""
    step: str = ""
    kind: str = ""
    """Qualified name of an exception class."""
    message: str = ""
    line: int | None = None
    """Line in a reviewed file."""
    template: str = ""
    """Where the job knows the diagnosis itself."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was being built, in contract identifiers."""

    operator: str | None = None
    kernel: str | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    toolchain: str | None = None


_RULES: tuple[tuple[str, str, str], ...] = (
    # step, pattern over the raw message, template
    ("lower|device", r"\bbfloat16\b|\bbf16\b", "no-bfloat16"),
    ("lower|device", r"float8|fp8|e4m3|e5m2", "no-float8"),
    ("lower|device", r"[Uu]nresolved call.*tirx?\.(\w+)", "no-vector-math"),
    ("lower|factory", r"layout (?:can ?not|could not) be inferred|layout.*infer", "layout-not-inferred"),
    ("lower", r"shared memory|shared\.dyn", "no-shared-memory"),
    ("lower", r"cumsum", "no-cumsum"),
    ("lower", r"threadIdx|thread index|launch_thread_idx", "no-threads"),
    ("lower|result|factory", r"slicing with step|step slice", "step-slice"),
    ("lower|result|factory", r"local.*T\.Parallel|T\.Parallel.*local", "parallel-over-local"),
    ("device", r"vec_type|float[248]|invalid cast|no match for .operator", "no-vector-math"),
    ("device|host", r"fatal error: .*: No such file", "missing-header"),
    ("device|host", r"expected .{1,8} before", "generated-syntax"),
    ("link", r"undefined reference", "undefined-symbol"),
)

_EXCEPTIONS: Mapping[str, tuple[str, ErrorClass]] = {
    "builtins.ModuleNotFoundError": ("module-missing", _E.IMPORT),
    "builtins.ImportError": ("import-failed", _E.IMPORT),
    "builtins.SyntaxError": ("source-syntax", _E.SYNTAX),
    "builtins.IndentationError": ("source-syntax", _E.SYNTAX),
    "builtins.MemoryError": ("memory", _E.MEMORY),
    "builtins.SystemExit": ("factory-exits", _E.FACTORY_RAISED),
    "builtins.KeyboardInterrupt": ("factory-exits", _E.FACTORY_RAISED),
}

_KNOWN_CLASSES = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError", "NameError",
    "NotImplementedError", "OSError", "OverflowError", "RecursionError", "RuntimeError", "StopIteration",
    "TypeError", "ValueError", "ZeroDivisionError", "InternalError", "TVMError",
})  # fmt: skip
_KNOWN_TYPES = frozenset(
    {"NoneType", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict", "set", "function", "type",
     "PrimFunc", "IRModule", "JITKernel", "JITImpl", "Tensor", "module", "method", "generator"} | set(DTYPES)
)  # fmt: skip


def sanitize(observation: Observation, subject: Subject) -> CompilerTrace:
    """The trace of one failure.

    1. A job that was ended from outside is told by how it ended.
    2. A diagnosis that the job made itself stands.
    3. The first rule whose step and words match decides.
    4. An exception class with a template of its own; else the class alone, where it is a known one.
    """
    template, numbers, words = _diagnose(observation)
    location = None
    if observation.line is not None and 0 < observation.line < 2**31:
        location = Location(
            role="operator" if observation.stage is Stage.DESCRIBE else "kernel", line=observation.line
        )
    return CompilerTrace(
        stage=observation.stage,
        error=TEMPLATES[template].error,
        template=template,
        numbers={k: _bounded(v) for k, v in numbers.items()},
        words=words,
        operator=subject.operator,
        kernel=subject.kernel,
        axes={axis: _bounded(n) for axis, n in subject.axes.items()},
        dtypes=dict(subject.dtypes),
        target=subject.target,
        toolchain=subject.toolchain,
        location=location,
    )


def tell(trace: CompilerTrace) -> tuple[str, str]:
    """The sentence and the hint of a trace: made of its slots and the program's own words."""
    template = TEMPLATES.get(trace.template)
    if template is None:
        return f"{trace.stage.value}: {trace.error.value}", "read it with the tilegate that wrote it"
    slots = {**trace.numbers, **trace.words}
    where = f" ({trace.location.role}, line {trace.location.line})" if trace.location else ""
    return template.sentence.format_map(slots) + where, template.hint


def _diagnose(seen: Observation) -> tuple[str, dict[str, int], dict[str, str]]:
    if seen.ending != "finished":  # (1)
        ending = f"job-{seen.ending.replace('_', '-')}"
        return (ending if ending in TEMPLATES else "job-protocol"), {"code": seen.code}, {}
    if seen.template in TEMPLATES:  # (2)
        words = {k: _word(v) for k, v in seen.words.items()}
        return seen.template, *_slots(seen.template, seen.numbers, words)
    for steps, pattern, template in _RULES:  # (3)
        if seen.step in steps.split("|") and re.search(pattern, seen.message):
            return template, {}, {}
    if seen.kind in _EXCEPTIONS:  # (4)
        return _EXCEPTIONS[seen.kind][0], {}, {}
    name = seen.kind.rpartition(".")[2]
    words = {"kind": name if name in _KNOWN_CLASSES else "other"}
    by_step = {"factory": "factory-raised", "import": "import-raised", "lower": "lowering-failed"}
    template = by_step.get(seen.step, "tool-failed")
    return template, *_slots(template, {"length": len(seen.message)}, words)


def _slots(
    template: str, numbers: Mapping[str, int], words: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, str]]:
    """Exactly the slots that the template's sentence has: what a job says beside them is dropped."""
    names = {name for _, name, _, _ in string.Formatter().parse(TEMPLATES[template].sentence) if name}
    kept = {name: numbers[name] for name in names if name in numbers}
    return kept, {name: words.get(name, "other") for name in names if name not in kept}


def _word(text: str) -> str:
    """A slot's word: an identifier as it stands where it names part of a contract, else `other`."""
    if text in _KNOWN_TYPES or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", text):
        return text
    return "other"


def _bounded(number: int) -> int:
    return max(-(2**31), min(2**31 - 1, int(number)))
