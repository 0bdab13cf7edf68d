"""Frames: the only thing that crosses the wall of a job. Pure: bytes in, frames out.

    stream = frame* end
    frame  = magic, length of the header (2 bytes, big endian), header, blob
    header = canonical JSON: {"name":"...","size":...}

`end` has no blob, and nothing follows it. Names may repeat (progress does). A reader trusts nothing and stops
for good at the first rule that is broken. Nothing here is ever pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from tilegate.errors import RecordError
from tilegate.records.canonical import Record, decode, encode

MAGIC = b"TGF1"
PREFIX_BYTES = len(MAGIC) + 2
HEADER_BYTES = 256
"""A name has at most 64 characters; the rest is the JSON around it."""
END = "end"


class Header(Record, frozen=True):
    name: Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9._-]{0,63}\Z")]
    size: Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class Fault:
    """The rule that a stream broke."""

    why: str
    too_large: bool = False


def preamble(name: str, size: int) -> bytes:
    """What stands before a blob of `size` bytes.

    Raises:
        RecordError: the name is none that a frame may have.
    """
    header = encode(Header(name=name, size=size))
    return MAGIC + len(header).to_bytes(2, "big") + header


class FrameReader:
    """Takes a stream in pieces of any size.

    Attributes:
        ended: whether the end frame has arrived.
        fault: the rule that was broken, or None. From then on everything is ignored.
    """

    def __init__(self, *, frame_bytes: int, total_bytes: int, frames: int) -> None:
        self.ended = False
        self.fault: Fault | None = None
        self._frame_bytes = frame_bytes
        self._bytes_left = total_bytes
        self._frames_left = frames
        self._header: Header | None = None
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The frames that these bytes complete, up to the first fault."""
        done: list[tuple[str, bytes]] = []
        view = memoryview(data)
        while self.fault is None:
            if self.ended:
                if view:
                    self.fault = Fault("data after the end frame")
                break
            take = self._wanted() - len(self._buffer)
            self._buffer += view[:take]
            if take > len(view):
                break
            view = view[take:]
            if (frame := self._step()) is not None:
                done.append(frame)
        return done

    def close(self) -> Fault | None:
        """The fault of a stream that has no more bytes."""
        if self.fault is None and not self.ended:
            inside = self._header is not None or bool(self._buffer)
            self.fault = Fault("the stream ends inside a frame" if inside else "the end frame is missing")
        return self.fault

    def _wanted(self) -> int:
        """How many bytes the buffer must hold before the next step can be taken."""
        if self._header is not None:
            return self._header.size
        if len(self._buffer) < PREFIX_BYTES:
            return PREFIX_BYTES
        return PREFIX_BYTES + int.from_bytes(self._buffer[len(MAGIC) : PREFIX_BYTES], "big")

    def _step(self) -> tuple[str, bytes] | None:
        if self._header is not None:
            return self._complete(self._header)
        if len(self._buffer) == PREFIX_BYTES:
            self.fault = self._judge_prefix()
        if self.fault is None and len(self._buffer) == self._wanted():
            self._open()
        return None

    def _judge_prefix(self) -> Fault | None:
        if not self._buffer.startswith(MAGIC):
            return Fault("no frame begins here: the magic is wrong")
        if self._wanted() > PREFIX_BYTES + HEADER_BYTES:
            return Fault(f"a header of more than {HEADER_BYTES} bytes")
        return None

    def _open(self) -> None:
        try:
            header = decode(Header, bytes(self._buffer[PREFIX_BYTES:]), where="a frame")
        except RecordError as error:
            self.fault = Fault(f"the header is not one: {error.why}")
            return
        self.fault = self._judge_header(header)
        self._header = header
        self._buffer = bytearray()

    def _judge_header(self, header: Header) -> Fault | None:
        if header.name == END:
            return Fault("the end frame carries a blob") if header.size else None
        if header.size > self._frame_bytes:
            return Fault(
                f"a frame of {header.size} bytes, where {self._frame_bytes} are allowed", too_large=True
            )
        if header.size > self._bytes_left:
            return Fault("all frames together exceed what is allowed", too_large=True)
        if not self._frames_left:
            return Fault("more frames than are allowed", too_large=True)
        self._bytes_left -= header.size
        self._frames_left -= 1
        return None

    def _complete(self, header: Header) -> tuple[str, bytes] | None:
        blob = bytes(self._buffer)
        self._header, self._buffer = None, bytearray()
        if header.name == END:
            self.ended = True
            return None
        return header.name, blob
