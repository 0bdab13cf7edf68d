"""The laws of the records, for every record there is: strategies are derived from the types themselves."""

from __future__ import annotations

import importlib
import pickle
import pkgutil

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import inspect

import tilegate.records
from tilegate.errors import RecordError, SchemaError
from tilegate.records.canonical import (
    Document,
    Record,
    blob_of,
    decode,
    digest_of,
    encode,
    peek_schema,
    schema_of,
)
from tilegate.records.closure import Binding, Specialization
from tilegate.records.contract import Attribute, TensorSpec, Tolerance, ValueRange
from tilegate.records.miss import Miss
from tilegate.records.plan import Workload
from tilegate.records.shape import INT32_MAX, Range, ShapeClass
from tilegate.records.target import X86_64_LEVELS, DeviceClass, Target, cpu_level, runs_on

for _found in pkgutil.iter_modules(tilegate.records.__path__):
    importlib.import_module(f"tilegate.records.{_found.name}")


def below(kind):
    for sub in kind.__subclasses__():
        yield sub
        yield from below(sub)


KINDS = sorted(
    {k for k in below(Record) if k.__module__.startswith("tilegate.records.") and k is not Document},
    key=lambda k: k.__name__,
)
DOCUMENTS = [kind for kind in KINDS if issubclass(kind, Document)]
UNKNOWN = '"zzz":0'
SIGNED = st.integers(-(2**63), 2**63 - 1)


def whole(info):
    return st.integers(-(2**63) if info.ge is None else info.ge, 2**63 - 1 if info.le is None else info.le)


MAKE = {
    inspect.StructType: lambda i: st.builds(i.cls, **{f.name: values(f.type) for f in i.fields}),
    inspect.StrType: lambda i: st.from_regex(i.pattern) if i.pattern else st.text(max_size=8),
    inspect.IntType: whole,
    inspect.FloatType: lambda _: st.floats(allow_nan=False, allow_infinity=False),
    inspect.BoolType: lambda _: st.booleans(),
    inspect.NoneType: lambda _: st.none(),
    inspect.EnumType: lambda i: st.sampled_from(i.cls),
    inspect.DictType: lambda i: st.dictionaries(values(i.key_type), values(i.value_type), max_size=2),
    inspect.TupleType: lambda i: st.tuples(*map(values, i.item_types)),
    inspect.VarTupleType: lambda i: st.lists(values(i.item_type), max_size=2).map(tuple),
    inspect.UnionType: lambda i: st.one_of(*map(values, i.types)),
}


def values(info):
    """Values of one type, as msgspec understands it."""
    return MAKE[type(info)](info)


RECORDS = {kind: values(inspect.type_info(kind)) for kind in KINDS}
of_every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
few = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))


def read(kind, data):
    return decode(kind, data, where="a test")


def refused(kind, data):
    with pytest.raises(RecordError):
        read(kind, data)


@of_every_kind
@few
@given(data=st.data())
def test_what_is_written_is_read_again(kind, data):
    """decode(type(r), encode(r)) == r, and its bytes are the same again."""
    record = data.draw(RECORDS[kind])
    written = encode(record)
    assert read(kind, written) == record
    assert encode(read(kind, written)) == written


@of_every_kind
@few
@given(data=st.data())
def test_two_records_that_differ_have_other_bytes(kind, data):
    """r != s implies encode(r) != encode(s)."""
    first, second = data.draw(RECORDS[kind]), data.draw(RECORDS[kind])
    name = data.draw(st.sampled_from(kind.__struct_fields__ or (None,)))
    if name is not None:  # as near as two can be: one field differs
        second = msgspec.structs.replace(first, **{name: getattr(second, name)})
    assert (first != second) <= (encode(first) != encode(second))


@of_every_kind
@few
@given(data=st.data())
def test_a_changed_byte_is_another_record_or_none(kind, data):
    """No two byte strings decode to the same record: decode accepts only what encode writes."""
    written = encode(data.draw(RECORDS[kind]))
    at = data.draw(st.integers(0, len(written) - 1))
    changed = written[:at] + bytes([data.draw(st.integers(0, 255))]) + written[at + 1 :]
    assume(changed != written)
    try:
        found = read(kind, changed)
    except RecordError:
        return
    assert encode(found) == changed


@of_every_kind
@few
@given(data=st.data())
def test_no_second_spelling_is_read(kind, data):
    """White space, another order, a duplicate key, an unknown key, trailing bytes: none is canonical."""
    written = encode(data.draw(RECORDS[kind])).decode()
    for space in (" ", "\n", "\t"):
        refused(kind, (written + space).encode())
        refused(kind, written.replace("{", "{" + space, 1).encode())
    fields = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
    pairs = [f'"{key}":{bytes(value).decode()}' for key, value in fields.items()]
    assert written == f"{{{','.join(pairs)}}}"
    refused(kind, f"{{{','.join([*pairs, UNKNOWN])}}}".encode())
    refused(kind, written.encode() * 2)
    if pairs:
        refused(kind, f"{{{pairs[0]},{written[1:]}".encode())
    if len(pairs) > 1:
        refused(kind, f"{{{','.join(reversed(pairs))}}}".encode())


@pytest.mark.parametrize("text", ["1.0", "1e0", "01", "+1", "0x1", '"1"', "true", "1e400", "NaN", "null"])
def test_another_spelling_of_a_number_is_refused(text):
    good = b'{"start":1,"step":1,"stop":7}'
    assert read(Range, good) == Range(start=1, stop=7)
    refused(Range, good.replace(b'"start":1', f'"start":{text}'.encode()))


@pytest.mark.parametrize("text", ["1", "1.50", "15e-1", "NaN", "Infinity", "-Infinity", "1e999", '"1.5"'])
def test_another_spelling_of_a_float_is_refused(text):
    good = b'{"high":2.5,"low":1.5}'
    assert read(ValueRange, good) == ValueRange(low=1.5, high=2.5)
    refused(ValueRange, good.replace(b"1.5", text.encode()))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"start":1,"stop":2', b"[" * 100_000])
def test_bytes_that_are_no_record_are_an_error_with_a_place(data):
    with pytest.raises(RecordError) as caught:
        read(Range, data)
    assert caught.value.where == "a test"


@of_every_kind
def test_a_field_that_is_missing_is_refused(kind):
    needed = [f for f in inspect.type_info(kind).fields if f.required]
    if needed:
        refused(kind, b"{}")


@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda k: k.__name__)
@few
@given(data=st.data())
def test_another_schema_version_is_told_apart_from_damage(kind, data):
    written = encode(data.draw(RECORDS[kind]))
    schema = schema_of(kind)
    assert schema.startswith("tilegate.")
    family, _, version = schema.rpartition("/")
    another = f"{family}/{int(version) + 1}"
    assert peek_schema(written) == schema
    newer = written.replace(f'"schema":"{schema}"'.encode(), f'"schema":"{another}"'.encode())
    with pytest.raises(SchemaError) as caught:
        read(kind, newer)
    assert another in caught.value.what
    assert caught.value.next_step


def test_no_two_documents_share_a_schema():
    assert len({schema_of(kind) for kind in DOCUMENTS}) == len(DOCUMENTS)


def test_a_document_is_not_read_as_another():
    for kind in DOCUMENTS:
        other = DOCUMENTS[0] if kind is not DOCUMENTS[0] else DOCUMENTS[1]
        with pytest.raises(SchemaError):
            read(kind, f'{{"schema":"{schema_of(other)}"}}'.encode())


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "record",
    [
        Tolerance(factor=NAN),
        Tolerance(factor=INF),
        ValueRange(low=-INF, high=0.0),
        Attribute(name="eps", kind="float", default=NAN),
        Workload(axes={}, attributes={"eps": INF}),
        Binding(operator="m:f", factory="m:k", kernel="k", specialize={"eps": (1.0, NAN)}),
    ],
    ids=repr,
)
def test_a_number_that_json_cannot_carry_is_refused_when_written(record):
    with pytest.raises(RecordError):
        encode(record)


@pytest.mark.parametrize(
    "record",
    [
        Range(start="1", stop=2),
        Range(start=1.0, stop=2),
        Range(start=True, stop=2),
        Range(start=None, stop=2),
        TensorSpec(name="x", dtype="float32", dims=["n"]),
        TensorSpec(name="x", dtype="float32", dims=({"n"},)),
        TensorSpec(name="no name", dtype="float32", dims=()),
        TensorSpec(name="x\n", dtype="float32", dims=()),
        TensorSpec(name="x", dtype="float32", dims=("\udcff",)),
        Specialization(axes={"n": "4"}),
        Specialization(axes=[("n", 4)]),
        Attribute(name="eps", kind="complex"),
        Attribute(name="eps", kind="str", default=b"bytes"),
        Miss(reason="no release attached"),
        Miss(reason=3),
        msgspec.structs.replace(blob_of(b""), digest="sha256:0"),
        msgspec.structs.replace(blob_of(b""), digest=digest_of(b"").upper()),
        msgspec.structs.replace(blob_of(b""), digest=digest_of(b"") + "\n"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_field_of_another_type_is_refused_when_written(record):
    with pytest.raises(RecordError):
        encode(record)


@of_every_kind
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_record_is_frozen_and_never_pickled(kind, data):
    record = data.draw(RECORDS[kind])
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(record)
    for name in kind.__struct_fields__:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(record, name, None)


# Shapes

EXTENTS = st.integers(0, INT32_MAX)
RANGES = st.builds(Range, start=EXTENTS, stop=EXTENTS, step=st.integers(1, 512))


@given(span=RANGES, near=st.integers(-600, 600), end=st.sampled_from(["start", "stop"]))
def test_a_range_holds_what_its_explanation_says(span, near, end):
    """n in range == (start <= n <= stop and n % step == 0) == the explanation, evaluated."""
    n = getattr(span, end) + near
    expected = span.start <= n <= span.stop and n % span.step == 0
    assert (n in span) is expected
    if span.start < span.stop:
        assert eval(span.explain("n"), {"n": n}) is expected


def test_a_range_is_told_as_a_guard_is_read_aloud():
    assert Range(start=1, stop=64).explain("n") == "1 <= n <= 64"
    assert Range(start=32, stop=512, step=32).explain("K") == "K % 32 == 0 and 32 <= K <= 512"
    assert Range(start=384, stop=384).explain("hidden") == "hidden == 384"
    axes = {"K": Range(start=8, stop=64, step=8), "A": Range(start=1, stop=1)}
    assert str(ShapeClass(axes=axes, alignment_bytes=4)) == "A == 1, K % 8 == 0 and 8 <= K <= 64"
    assert str(ShapeClass(axes={}, alignment_bytes=4)) == "every call"


@given(axes=st.dictionaries(st.sampled_from("MNK"), RANGES, max_size=3), data=st.data())
def test_a_class_admits_where_all_its_ranges_hold(axes, data):
    """admits(extents) == all(extents[axis] in range), whatever else the extents name."""
    extents = {axis: data.draw(EXTENTS | st.just(axes[axis].start)) for axis in axes} | {"other": 7}
    shape_class = ShapeClass(axes=axes, alignment_bytes=4)
    assert shape_class.admits(extents) is all(extents[axis] in axes[axis] for axis in axes)


@given(
    axes=st.dictionaries(st.sampled_from("MNK"), RANGES, max_size=3),
    order=st.permutations("MNK"),
    alignment=SIGNED,
    dense=st.booleans(),
)
def test_a_row_is_the_class_in_the_order_of_the_symbols(axes, order, alignment, dense):
    """row(symbols) holds every number of the class once, and says nothing else."""
    symbols = tuple(symbol for symbol in order if symbol in axes)
    shape_class = ShapeClass(axes=axes, alignment_bytes=alignment, max_elements=11, dense=dense)
    row = shape_class.row(symbols)
    assert row[:3] == (alignment, 11, dense)
    spans = [Range(start=a, stop=b, step=c) for a, b, c in zip(*[iter(row[3:])] * 3, strict=True)]
    assert dict(zip(symbols, spans, strict=True)) == axes


# Targets


@given(missing=st.sampled_from([flag for flags in X86_64_LEVELS.values() for flag in flags]))
def test_a_level_needs_every_flag_of_it_and_of_those_below(missing):
    flags = frozenset(flag for added in X86_64_LEVELS.values() for flag in added)
    assert cpu_level(flags) == "x86-64-v4"
    levels = [None, *X86_64_LEVELS]
    lost_at = next(i for i, added in enumerate(X86_64_LEVELS.values()) if missing in added)
    assert cpu_level(flags - {missing}) == levels[lost_at]


@pytest.mark.parametrize("arch", ["none", "armv8", ""])
def test_nothing_runs_on_an_unknown_processor(arch):
    device = DeviceClass(backend="cpu", arch=arch, model="?")
    assert not any(runs_on(Target.parse(f"cpu:{level}"), device) for level in X86_64_LEVELS)
