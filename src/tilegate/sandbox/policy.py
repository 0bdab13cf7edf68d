"""What each kind of job may see and take, with the reason for each number.

- Memory: importing and running torch on a CPU and a TileLang build passed under 2 GiB of address space; twice
  that leaves room for a plan's larger tensors. A build peaked at 0.8 GiB in all its processes together.
- Processes: a build passed with 16. Threads count, and torch starts one for each core.
- Files: a build passed with 64 open ones; an evaluation may hold many libraries. A build writes C files,
  objects and one small library: 64 MiB is far above any of them, and 512 MiB and 20,000 above all of them.
- Printing: 64 KiB holds the longest traceback that was useful so far.
- Silence equals the wall time where a job has nothing to say before its result. An evaluation sends a frame
  before and after every entry, so silence there is a kernel that hangs.
- Importing torch takes seconds, on a cold disk tens of them: an evaluation has a minute for its first frame.
- An evaluation returns the tensors that a kernel wrote; a build returns IR, sources, or one library.
"""

from __future__ import annotations

from tilegate.records.isolation import JobPolicy, Limits, Reads

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def _build(wall_s: float) -> Limits:
    return Limits(
        wall_s=wall_s,
        silence_s=wall_s,
        memory_bytes=4 * GIB,
        job_bytes=4 * GIB,
        processes=128,
        open_files=256,
        file_bytes=64 * MIB,
        scratch_bytes=512 * MIB,
        files=20_000,
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
        job_bytes=4 * GIB,
        processes=128,
        open_files=256,
        file_bytes=64 * MIB,
        scratch_bytes=64 * MIB,
        files=1_000,
        frame_bytes=256 * MIB,
        total_bytes=2 * GIB,
        frames=100_000,
        output_bytes=64 * KIB,
    )


_PYTHON = (Reads.PYTHON,)

DESCRIBE = JobPolicy(kind="describe", reads=_PYTHON, limits=_build(wall_s=60.0))
"""Imports an operator's module: seconds, most of them torch."""
ELABORATE = JobPolicy(kind="elaborate", reads=_PYTHON, limits=_build(wall_s=120.0))
"""Runs a factory. A TileLang import and a lowering take seconds; author code may unroll."""
COMPILE = JobPolicy(kind="compile", reads=(Reads.PYTHON, Reads.COMPILERS), limits=_build(wall_s=300.0))
"""Lowers and compiles. The slowest kernel so far took half a minute on a loaded machine."""
EVALUATE = JobPolicy(kind="evaluate", reads=_PYTHON, limits=_tensors(silence_s=20.0), memory_files=True)
"""Runs an artifact. Entries take milliseconds to seconds: 20 s without a frame is a hang."""
REFERENCE = JobPolicy(kind="reference", reads=_PYTHON, limits=_tensors(silence_s=120.0))
"""Runs the reference in float64, which may be slow and is trusted more than an artifact."""
DRILL = JobPolicy(
    kind="drill",
    reads=(Reads.PYTHON, Reads.COMPILERS),
    limits=Limits(
        wall_s=12.0,
        silence_s=12.0,
        memory_bytes=2 * GIB,
        job_bytes=2 * GIB,
        processes=64,
        open_files=64,
        file_bytes=16 * MIB,
        scratch_bytes=128 * MIB,
        files=1_000,
        frame_bytes=MIB,
        total_bytes=8 * MIB,
        frames=64,
        output_bytes=64 * KIB,
    ),
)
"""Tries to break out, with bombs: as small as the probes allow, so that a bomb that works hurts little."""
