"""The system calls that a job may make, as a filter in the kernel. Linux, through ctypes.

Four answers: a call runs (`ALLOWED`), runs with some arguments (`FILTERED`), is refused with an errno of its
own (`REFUSED`), or, like every other that the tables know, with EPERM. A number that they do not know gets
ENOSYS: to a newer libc the kernel looks older than it is, and libcs have ways around that, but none around
EPERM. A call by another architecture's rules kills the process: its numbers mean other calls.

What stays open by intent: memory of one's own, executable too (compilers are run and libraries opened);
processes and signals (namespaces and Landlock bound them); files (Landlock bounds what can be opened); messages
on a connected socket that was inherited. A filter sees words, no memory: what hides arguments behind a pointer
cannot be filtered, and is refused where that matters.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby

from tilegate.errors import SandboxError
from tilegate.sandbox import bpf
from tilegate.sandbox.permitted import ALLOWED, FILTERED, REFUSED, Check, Rule
from tilegate.sandbox.syscalls import NUMBERS

KILL, ALLOW = 0x80000000, 0x7FFF0000
"""Answers of a filter: the process ends; the call runs."""

Rules = Sequence[tuple[str, Rule]]
"""Names of calls, each with its rule."""

_ERRNO = 0x00050000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
"""From here on x86-64 takes numbers of its 32-bit variant, which no list would match."""
_PR_SET_NO_NEW_PRIVS, _SET_MODE_FILTER, _GET_ACTION_AVAIL, _TSYNC = 38, 1, 2, 1

_libc = ctypes.CDLL(None, use_errno=True)


def decide(machine: str, number: int, arguments: Sequence[int], more: Rules = ()) -> int:
    """What becomes of a call by the machine's own rules: `KILL`, `ALLOW`, or 0x50000 + errno.

    Args:
        machine: `x86_64` or `aarch64`.
        number: of the call, unsigned 32 bits.
        arguments: all six, unsigned 64 bits each.
        more: rules for some kinds of work, in place of those for all.

    Raises:
        SandboxError: there is no filter for this machine.
    """
    spans = _spans(machine, tuple(more))
    firsts = [first for first, _ in spans]
    reaction = spans[bisect_right(firsts, number) - 1][1]
    if isinstance(reaction, int):
        return reaction
    met = any(all(_holds(check, arguments) for check in checks) for checks in reaction.any_of)
    return ALLOW if met else _ERRNO | reaction.otherwise


def program(machine: str, more: Rules = ()) -> bytes:
    """The filter for a machine, as an array of `struct sock_filter`. The same bytes each time.

    Raises:
        SandboxError: there is no filter for this machine.
    """
    spans = _spans(machine, tuple(more))
    asm = bpf.Assembler()
    answers = {r: asm.answer(r) for r in sorted({r for _, r in spans if isinstance(r, int)} | {ALLOW, KILL})}
    leaves = [
        (first, answers[reaction] if isinstance(reaction, int) else _rule(asm, reaction, answers[ALLOW]))
        for first, reaction in spans
    ]
    start = asm.load(bpf.NUMBER, _search(asm, leaves))
    start = asm.equal(_ARCHITECTURES[machine], start, answers[KILL])
    return asm.program(asm.load(bpf.ARCHITECTURE, start))


def available() -> bool:
    """Whether this kernel takes the filter. Nothing is installed."""
    machine = _machine()
    if machine not in NUMBERS:
        return False
    number = NUMBERS[machine]["seccomp"]
    actions = [ctypes.c_uint32(action) for action in (KILL, _ERRNO, ALLOW)]
    return all(not _libc.syscall(number, _GET_ACTION_AVAIL, 0, ctypes.byref(action)) for action in actions)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(more: Rules = ()) -> None:
    """Put every thread of this process, and all that it starts, behind the filter. It cannot be taken off.

    Raises:
        OSError: there is no filter for this machine, or the kernel refuses.
    """
    machine = _machine()
    if machine not in NUMBERS:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {machine}")
    code = program(machine, more)
    wanted = _Program(len(code) // 8, code)
    unused = ctypes.c_ulong(0)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), unused, unused, unused):
        raise OSError(ctypes.get_errno(), "prctl: no new privileges")
    failed = _libc.syscall(NUMBERS[machine]["seccomp"], _SET_MODE_FILTER, _TSYNC, ctypes.byref(wanted))
    if failed > 0:  # the number of a thread
        raise OSError(errno.EBUSY, f"seccomp: thread {failed} has a filter of its own")
    if failed:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _machine() -> str:
    """Whose numbers this process calls by."""
    machine = os.uname().machine
    return machine if sys.maxsize >> 32 else f"{machine}, 32-bit"


def _holds(check: Check, arguments: Sequence[int]) -> bool:
    return arguments[check.index] & check.mask in check.values


@cache
def _spans(machine: str, more: Rules) -> tuple[tuple[int, int | Rule], ...]:
    """What becomes of all numbers: from each first number up to the next one, the answer or the rule."""
    if machine not in NUMBERS:
        raise SandboxError(
            "there is no system call filter for this machine",
            where=machine,
            why=f"calls are numbered by machine, and only {' and '.join(NUMBERS)} are known",
            next_step="build on one of them",
        )
    names = {number: name for name, number in NUMBERS[machine].items()}
    reactions = [_reaction(names.get(number), dict(more)) for number in range(max(names) + 2)]
    spans: list[tuple[int, int | Rule]] = []
    for reaction, numbers in groupby(range(len(reactions)), key=reactions.__getitem__):
        spans.append((next(numbers), reaction))
    return (*spans, (_X32, KILL))


def _reaction(name: str | None, more: Mapping[str, Rule]) -> int | Rule:
    if name is None:
        return _ERRNO | errno.ENOSYS
    if name in ALLOWED:
        return ALLOW
    if name in more:
        return more[name]
    return FILTERED.get(name) or _ERRNO | REFUSED.get(name, errno.EPERM)


def _search(asm: bpf.Assembler, leaves: Sequence[tuple[int, bpf.Label]]) -> bpf.Label:
    """By halves: the commonest calls must not wait behind hundreds of comparisons."""
    middle = len(leaves) // 2
    if not middle:
        return leaves[0][1]
    above = _search(asm, leaves[middle:])
    below = _search(asm, leaves[:middle])
    return asm.at_least(leaves[middle][0], above, below)


def _rule(asm: bpf.Assembler, rule: Rule, allow: bpf.Label) -> bpf.Label:
    row = asm.answer(_ERRNO | rule.otherwise)
    for checks in reversed(rule.any_of):
        met, missed = allow, row
        for check in reversed(checks):
            met = _check(asm, check, met, missed)
        row = met
    return row


def _check(asm: bpf.Assembler, check: Check, yes: bpf.Label, no: bpf.Label) -> bpf.Label:
    """A filter has words of 32 bits. The upper half comes first, where the mask has any of it."""
    lowers = {
        upper: _word(
            asm,
            bpf.low(check.index),
            check.mask & bpf.WORD,
            {value & bpf.WORD: yes for value in sorted(check.values) if value >> 32 == upper},
            no,
        )
        for upper in sorted({value >> 32 for value in check.values})
    }
    if not check.mask >> 32:
        return lowers[0]
    return _word(asm, bpf.high(check.index), check.mask >> 32, lowers, no)


def _word(
    asm: bpf.Assembler, offset: int, mask: int, cases: Mapping[int, bpf.Label], no: bpf.Label
) -> bpf.Label:
    """Lead each value that a word has under its mask to its own place."""
    for value, label in cases.items():
        no = asm.equal(value, label, no)
    if mask != bpf.WORD:
        no = asm.mask(mask, no)
    return asm.load(offset, no)
