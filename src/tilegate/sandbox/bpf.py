"""An assembler for seccomp's classic BPF. Pure: what is written here becomes bytes, and nothing else happens.

A program is written from its end to its start. BPF jumps only forward, so whatever a jump leads to is already
in place, and its distance is known when the jump is written.
"""

from __future__ import annotations

import struct
from typing import NewType

Label = NewType("Label", int)
"""A place in a program: how many instructions there are from it to the end."""

NUMBER, ARCHITECTURE = 0, 4
"""Offsets in `struct seccomp_data`, which a filter sees in place of a packet."""
WORD = 0xFFFF_FFFF
LONGEST = 4096
"""Instructions that the kernel takes."""

_LOAD, _MASK, _RETURN, _JUMP = 0x20, 0x54, 0x06, 0x05
_EQUAL, _AT_LEAST = 0x15, 0x35
_SHORT = 254
"""A conditional jump spans 255 instructions; one of them may be the long jump of its other branch."""


def low(index: int) -> int:
    """Offset of the lower half of a call's argument, on a little-endian machine."""
    return 16 + 8 * index


def high(index: int) -> int:
    return low(index) + 4


class Assembler:
    """Each method puts instructions in front of all that were there, and returns where they begin."""

    def __init__(self) -> None:
        self._reversed: list[tuple[int, int, int, int]] = []

    def answer(self, value: int) -> Label:
        """End the filter with a SECCOMP_RET_* value."""
        return self._put(_RETURN, value)

    def load(self, offset: int, then: Label) -> Label:
        """Take one 32-bit word of the call into the accumulator."""
        self._lead_to(then)
        return self._put(_LOAD, offset)

    def mask(self, bits: int, then: Label) -> Label:
        """Keep only these bits of the accumulator."""
        self._lead_to(then)
        return self._put(_MASK, bits)

    def equal(self, value: int, yes: Label, no: Label) -> Label:
        return self._branch(_EQUAL, value, yes, no)

    def at_least(self, value: int, yes: Label, no: Label) -> Label:
        """Unsigned."""
        return self._branch(_AT_LEAST, value, yes, no)

    def program(self, start: Label) -> bytes:
        """The instructions from `start` on, as an array of `struct sock_filter`.

        Raises:
            ValueError: the kernel would not take so many.
        """
        self._lead_to(start)
        if len(self._reversed) > LONGEST:
            raise ValueError(f"{len(self._reversed)} instructions, where the kernel takes {LONGEST}")
        return b"".join(struct.pack("<HBBI", *one) for one in reversed(self._reversed))

    def _branch(self, code: int, value: int, yes: Label, no: Label) -> Label:
        yes, no = self._near(yes), self._near(no)
        return self._put(code, value, self._distance(yes), self._distance(no))

    def _near(self, label: Label) -> Label:
        return label if self._distance(label) < _SHORT else self._put(_JUMP, self._distance(label))

    def _lead_to(self, label: Label) -> None:
        if self._distance(label):
            self._put(_JUMP, self._distance(label))

    def _distance(self, label: Label) -> int:
        """Instructions between the next one to be written and the label."""
        return len(self._reversed) - label

    def _put(self, code: int, value: int, yes: int = 0, no: int = 0) -> Label:
        self._reversed.append((code, yes, no, value))
        return Label(len(self._reversed))
