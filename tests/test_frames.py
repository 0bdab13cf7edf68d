"""The stream of frames that leaves a job: whatever arrives, it is read as what it is or refused by name."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate.errors import RecordError
from tilegate.sandbox.frames import HEADER_BYTES, MAGIC, FrameReader, preamble


def frame(name, blob=b""):
    return preamble(name, len(blob)) + blob


def raw(header, blob=b""):
    return MAGIC + len(header).to_bytes(2, "big") + header + blob


def reader(**changed):
    return FrameReader(**{"frame_bytes": 100, "total_bytes": 150, "frames": 3, **changed})


WHOLE = frame("begin") + frame("result", b"xyz") + frame("begin") + frame("end")


def test_a_whole_stream_gives_its_frames_in_order():
    taker = reader()
    assert taker.feed(WHOLE) == [("begin", b""), ("result", b"xyz"), ("begin", b"")]
    assert taker.ended
    assert taker.close() is None


@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_where_a_stream_is_cut_changes_nothing(cuts):
    """Fed in any pieces, a stream gives the frames that it gives in one."""
    taker, found, edges = reader(), [], sorted([0, *cuts, len(WHOLE)])
    for start, stop in itertools.pairwise(edges):
        found += taker.feed(WHOLE[start:stop])
    assert found == [("begin", b""), ("result", b"xyz"), ("begin", b"")]
    assert taker.ended
    assert taker.fault is None


@given(
    kept=st.integers(0, len(WHOLE)),
    noise=st.binary(max_size=8) | st.sampled_from([frame("a"), frame("end")]),
    resumed=st.integers(0, len(WHOLE)),
)
def test_what_is_accepted_has_one_spelling(kept, noise, resumed):
    """A damaged stream is at fault, or is byte for byte what its own frames are written as. None raises."""
    taker, stream = reader(frames=99), WHOLE[:kept] + noise + WHOLE[resumed:]
    found = taker.feed(stream)
    if taker.close() is None:
        assert b"".join(frame(*each) for each in found) + frame("end") == stream


HOSTILE = {
    "wrong_magic": (b"TGF2\0\0{}", "magic"),
    "pickle": (b"\x80\x04\x95\x10\0\0\0\0\0\0\0", "magic"),
    "oversized_header": (MAGIC + (HEADER_BYTES + 1).to_bytes(2, "big"), "header of more than 256 bytes"),
    "empty_header": (raw(b""), "header"),
    "header_is_not_json": (raw(b"{name: result}"), "header"),
    "header_is_not_utf8": (raw(b'{"name":"\xff","size":0}'), "header"),
    "header_is_a_list": (raw(b'["result",0]'), "header"),
    "extra_key": (raw(b'{"name":"result","path":"/etc","size":0}'), "header"),
    "missing_size": (raw(b'{"name":"result"}'), "header"),
    "duplicate_key": (raw(b'{"name":"result","size":0,"size":5}'), "header"),
    "another_spelling": (raw(b'{"name": "result","size":0}'), "header"),
    "path_as_name": (raw(b'{"name":"../../etc/passwd","size":0}'), "header"),
    "absolute_path_as_name": (raw(b'{"name":"/etc/passwd","size":0}'), "header"),
    "hidden_file_as_name": (raw(b'{"name":".bashrc","size":0}'), "header"),
    "newline_in_name": (raw(b'{"name":"result\\n","size":0}'), "header"),
    "empty_name": (raw(b'{"name":"","size":0}'), "header"),
    "long_name": (raw(b'{"name":"' + b"a" * 65 + b'","size":0}'), "header"),
    "negative_size": (raw(b'{"name":"result","size":-1}'), "header"),
    "size_is_true": (raw(b'{"name":"result","size":true}'), "header"),
    "size_is_a_fraction": (raw(b'{"name":"result","size":1.0}'), "header"),
    "end_with_a_blob": (frame("end", b"x"), "end frame carries a blob"),
    "data_after_the_end": (frame("end") + b"\0", "data after the end"),
    "frame_after_the_end": (frame("end") + frame("result"), "data after the end"),
    "second_end": (frame("end") * 2, "data after the end"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_stream_is_refused_by_name(name):
    stream, rule = HOSTILE[name]
    taker = reader()
    assert taker.feed(frame("before", b"1") + stream) == [("before", b"1")]
    assert taker.fault is not None
    taker = reader()
    taker.feed(stream)
    assert rule in taker.fault.why
    assert not taker.fault.too_large
    assert taker.feed(frame("after")) == []


@pytest.mark.parametrize(
    ("stream", "rule"),
    [
        (frame("a", b"x" * 101), "a frame of 101 bytes"),
        (preamble("a", 10**30), "a frame of 10000"),
        (frame("a", b"x" * 90) * 2, "all frames together"),
        (frame("a") * 4, "more frames"),
    ],
)
def test_a_stream_beyond_its_bounds_is_too_large(stream, rule):
    taker = reader()
    taker.feed(stream)
    assert rule in taker.fault.why
    assert taker.fault.too_large


def test_bounds_themselves_are_allowed():
    taker = reader()
    assert len(taker.feed(frame("a", b"x" * 100) + frame("a", b"x" * 50) + frame("a") + frame("end"))) == 3
    assert taker.close() is None


@pytest.mark.parametrize(
    ("stream", "rule"),
    [
        (b"", "end frame is missing"),
        (frame("a", b"xyz"), "end frame is missing"),
        (frame("a", b"xyz")[:-1], "inside a frame"),
        (preamble("a", 3), "inside a frame"),
        (preamble("a", 3)[:9], "inside a frame"),
    ],
)
def test_a_truncated_stream_is_no_whole_one(stream, rule):
    taker = reader()
    taker.feed(stream)
    assert taker.fault is None
    assert rule in taker.close().why


@pytest.mark.parametrize("name", ["", "../up", "Upper", "a b", "a\n", "x" * 65])
def test_a_name_that_no_reader_takes_is_never_sent(name):
    with pytest.raises(RecordError):
        preamble(name, 0)
