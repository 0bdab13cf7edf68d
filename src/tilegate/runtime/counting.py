"""Counts that no thread waits for: `next()` of an `itertools.count` is one call into C, so one step for all."""

from __future__ import annotations

import itertools


def reading(count: itertools.count[int]) -> int:
    """How often a count that began at 0 was advanced. Its repr is the one reading that does not advance it."""
    return int(repr(count)[len("count(") : -1])
