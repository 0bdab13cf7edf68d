"""From a release folder to answered calls: the right binary, or the reference, and each of them counted.

Binaries compute another multiple than the references do, so that a result tells who answered.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading

import pytest
import torch

import tilegate
from tests import world
from tests.written import imported
from tilegate import MissReason, processor
from tilegate.errors import GuardMiss, TrustError, UsageError
from tilegate.library import NO_BUILD
from tilegate.records.closure import Specialization
from tilegate.records.miss import Miss
from tilegate.records.plan import Workload
from tilegate.records.policy import Policy
from tilegate.records.profile import Profile, ProfileLine
from tilegate.records.shape import Range, ShapeClass
from tilegate.records.target import X86_64_LEVELS, Target


@tilegate.operator(
    inputs={"x": "float32[n]"},
    outputs={"y": "float32[n]"},
    name="serving_twice",
    served=[{"n": 4}, {"n": 400}],
)
def twice(x):
    return 2 * x


@tilegate.operator(
    inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="serving_strict", strict=True
)
def strictly_twice(x):
    return 2 * x


@tilegate.operator(
    inputs={"a": "T[m, k]", "b": "T[k, m]"},
    outputs={"y": "T[m]"},
    dtypes={"T": ("float32", "float64")},
    attributes={"by": float, "kind": str, "flip": bool},
    name="serving_rows",
)
def rows(a, b, by=1.0, *, kind="sum", flip=False):
    found = (a * b.T).sum(1) if kind == "sum" else (a * b.T).amax(1)
    return -by * found if flip else by * found


@tilegate.operator(
    inputs={"x": "float32[n]", "y": "float32[n]"},
    outputs={"x": "float32[n]"},
    in_place=("x",),
    name="serving_add",
)
def add_(x, y):
    x.add_(y)
    return x


WHOLE = 1000.0
"""What a binary adds to what it computes."""

ADD = world.HOST + (
    "float *x = at(args, 0)->data, *y = at(args, 1)->data;"
    f"for (int64_t i = 0; i < at(args, 0)->shape[0]; ++i) x[i] += y[i] + {WHOLE}f; return 0; }}"
)
MARK = world.HOST + (
    "for (int64_t i = 0; i < at(args, 2)->shape[0]; ++i) ((KIND *)at(args, 2)->data)[i] = WHO; return 0; }"
)
"""rows: fills y with a number that tells which artifact it was."""
DECLINE = world.HOST + "(void)args; return -1; }"
V2, V3, V4 = (Target(backend="cpu", arch=f"x86-64-v{n}") for n in (2, 3, 4))
X = torch.ones(4)


@pytest.fixture(autouse=True)
def nothing_in_force():
    yield
    tilegate.use(None)
    tilegate.reference_only(mode=False)


def scaled(operator=twice, factor=3, **kwargs):
    return world.part(operator.contract(), world.SCALE, f"FACTOR={factor}", **kwargs)


def marked(who, *, kind="float", dtype="float32", axes=None, target=V2, classes=(), **attributes):
    fixed = {"by": 1.0, "kind": "sum", "flip": False} | attributes
    spec = Specialization(axes=axes or {}, dtypes={"T": dtype}, attributes=fixed)
    defines = (f"KIND={kind}", f"WHO={who}")
    return world.part(
        rows.contract(), MARK, *defines, specialization=spec, target=target, classes=classes, kernel=f"k{who}"
    )


def serve(folder, *parts, **kwargs):
    world.write_parts(folder, *parts, **kwargs)
    tilegate.use(folder, allow_unsigned=True)


def counted(name="serving_twice"):
    found = tilegate.stats()[name]
    return sum(found.hits.values()), found.misses


def machine(monkeypatch, tmp_path, level, model="a processor"):
    """Let this be another processor, as /proc/cpuinfo would tell it."""
    flags = [f for name, added in X86_64_LEVELS.items() if name <= level for f in added]
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nmodel name : {model}\nflags : {' '.join(flags)}\n")
    monkeypatch.setattr(processor, "CPUINFO", file)


def answered(who, *shape, m=2, k=4, dtype=torch.float32, **attributes):
    return rows(torch.ones(m, k, dtype=dtype), torch.ones(k, m, dtype=dtype), **attributes)[0].item() == who


# What is in force


def test_a_release_answers_until_it_is_taken_away(tmp_path):
    assert twice(X).tolist() == [2] * 4
    serve(tmp_path, scaled())
    assert twice(X).tolist() == [3] * 4
    tilegate.use(None)
    assert twice(X).tolist() == [2] * 4
    assert tilegate.stats() == {}


def test_two_releases_in_turn_each_run_their_own_code(tmp_path):
    world.write_parts(tmp_path / "a", scaled(factor=3))
    world.write_parts(tmp_path / "b", scaled(factor=5))
    for _ in range(3):
        for name, factor in (("a", 3), ("b", 5)):
            tilegate.use(tmp_path / name, allow_unsigned=True)
            assert twice(X).tolist() == [factor] * 4
            assert counted() == (1, {})


def test_a_use_that_fails_changes_nothing(tmp_path):
    serve(tmp_path / "good", scaled())
    world.write_parts(tmp_path / "bad", scaled(factor=5))
    (tmp_path / "bad/oci-layout").write_bytes(b"{}")
    twice(X)
    for folder, allowed, error in (
        ("bad", True, TrustError),
        ("good", False, TrustError),
        ("none", True, UsageError),
    ):
        with pytest.raises(error):
            tilegate.use(tmp_path / folder, allow_unsigned=allowed)
        assert twice(X).tolist() == [3] * 4
    assert counted() == (4, {})


def test_an_operator_declared_after_use_is_attached_with_all_that_its_module_defines(tmp_path):
    """Its digest must wait until the functions further down in the module are there."""
    text = """
        import tilegate
        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="serving_late")
        def late(x):
            return further_down(x)
        def further_down(x):
            return 2 * x
    """
    with imported(tmp_path / "before", {"ops.py": text}, "ops", name="latecomer") as module:
        serve(tmp_path / "release", scaled(module.late))
    with imported(tmp_path / "after", {"ops.py": text}, "ops", name="latecomer") as module:
        assert "serving_late" in tilegate.stats()
        assert module.late.explain(X).kernel == "body"
        assert module.late(X).tolist() == [3] * 4
        assert counted("serving_late") == (1, {})


# Counting


def test_hits_and_misses_of_many_threads_are_all_counted(tmp_path):
    serve(tmp_path, scaled(classes=[world.any_shape(("n",), stop=64)]))
    large, strided, wrong = torch.ones(65), torch.ones(8)[::2], []

    def work():
        for _ in range(500):
            results = (twice(X)[0].item(), twice(large)[0].item(), twice(strided)[0].item())
            if results != (3, 2, 2):
                wrong.append(results)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    shape, strides = Miss(reason=MissReason.SHAPE_CLASS, detail="n=65"), "tensor is not contiguous (x)"
    assert counted() == (4000, {str(shape): 4000, strides: 4000})
    assert tilegate.stats()["serving_twice"].hit_rate == pytest.approx(1 / 3)


def test_a_hit_is_explained_by_its_artifact_and_not_counted(tmp_path):
    part = scaled(classes=[world.any_shape(("n",), stop=2), ShapeClass(axes={"n": Range(start=4, stop=8, step=4)}, alignment_bytes=4)])  # fmt: skip
    serve(tmp_path, part)
    told = twice.explain(X)
    assert (told.operator, told.kernel, told.target) == ("serving_twice", "body", "cpu:x86-64-v2")
    assert told.manifest == part.candidate.manifest.digest
    assert told.shape_class == "n % 4 == 0 and 4 <= n <= 8"
    assert tilegate.explain(twice, torch.ones(2)).shape_class == "0 <= n <= 2"
    assert counted() == (0, {})


PYTHON_MISSES = {
    MissReason.TENSOR_TYPE: ((X.as_subclass(type("Mine", (torch.Tensor,), {})),), ""),
    MissReason.GRAD: ((torch.ones(4, requires_grad=True),), ""),
    MissReason.NEGATIVE_BIT: ((torch._neg_view(X),), ""),
    MissReason.UNREADABLE: ((X.to_sparse(),), "RuntimeError"),
}
GUARD_MISSES = {
    MissReason.DTYPE: ((X.double(),), "x"),
    MissReason.RANK: ((torch.ones(2, 2),), "x"),
    MissReason.STRIDES: ((torch.ones(8)[::2],), "x"),
    MissReason.SHAPE_CLASS: ((torch.ones(65),), "n=65"),
    MissReason.ALIGNMENT: ((torch.ones(9)[1:5],), ""),
    MissReason.ELEMENTS: ((torch.ones(60),), ""),
}


@pytest.mark.parametrize("reason", [*PYTHON_MISSES, *GUARD_MISSES], ids=lambda r: r.name)
def test_a_miss_is_explained_answered_by_the_reference_and_counted_each_time(tmp_path, reason):
    serve(
        tmp_path,
        scaled(
            classes=[ShapeClass(axes={"n": Range(start=0, stop=64)}, alignment_bytes=64, max_elements=48)]
        ),
    )
    arguments, detail = (PYTHON_MISSES | GUARD_MISSES)[reason]
    miss = Miss(reason=reason, detail=detail)
    told = twice.explain(*arguments)
    assert (told.kernel, told.misses) == (None, (miss,))
    assert counted() == (0, {})
    found, expected = twice(*arguments), twice.reference(*arguments)
    assert type(found) is type(expected)
    assert torch.equal(found.to_dense(), expected.to_dense())
    assert counted() == (0, {str(miss): 1})
    again = twice(*arguments)
    assert torch.equal(again.to_dense(), expected.to_dense())
    assert counted() == (0, {str(miss): 2})


def test_two_tensors_that_disagree_are_named(tmp_path):
    serve(tmp_path, marked(7, axes={"k": 4}))
    for a, b, miss in (
        (torch.ones(2, 4), torch.ones(4, 1), Miss(reason=MissReason.SYMBOL, detail="m: 2 in a, 1 in b")),
        (torch.ones(2, 5), torch.ones(5, 2), Miss(reason=MissReason.EXTENT, detail="a: k=5")),
    ):
        assert rows.explain(a, b).misses == (miss,)
        assert torch.equal(rows(a, b), rows.reference(a, b))
    huge = torch.ones(1, 1).expand(1, 2**31), torch.ones(1, 1).expand(2**31, 1)
    serve(tmp_path, marked(7))
    assert rows.explain(*huge).misses == (Miss(reason=MissReason.NARROW, detail="a: k=2147483648"),)


def test_a_call_that_lacks_a_fixed_extent_is_told_alike_before_and_after_the_first(tmp_path):
    """From the second on, no outputs are made for it: what C says of it, and of any other call, must not change."""
    serve(tmp_path, marked(7, axes={"m": 2, "k": 4}))
    ones, double = torch.ones, torch.float64
    calls = [
        (ones(2, 5), ones(5, 2)),
        (ones(2, 5), ones(5, 2)),
        (ones(2, 5, dtype=double), ones(5, 2, dtype=double)),
        (ones(1, 2, 5), ones(5, 2)),
        (ones(5, 2).T, ones(5, 2)),
        (ones(2, 4), ones(4, 1)),
        (ones(8, 2).T[:, ::2], ones(4, 2)),
    ]
    expected: dict[str, int] = {}
    for call in calls:
        (miss,) = rows.explain(*call).misses
        expected[str(miss)] = expected.get(str(miss), 0) + 1
        assert torch.equal(rows(*call), rows.reference(*call))
        assert answered(7)
    assert counted("serving_rows") == (len(calls), expected)
    assert len(expected) >= 4


def test_what_the_host_code_refuses_goes_to_the_reference(tmp_path):
    serve(tmp_path, world.part(twice.contract(), DECLINE))
    assert twice(X).tolist() == [2] * 4
    assert counted()[1] == {"the generated host code refused the call": 1}


def test_an_error_of_the_reference_is_the_callers(tmp_path):
    serve(tmp_path, scaled())
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        twice({})
    assert caught.value.__context__ is None
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        twice()
    assert counted() == (0, {"argument is not a plain torch.Tensor or nn.Parameter": 1})


def test_preflight_says_before_traffic_what_calls_will_say_then(tmp_path):
    assert {p.miss.reason for p in tilegate.preflight()} == {MissReason.NO_RELEASE}
    serve(tmp_path, scaled(classes=[world.any_shape(("n",), stop=64)]))
    small, large = (p for p in tilegate.preflight() if p.line.operator == "serving_twice")
    assert (small.served_by, small.miss) == ("body for cpu:x86-64-v2", None)
    assert (large.served_by, large.miss) == (None, twice.explain(torch.ones(400)).misses[0])
    lines = [ProfileLine(operator=name, workload=Workload(axes={"n": 4})) for name in ("serving_twice", "x")]
    served, absent = tilegate.preflight(Profile(lines=tuple(lines)))
    assert served.served_by == "body for cpu:x86-64-v2"
    assert absent.miss == Miss(reason=MissReason.NOT_IN_RELEASE)


# Switching off


def test_reference_only_reads_and_nests_like_set_grad_enabled(tmp_path):
    serve(tmp_path, scaled())
    with tilegate.reference_only():
        assert twice(X)[0] == 2
        with tilegate.reference_only(mode=False):
            assert twice(X)[0] == 3
        assert twice(X)[0] == 2
        assert twice.explain(X).misses == (Miss(reason=MissReason.REFERENCE_ONLY),)
    assert twice(X)[0] == 3
    assert counted() == (2, {"reference_only() is on": 2})


def test_reference_only_is_a_switch_that_outlives_releases(tmp_path):
    tilegate.reference_only()
    serve(tmp_path, scaled(), scaled(strictly_twice))
    assert twice(X)[0] == 2
    assert strictly_twice(X)[0] == 2, "switching off is always allowed, strict or not"
    tilegate.reference_only(mode=False)
    assert twice(X)[0] == 3


def test_a_strict_operator_raises_with_the_reason_and_the_next_step(tmp_path):
    serve(tmp_path / "without", scaled())
    with pytest.raises(GuardMiss, match="operator is not in the release"):
        strictly_twice(X)
    serve(tmp_path / "with", scaled(strictly_twice, classes=[world.any_shape(("n",), stop=64)]))
    assert strictly_twice(X)[0] == 3
    with pytest.raises(GuardMiss) as caught:
        strictly_twice(torch.ones(65))
    assert caught.value.why == "no evidence for this shape (n=65)"
    assert "evaluate and promote" in caught.value.next_step
    with pytest.raises(GuardMiss, match="n=66"):
        strictly_twice(torch.ones(66))
    assert counted("serving_strict") == (1, {"no evidence for this shape (n=65)": 2})


# Which artifact


def test_of_several_artifacts_the_one_made_for_the_call_runs(tmp_path):
    """Two dtypes, two fixed extents, two values of each kind of attribute."""
    serve(
        tmp_path,
        marked(11, axes={"k": 4}),
        marked(12, axes={"k": 8}),
        marked(13, axes={"k": 4}, dtype="float64", kind="double"),
        marked(14, axes={"k": 4}, by=2.0),
        marked(15, axes={"k": 4}, flip=True),
    )
    assert answered(11)
    assert answered(12, k=8)
    assert answered(13, dtype=torch.float64)
    assert answered(14, by=2.0)
    assert answered(15, flip=True)
    assert counted("serving_rows") == (5, {})
    assert answered(-16, k=8, flip=True, by=2.0), "no artifact: the reference"
    assert answered(1, kind="max")
    told = rows.explain(torch.ones(2, 3), torch.ones(3, 2))
    assert {m.reason for m in told.misses} == {MissReason.EXTENT, MissReason.DTYPE, MissReason.SPECIALIZATION}
    told = "no artifact for this dtype, fixed extent or attribute (fixed at build: T, by, kind, flip, k)"
    assert counted("serving_rows") == (5, {told: 2})


def test_an_artifact_that_leaves_an_extent_open_serves_what_the_fixed_ones_do_not(tmp_path):
    serve(tmp_path, marked(21, axes={"k": 4}), marked(22), marked(23, axes={"k": 8}))
    for k, who in ((4, 21), (8, 23), (5, 22)):
        assert answered(who, k=k)
        assert rows.explain(torch.ones(2, k), torch.ones(k, 2)).kernel == f"k{who}"
        workload = Workload(axes={"m": 2, "k": k}, dtypes={"T": "float32"}, attributes={"by": 1.0, "kind": "sum", "flip": False})  # fmt: skip
        (prediction,) = tilegate.preflight([ProfileLine(operator="serving_rows", workload=workload)])
        assert prediction.served_by == f"k{who} for cpu:x86-64-v2"


def test_the_better_target_is_asked_first_and_the_other_where_it_refuses(tmp_path, monkeypatch):
    machine(monkeypatch, tmp_path, "x86-64-v3")
    narrow = ShapeClass(axes={"m": Range(start=2, stop=2), "k": Range(start=0, stop=64)}, alignment_bytes=4)
    serve(tmp_path / "release", marked(31), marked(32, target=V3, classes=[narrow]))
    assert answered(32)
    assert answered(31, m=3)
    told = rows.explain(torch.ones(3, 4), torch.ones(4, 3))
    assert (told.kernel, told.misses) == ("k31", (Miss(reason=MissReason.SHAPE_CLASS, detail="m=3, k=4"),))
    assert counted("serving_rows") == (2, {})


def test_a_release_for_a_higher_processor_level_leaves_the_reference(tmp_path, monkeypatch):
    machine(monkeypatch, tmp_path, "x86-64-v3")
    serve(tmp_path / "release", marked(41, target=V4))
    a, b = torch.ones(2, 4), torch.ones(4, 2)
    assert rows(a, b).tolist() == [4, 4]
    assert rows.explain(a, b).misses == (Miss(reason=MissReason.NO_DEVICE_CLASS),)
    workload = Workload(axes={"m": 2, "k": 4}, dtypes={"T": "float32"})
    (prediction,) = tilegate.preflight([ProfileLine(operator="serving_rows", workload=workload)])
    assert prediction.miss == Miss(reason=MissReason.NO_DEVICE_CLASS)


def test_another_processor_model_serves_only_where_policy_does_not_mind(tmp_path, monkeypatch):
    machine(monkeypatch, tmp_path, "x86-64-v2", model="another model")
    serve(tmp_path / "strict", scaled(), policy=Policy(same_processor_model=True))
    assert (twice(X)[0], counted()[1]) == (2, {"no artifact for this device": 1})
    serve(tmp_path / "loose", scaled())
    assert twice(X)[0] == 3
    machine(monkeypatch, tmp_path, "x86-64-v2", model=world.DEVICE.model)
    assert processor.local_processor() == world.DEVICE
    serve(tmp_path / "strict", scaled(), policy=Policy(same_processor_model=True))
    assert twice(X)[0] == 3


# Calls as the reference takes them


def test_keyword_only_parameters_and_defaults_are_the_references(tmp_path):
    serve(tmp_path, marked(51))
    a, b = torch.ones(2, 4), torch.ones(4, 2)
    assert inspect.signature(rows._call) == inspect.signature(rows.reference)
    for hit in (rows(a, b), rows(b=b, a=a), rows(a, b, 1.0), rows(a, b, kind="sum", by=1.0, flip=False)):
        assert hit.tolist() == [51, 51]
    assert rows(a, b, 3.0, flip=True).tolist() == [-12, -12]
    assert rows(a, b, kind="max", by=5.0).tolist() == [5, 5]
    with pytest.raises(TypeError, match="positional"):
        rows(a, b, 1.0, "sum")
    assert counted("serving_rows")[0] == 4


def test_an_attribute_that_is_a_tensor_keeps_its_gradient(tmp_path):
    serve(tmp_path, marked(52))
    by = torch.tensor(1.0, requires_grad=True)
    rows(torch.ones(2, 4), torch.ones(4, 2), by).sum().backward()
    assert by.grad == 8


def test_in_place_returns_the_very_tensor_overwritten_and_tells_autograd(tmp_path):
    serve(tmp_path, world.part(add_.contract(), ADD))
    w, x = torch.ones(4, requires_grad=True), torch.ones(8)
    view = x[:4]
    product = w * view
    before = x._version
    assert add_(view, X) is view
    assert x.tolist() == [2 + WHOLE] * 4 + [1] * 4
    assert x._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    assert counted("serving_add") == (1, {})


def test_in_place_on_a_miss_is_done_once_by_the_reference(tmp_path):
    serve(tmp_path, world.part(add_.contract(), ADD))
    x = torch.ones(8)
    strided = x[::2]
    assert add_(strided, X) is strided
    assert x.tolist() == [2, 1] * 4
    assert add_(X.clone(), X).tolist() == [2 + WHOLE] * 4
    same = torch.ones(4)
    assert add_(same, same).tolist() == [2] * 4
    misses = {"tensor is not contiguous (x)": 1, "an output overlaps another tensor (x)": 1}
    assert counted("serving_add") == (1, misses)


def test_explaining_an_in_place_call_neither_runs_it_nor_overlooks_its_layout(tmp_path):
    classes = [world.any_shape(("n",), alignment=64)]
    serve(tmp_path, world.part(add_.contract(), ADD, classes=classes))
    x = torch.ones(16)
    reasons = [add_.explain(view, X).misses[0].reason for view in (x[::4], x[1:5])]
    assert reasons == [MissReason.STRIDES, MissReason.ALIGNMENT]
    assert add_.explain(X, X).misses[0].reason is MissReason.ALIAS
    assert add_.explain(x[:4], X).kernel == "body"
    assert (x.tolist(), x._version, X.tolist()) == ([1] * 16, 0, [1] * 4)
    assert counted("serving_add") == (0, {})


# The contract that was evaluated

EVALUATED = {
    "ops.py": """
        import tilegate
        from .parts import double
        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"},
                           name="serving_edited", tolerance=tilegate.Tolerance(factor=4.0))
        def edited(x):
            return double(x)
    """,
    "parts.py": "FACTOR = 2\ndef double(x):\n    return FACTOR * x\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("ops.py", "return double(x)", "return double(x) + 0"),
        ("ops.py", "factor=4.0", "factor=400.0"),
        ("parts.py", "FACTOR * x", "x * FACTOR"),
        ("parts.py", "FACTOR = 2", "FACTOR = 2.0"),
    ],
    ids=["reference", "tolerance", "function it calls", "constant it reads"],
)
def test_what_was_edited_since_evaluation_goes_to_the_reference(tmp_path, file, old, new):
    with imported(tmp_path / "before", EVALUATED, "ops", name="edited_ops") as module:
        serve(tmp_path / "release", scaled(module.edited))
        assert module.edited(X)[0] == 3
    changed = EVALUATED | {file: EVALUATED[file].replace(old, new)}
    with imported(tmp_path / "after", changed, "ops", name="edited_ops") as module:
        assert module.edited(X)[0] == 2
        assert counted("serving_edited") == (0, {"contract or reference changed since evaluation": 1})
        tilegate.use(tmp_path / "release", allow_unsigned=True)
        assert module.edited.explain(X).misses == (Miss(reason=MissReason.CONTRACT_CHANGED),)
        line = ProfileLine(operator="serving_edited", workload=Workload(axes={"n": 4}))
        assert tilegate.preflight([line])[0].miss == Miss(reason=MissReason.CONTRACT_CHANGED)
    with imported(tmp_path / "again", EVALUATED, "ops", name="edited_ops") as module:
        assert module.edited(X)[0] == 3


# A process that may do nothing else

FORBIDDEN = """
import os, sys
import torch

if os.fork() == 0:
    exchange = "native"
else:
    if os.wait()[1]:
        sys.exit(1)
    exchange = "absent"
    for name in ("__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"):
        if hasattr(torch.Tensor, name):
            delattr(torch.Tensor, name)
    sys.modules["torch_c_dlpack_ext"] = None

tried = []
PROCESSES = ("subprocess.", "os.posix_spawn", "os.exec", "os.fork", "os.spawn", "os.system", "pty.", "socket.")
FILES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "tempfile.")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def watch(event, arguments):
    written = event == "open" and (arguments[2] & WRITING or set(arguments[1] or "") & set("wax+"))
    if written and isinstance(arguments[0], int):  # the memory that an artifact is opened from is no file
        written = not os.readlink(f"/proc/self/fd/{arguments[0]}").startswith("/memfd:")
    if written or event.startswith(PROCESSES + FILES):
        tried.append((event, str(arguments[:2])))
        raise PermissionError(event)

before = set(sys.modules)
sys.addaudithook(watch)
import ops, tilegate
tilegate.use(sys.argv[1], allow_unsigned=True)
hit, miss = torch.ones(4), torch.ones(8)[::2]
for _ in range(100):
    assert ops.twice(hit).tolist() == [3] * 4
    assert ops.twice(miss).tolist() == [2] * 4
    with torch.no_grad():
        assert ops.twice(torch.nn.Parameter(hit)).tolist() == [3] * 4
assert ops.twice.explain(hit).kernel == "body"
counts = tilegate.stats()["serving_closed"]
assert sum(counts.hits.values()) == 200 and sum(counts.misses.values()) == 100, counts
assert tried == [], tried
assert os.environ.get("TVM_FFI_DISABLE_TORCH_C_DLPACK") is None
for module in set(sys.modules) - before:
    root = module.partition(".")[0]
    assert root not in {"tilelang", "tvm", "triton", "setuptools", "click", "rich", "sqlite3"}, module
    assert not module.startswith(("torch._inductor", "torch.utils.cpp_extension", "tilegate.build")), module
print(exchange)
"""


def test_serving_starts_nothing_reaches_nowhere_and_writes_nothing(tmp_path):
    """Even where torch lacks the DLPack exchange API, for which importing tvm_ffi would start a C++ build."""
    text = """
        import tilegate
        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="serving_closed")
        def twice(x):
            return 2 * x
    """
    folder = tmp_path / "program"
    with imported(tmp_path, {"ops.py": text}, "ops", name="program") as module:
        world.write_parts(tmp_path / "release", scaled(module.twice))
    (folder / "main.py").write_text(FORBIDDEN)
    environment = {k: v for k, v in os.environ.items() if k != NO_BUILD}
    done = subprocess.run(
        [sys.executable, "-B", folder / "main.py", tmp_path / "release"],
        env=environment | {"TVM_FFI_CACHE_DIR": str(tmp_path / "no-cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "native\nabsent\n", "")
