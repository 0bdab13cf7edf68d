"""From what a job said to a compiler trace that may leave the build host. Pure, and built up from a list.

A rule matches words of a compiler and names a template; only typed slots reach the record. A word fills a
slot if it is in a list of this file or names a part of the contract or binding; else it becomes `other`.
Text that no rule knows becomes its class and its length, never itself.
"""

from __future__ import annotations

import re
import signal
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilegate.records.contract import DTYPES
from tilegate.records.trace import CompilerTrace, ErrorClass, Location, Stage
from tilegate.rules.device_templates import Template
from tilegate.rules.templates import TEMPLATES

_E = ErrorClass

MESSAGE_CHARS = 16_384
"""Read of a message. A job that says more has said what it can."""

OTHER = "other"
"""In the place of every word that is on no list."""


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
    identifiers: frozenset[str] = frozenset()
    """Names that the contract and the binding hold: tensors, axes, dtype variables, attributes, parameters."""


RULES: tuple[tuple[str, str, str], ...] = (
    # step, pattern over the raw message, template
    ("lower|device", r"\bbfloat16\b|\bbf16\b", "no-bfloat16"),
    ("lower|device", r"float8|fp8|e4m3|e5m2", "no-float8"),
    ("lower|device", r"[Uu]nresolved call.*tirx?\.(\w+)", "no-vector-math"),
    ("lower|result|factory", r"[Ll]ocal.*T\.Parallel|T\.Parallel.*local", "parallel-over-local"),
    ("cuda-lower", r"Inconsistent layouts|[Bb]ijective", "layout-conflict"),
    ("cuda-lower", r"Downcast from tirx\.\w+ to ir\.IntImm", "pipeline-trip-count"),
    (
        "lower|cuda-lower|factory",
        r"layout (?:can ?not|could not) be inferred|layout.*infer",
        "layout-not-inferred",
    ),
    ("lower", r"shared memory|shared\.dyn", "no-shared-memory"),
    ("lower", r"cumsum", "no-cumsum"),
    ("lower", r"threadIdx|thread index|launch_thread_idx", "no-threads"),
    ("lower|cuda-lower|result|factory", r"slicing with step|step slice", "step-slice"),
    ("device", r"vec_type|float[248]|invalid cast|no match for .operator", "no-vector-math"),
    ("device|host", r"fatal error: .*: No such file", "missing-header"),
    ("device|host", r"expected .{1,8} before", "generated-syntax"),
    ("device", r"conflicting declaration|linkage|ambiguating new declaration", "helper-linkage"),
    ("link", r"undefined reference", "undefined-symbol"),
    ("cuda-device", r"too much shared data", "shared-memory-static"),
    (
        "cuda-device",
        r"static assertion|static_assert|[Ff]eature '.*' |(?:not supported|requires).*(?:\.target|sm_\d)",
        "arch-lacks",
    ),
    ("cuda-device", r"cannot open source file|No such file", "missing-header"),
    (
        "cuda-device",
        r"is undefined|has not been declared|Unresolved extern|has no member",
        "device-undefined",
    ),
    ("cuda-device", r"error: expected ", "generated-syntax"),
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

_CLASSES = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError", "NameError",
    "NotImplementedError", "OSError", "OverflowError", "RecursionError", "RuntimeError", "StopIteration",
    "TypeError", "ValueError", "ZeroDivisionError", "InternalError", "TVMError",
})  # fmt: skip
_TYPES = frozenset({
    "NoneType", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict", "set", "function", "type",
    "PrimFunc", "IRModule", "JITKernel", "JITImpl", "Tensor", "module", "method", "generator",
})  # fmt: skip
_DTYPES = frozenset({
    *DTYPES, "uint16", "uint32", "uint64", "int4", "uint4", "handle", "float8_e4m3", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
    "float4_e2m1fn",
})  # fmt: skip
_TOOLS = frozenset({"gcc", "gpp", "nvcc", "nvrtc", "ptxas"})
WORDS = _CLASSES | _TYPES | _DTYPES | _TOOLS
"""What a job may say in a slot, beside the identifiers of its subject."""


def sanitize(observation: Observation, subject: Subject) -> CompilerTrace:
    """The trace of one failure.

    1. A job that was ended from outside is told by how it ended.
    2. A diagnosis that the job made itself stands.
    3. The first rule whose step and words match decides.
    4. An exception class with a template of its own; else the class alone, where it is a known one.
    """
    template, numbers, words = _diagnose(observation, subject.identifiers)
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
    slots = {**dict.fromkeys(slots_of(template), OTHER), **trace.numbers, **trace.words}
    if trace.error is ErrorClass.SIGNAL:
        slots |= {name: _signal(number) for name, number in trace.numbers.items()}
    where = f" ({trace.location.role}, line {trace.location.line})" if trace.location else ""
    return template.sentence.format_map(slots) + where, template.hint


def _signal(number: int) -> str:
    """`11 (SIGSEGV)`."""
    known = {int(one): one.name for one in signal.Signals}
    return f"{number} ({known[number]})" if number in known else str(number)


def slots_of(template: Template) -> tuple[str, ...]:
    """Names of the slots in a template's sentence."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(template.sentence) if name)


def _diagnose(seen: Observation, identifiers: frozenset[str]) -> tuple[str, dict[str, int], dict[str, str]]:
    if seen.ending != "finished":  # (1)
        ending = f"job-{seen.ending.replace('_', '-')}"
        return _filled(ending if ending in TEMPLATES else "job-protocol", {"code": seen.code}, {})
    if seen.template in TEMPLATES:  # (2)
        words = {name: word if word in identifiers else _listed(word) for name, word in seen.words.items()}
        return _filled(seen.template, seen.numbers, words)
    message = seen.message[:MESSAGE_CHARS]
    for steps, pattern, template in RULES:  # (3)
        if seen.step in steps.split("|") and re.search(pattern, message):
            return _filled(template, {}, {})
    if seen.kind in _EXCEPTIONS:  # (4)
        return _filled(_EXCEPTIONS[seen.kind][0], {}, {})
    by_step = {
        "factory": "factory-raised",
        "import": "import-raised",
        "lower": "lowering-failed",
        "cuda-lower": "lowering-failed",
    }
    kind = seen.kind.rpartition(".")[2]
    words = {"kind": kind if kind in _CLASSES else OTHER}
    return _filled(by_step.get(seen.step, "tool-failed"), {"length": len(seen.message)}, words)


def _listed(word: str) -> str:
    return word if word in WORDS else OTHER


def _filled(
    template: str, numbers: Mapping[str, int], words: Mapping[str, str]
) -> tuple[str, dict[str, int], dict[str, str]]:
    """Exactly the slots that the template's sentence has: what a job says beside them is dropped."""
    names = slots_of(TEMPLATES[template])
    kept = {name: numbers[name] for name in names if name in numbers}
    return template, kept, {name: words.get(name, OTHER) for name in names if name not in kept}


def _bounded(number: int) -> int:
    return max(-(2**31), min(2**31 - 1, int(number)))
