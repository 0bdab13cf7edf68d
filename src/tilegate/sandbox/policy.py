"""Limits per kind of job, with the reason for each number.

- Memory: importing and running torch on a CPU and a TileLang build passed under 2 GiB of address space; twice
  that leaves room for a plan's larger tensors. It is per process, not for all processes of a job.
- Files: a build writes C files, objects and one small library. 64 MiB is far above any of them.
- Printing: 64 KiB holds the longest traceback that was useful so far.
- Silence equals the wall time where a job has nothing to say before its result. An evaluation sends a frame
  before and after every entry, so silence there is a kernel that hangs.
- Importing torch takes seconds, on a cold disk tens of them: an evaluation has a minute for its first frame.
- An evaluation returns the tensors that a kernel wrote; a build returns IR, sources, or one library.
"""

from __future__ import annotations

from tilegate.records.isolation import Limits

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def _build(wall_s: float) -> Limits:
    return Limits(
        wall_s=wall_s,
        silence_s=wall_s,
        memory_bytes=4 * GIB,
        file_bytes=64 * MIB,
        frame_bytes=64 * MIB,
        total_bytes=128 * MIB,
        frames=256,
        output_bytes=64 * KIB,
    )


def _tensors(silence_s: float) -> Limits:
    return Limits(
        wall_s=3600.0,
        silence_s=silence_s,
        start_s=60.0,
        memory_bytes=4 * GIB,
        file_bytes=64 * MIB,
        frame_bytes=256 * MIB,
        total_bytes=2 * GIB,
        frames=100_000,
        output_bytes=64 * KIB,
    )


DESCRIBE = _build(wall_s=60.0)
"""Imports an operator's module: seconds, most of them torch."""
ELABORATE = _build(wall_s=120.0)
"""Runs a factory. A TileLang import and a lowering take seconds; author code may unroll."""
COMPILE = _build(wall_s=300.0)
"""Lowers and compiles. The slowest kernel so far took half a minute on a loaded machine."""
EVALUATE = _tensors(silence_s=20.0)
"""Runs an artifact. Entries take milliseconds to seconds: 20 s without a frame is a hang."""
REFERENCE = _tensors(silence_s=120.0)
"""Runs the reference in float64, which may be slow and is trusted more than an artifact."""
