"""What leaves the build host is built up from lists: no text of a job gets through, whatever the job says."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tilegate.records.canonical import encode
from tilegate.records.contract import DTYPES
from tilegate.records.trace import CompilerTrace, ErrorClass, Stage
from tilegate.rules import sanitize as rules
from tilegate.rules.sanitize import MESSAGE_CHARS, WORDS, Observation, Subject, sanitize, slots_of, tell
from tilegate.rules.templates import TEMPLATES

NAMES = ("x", "weight", "tokens", "hidden", "T", "eps", "block")
SUBJECT = Subject(
    operator="rms_norm",
    kernel="rows",
    axes={"hidden": 384},
    dtypes={"T": "float32"},
    target="cpu:x86-64-v3",
    identifiers=frozenset(NAMES),
)


def seen(message="", *, step="lower", kind="tvm.error.InternalError", stage=Stage.COMPILE, **more):
    return Observation(stage=stage, ending="finished", step=step, kind=kind, message=message, **more)


def trace(message="", **more):
    return sanitize(seen(message, **more), SUBJECT)


# Templates


@pytest.mark.parametrize("key", TEMPLATES)
def test_every_template_can_be_told_without_a_single_slot_from_the_job(key):
    made = trace(template=key)
    sentence, hint = tell(made)
    assert made.template == key
    assert made.error is TEMPLATES[key].error
    assert set(made.words) == set(slots_of(TEMPLATES[key]))
    assert not set("{}") & set(sentence)
    assert hint


@pytest.mark.parametrize("key", TEMPLATES)
def test_every_slot_of_a_template_is_filled_with_what_the_job_says_of_it(key):
    slots = slots_of(TEMPLATES[key])
    made = trace(template=key, numbers={name: 40 + i for i, name in enumerate(slots)})
    assert list(made.numbers) == list(slots)
    assert made.words == {}
    assert all(str(number) in tell(made)[0] for number in made.numbers.values())


def test_a_slot_that_the_sentence_has_not_is_dropped():
    made = trace(template="rank", numbers={"got": 3, "expected": 2, "x": 9}, words={"tensor": "x", "T": "x"})
    assert (made.numbers, made.words) == ({"got": 3, "expected": 2}, {"tensor": "x"})
    assert tell(made)[0] == "x has rank 3 in the kernel and 2 in the contract"


def test_a_trace_of_another_version_is_told_as_far_as_it_goes():
    older = CompilerTrace(stage=Stage.ELABORATE, error=ErrorClass.CONTRADICTION, template="rank")
    assert tell(older)[0] == "other has rank other in the kernel and other in the contract"
    unknown = structs.replace(older, template="no-such-template")
    assert tell(unknown)[0] == "elaborate: contradiction"


def test_a_line_is_told_with_its_role():
    assert "(kernel, line 14)" in tell(trace(template="rank", line=14))[0]
    assert "(operator, line 7)" in tell(trace(kind="builtins.SyntaxError", line=7, stage=Stage.DESCRIBE))[0]
    assert trace(template="rank", line=0).location is None
    assert trace(template="rank", line=2**40).location is None


# Rules

PLANTED = [
    ("no-bfloat16", "lower", "Cannot convert type bfloat16 to C type"),
    ("no-float8", "lower", "Cannot convert type float8_e4m3fn to C type"),
    ("no-vector-math", "lower", 'Unresolved call ir.Op(span=None, name="tirx.fabs", op_type=None)'),
    ("no-vector-math", "device", "no known conversion for argument 1 from 'half4' {aka 'vec_type<half, 4>'}"),
    ("parallel-over-local", "lower", "Local buffer `a` is indexed by T.Parallel loop variable `i`. Local buffers "
     "are thread-private and do not participate in parallel layout inference."),
    ("layout-not-inferred", "lower", "The layout for fragment b can not be inferred correctly."),
    ("no-shared-memory", "lower", "shared memory is not supported here"),
    ("no-cumsum", "lower", "tl.cumsum requires a target-specific implementation, but no cumsum implementation is"),
    ("no-threads", "lower", "T.Kernel body references thread index `tx`, but target `c` has no SIMT threads."),
    ("step-slice", "factory", "Buffer slicing with step is not supported."),
    ("missing-header", "device", "device.cc:3:10: fatal error: helper.h: No such file or directory"),
    ("generated-syntax", "device", "device.cc:9:12: error: expected ';' before '}' token"),
    ("helper-linkage", "device", "error: conflicting declaration of 'float bump(float)' with 'C' linkage"),
    ("undefined-symbol", "link", "device.cc:(.text.f_kernel+0x18): undefined reference to `nobody_has_this'"),
    ("layout-conflict", "cuda-lower", "Inconsistent layouts between src and dst in ReduceOp: dst_layout=tl.Fragment("),
    ("layout-not-inferred", "cuda-lower", "The layout for fragment b can not be inferred correctly."),
    ("pipeline-trip-count", "cuda-lower", "Downcast from tirx.Sub to ir.IntImm failed"),
    ("step-slice", "cuda-lower", "Buffer slicing with step is not supported."),
    ("shared-memory-static", "cuda-device",
     "ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes, 0xc000 max)"),
    ("arch-lacks", "cuda-device", 'intrin.h(74): error: static assertion failed with "tl::warpgroup_arrive requires sm_90"'),
    ("missing-header", "cuda-device", 'kernel.cu(2): catastrophic error: cannot open source file "helper.h"'),
    ("device-undefined", "cuda-device", 'kernel.cu(9): error: identifier "bump" is undefined'),
    ("generated-syntax", "cuda-device", 'kernel.cu(9): error: expected a ";"'),
]  # fmt: skip
"""Template, step, and words of TileLang 0.1.15, gcc 12 and its linker, nvcc, NVRTC and ptxas 13.0."""


@pytest.mark.parametrize(("template", "step", "message"), PLANTED)
def test_a_message_of_a_compiler_names_its_template(template, step, message):
    made = trace(f"one line\n{message}\nand more", step=step)
    assert (made.template, made.words, made.numbers) == (template, {}, {})


def test_every_rule_has_a_message_that_it_is_for():
    fired = {
        rule
        for template, step, message in PLANTED
        for rule in rules.RULES
        if rule[2] == template and step in rule[0].split("|") and re.search(rule[1], message)
    }
    assert fired == set(rules.RULES)


def test_a_rule_reads_messages_of_its_own_step_only():
    assert trace("undefined reference to `bump'", step="factory").template == "factory-raised"


@pytest.mark.parametrize(
    ("kind", "step", "template"),
    [
        ("builtins.ModuleNotFoundError", "import", "module-missing"),
        ("builtins.ImportError", "import", "import-failed"),
        ("builtins.SyntaxError", "import", "source-syntax"),
        ("builtins.IndentationError", "import", "source-syntax"),
        ("builtins.MemoryError", "factory", "memory"),
        ("builtins.SystemExit", "factory", "factory-exits"),
        ("builtins.KeyboardInterrupt", "import", "factory-exits"),
        ("builtins.ValueError", "import", "import-raised"),
        ("builtins.ValueError", "factory", "factory-raised"),
        ("builtins.ValueError", "lower", "lowering-failed"),
        ("builtins.ValueError", "link", "tool-failed"),
    ],
)
def test_an_exception_is_told_by_its_class_and_where_it_was_raised(kind, step, template):
    assert trace("text of its own", kind=kind, step=step).template == template


@pytest.mark.parametrize(
    ("ending", "template"),
    [
        ("exited", "job-exited"),
        ("signalled", "job-signalled"),
        ("wall", "job-wall"),
        ("silent", "job-silent"),
        ("protocol", "job-protocol"),
        ("too_large", "job-too-large"),
        ("a word from nowhere", "job-protocol"),
    ],
)
def test_a_job_that_was_ended_is_told_by_how_it_ended(ending, template):
    made = sanitize(Observation(stage=Stage.ELABORATE, ending=ending, code=9, message="secret"), SUBJECT)
    assert made.template == template
    assert made.numbers == ({"code": 9} if "code" in slots_of(TEMPLATES[template]) else {})


def test_a_text_that_no_rule_knows_becomes_its_class_and_its_length():
    made = trace("the token is hunter2", kind="builtins.ValueError", step="factory")
    assert (made.template, made.words, made.numbers) == (
        "factory-raised",
        {"kind": "ValueError"},
        {"length": 20},
    )


def test_a_class_of_the_authors_own_is_not_named():
    assert trace("", kind="acme.secrets.HunterTwoError", step="factory").words == {"kind": "other"}


def test_what_stands_behind_the_cap_of_a_message_is_not_read():
    assert trace("x" * MESSAGE_CHARS + " cumsum").template == "lowering-failed"


# Words


@pytest.mark.parametrize(
    "word", [*NAMES, *DTYPES, "handle", "float8_e4m3fn", "list", "NoneType", "ValueError", "gcc"]
)
def test_a_word_of_the_contract_or_of_a_list_stands(word):
    assert trace(template="dtype", words={"got": word}).words["got"] == word


@pytest.mark.parametrize("word", ["hunter2", "_", "Rows", "float33", "hidden_", "X", "eps ", "", "rms_norm"])
def test_any_other_identifier_becomes_other(word):
    assert trace(template="dtype", words={"got": word}).words["got"] == "other"


LOOK_ALIKES = (
    "t\u03bfkens",
    "h\u0456dden",
    "\u0435ps",
    "float32\u200b",
    "\uff58",
    "we\u0131ght",
    "list\n",
    "T\x00",
    "T\u0301",
)


@pytest.mark.parametrize("word", LOOK_ALIKES, ids=ascii)
def test_a_look_alike_of_a_known_word_is_not_that_word(word):
    assert trace(template="dtype", words={"got": word}).words["got"] == "other"


# Laws

SECRETS = st.sampled_from(
    [
        "/home/alice/acme/kernels/rms.py",
        "C:\\Users\\alice\\kernels",
        "gcc -O3 -DKEY=hunter2 device.cc",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_0123456789abcdefghij0123456789abcdef",
        "eyJhbGciOiJIUzI1NiJ9.e30.ZRrHA1JJJW8opsbCGfG_HACGpVUMN_a9IV7pAx",
        "    total += secret_scale[row] * X[row, i]",
        "alice@build-host-17.acme.internal",
        "0x7fe31c0a2b40",
        "hunter2",
        "\u0430lice",
        "\uff48unter2",
        "hun\u200bter2",
        "\ud800hunter2",
        "42.195",
    ]
)
NOISE = st.text("qxj0189QXJ_-/\\.:{} \n", max_size=40).map("<{}>".format)
"""Without the letters of any word that a rule reads: another text may then stand in its place."""
PHRASES = st.sampled_from([message for _, _, message in PLANTED] + ["", "bfloat16", "expected ; before }"])
STEPS = st.sampled_from(
    ["import", "factory", "result", "lower", "tools", "launcher", "host", "device", "link", ""]
)


@st.composite
def planted(draw):
    """A secret, and what an observation is that holds some text in every raw field."""
    secret = draw(SECRETS | NOISE)
    around, template = draw(PHRASES), draw(st.sampled_from([*TEMPLATES, None, None]))
    names = slots_of(TEMPLATES[template]) if template else ()
    stage, ending = draw(st.sampled_from(Stage)), draw(st.sampled_from(["finished", "finished", "{}"]))
    step, kind = draw(STEPS | st.just("{}")), draw(st.sampled_from(["{}", "{}.ValueError", "acme.{}"]))
    message = draw(st.sampled_from(["{}", "{around}\n{}", "{}{around}", "{around}{}"]))
    line, number = draw(st.none() | st.integers(-5, 2**34)), draw(st.integers())

    def holding(text):
        return Observation(
            stage=stage,
            ending=ending.replace("{}", text),
            code=9,
            step=step.replace("{}", text),
            kind=kind.replace("{}", text),
            message=message.replace("{around}", around).replace("{}", text),
            line=line,
            template=template or text,
            numbers={names[0] if names else text: number, text: number},
            words=dict.fromkeys([*names, text], text),
        )

    return secret, holding


@given(planted())
def test_no_text_of_a_job_is_in_a_trace(case):
    """A text in the raw fields of an observation stands neither in its trace nor in what is told of it.

    With other letters in the place of its own, the trace is the same to the byte.
    """
    secret, holding = case
    made = sanitize(holding(secret), SUBJECT)
    written = encode(made)
    assert secret not in written.decode()
    assert secret not in " ".join(tell(made))
    assert encode(sanitize(holding(re.sub(r"\w", "z", secret)), SUBJECT)) == written


ANYTHING = st.text(max_size=60)


@given(
    observation=st.builds(
        Observation,
        stage=st.sampled_from(Stage),
        ending=st.sampled_from(["finished", "exited"]) | ANYTHING,
        code=st.integers(),
        step=STEPS | ANYTHING,
        kind=ANYTHING,
        message=ANYTHING,
        line=st.none() | st.integers(),
        template=st.sampled_from([*TEMPLATES]) | ANYTHING,
        numbers=st.dictionaries(ANYTHING, st.integers()),
        words=st.dictionaries(ANYTHING, ANYTHING),
    )
)
def test_every_word_of_a_trace_is_from_a_list(observation):
    """A trace holds template keys, the subject, numbers of 32 bits, and words that were known before."""
    made = sanitize(observation, SUBJECT)
    known = {"other", *NAMES, *WORDS}
    assert made.template in TEMPLATES
    assert set(made.words.values()) <= known
    assert set(made.words) | set(made.numbers) <= set(slots_of(TEMPLATES[made.template]))
    assert all(-(2**31) <= number < 2**31 for number in made.numbers.values())
    assert (made.operator, made.kernel, made.axes) == ("rms_norm", "rows", {"hidden": 384})


# Fingerprints


def test_the_same_fault_elsewhere_keeps_its_fingerprint():
    here = trace("the token is hunter2", kind="builtins.ValueError", step="factory", line=3)
    other = Subject(
        operator="gemm", kernel="tiles", axes={"K": 32}, dtypes={}, target="cpu:x86-64-v2", toolchain=None
    )
    there = sanitize(
        seen("a longer message of the same class", kind="builtins.ValueError", step="factory", line=99), other
    )
    assert here != there
    assert here.fingerprint == there.fingerprint


def test_faults_that_differ_have_fingerprints_that_differ():
    faults = [
        *(trace(template=key) for key in TEMPLATES),
        *(trace("", kind=f"builtins.{kind}", step="factory") for kind in ("ValueError", "KeyError")),
        *(trace(template="dtype", words={"tensor": "x", "got": got}) for got in ("float16", "float64")),
        trace(template="memory", stage=Stage.ELABORATE),
    ]
    assert len({one.fingerprint for one in faults}) == len(faults)
