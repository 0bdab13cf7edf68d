"""What has come from one task so far, and the clocks that run against it. Its end is somebody else's to act on."""

from __future__ import annotations

import fcntl
import math
import os
import sys
import termios
import time
from collections.abc import Callable

from tilegate.records.isolation import Isolation, Limits
from tilegate.sandbox.box import Part
from tilegate.sandbox.frames import FrameReader
from tilegate.sandbox.job import Ending, JobResult

OnFrame = Callable[[str, bytes], None]

CHUNK = 1 << 18
LEAVE_S = 5.0
"""After its end frame a task has nothing left to do but exit; then it is ended, and has finished all the same."""


class Watch:
    """Takes frames and output of one task, within its limits.

    Attributes:
        cut: why it was ended from outside, or None.
        pid, outer_pid: its process, in the innermost namespace and here; 0 until it is known.
        done: set once its end has been told.
    """

    def __init__(self, part: Part, limits: Limits, on_frame: OnFrame | None) -> None:
        self.part = part
        self.cut: Ending | None = None
        self.pid = self.outer_pid = 0
        self.done = False
        self._reader = FrameReader(
            frame_bytes=limits.frame_bytes, total_bytes=limits.total_bytes, frames=limits.frames
        )
        self._frames: list[tuple[str, bytes]] = []
        self._output = bytearray()
        self._output_total = 0
        self._limits = limits
        self._on_frame = on_frame
        self._began = time.monotonic()
        self._wall = self._began + limits.wall_s
        self._silence = math.inf  # until it runs, silence is not its own

    @property
    def deadline(self) -> float:
        """When it must have been heard of, by the monotonic clock."""
        return min(self._wall, self._silence)

    @property
    def broken(self) -> bool:
        """Whether there is a reason to end it now."""
        return self.cut is not None or self._reader.fault is not None

    def begin(self, pid: int) -> None:
        self.pid = pid
        self._silence = time.monotonic() + self._limits.silence_s + self._limits.start_s

    def look_at_clock(self, now: float) -> None:
        if not self.broken and now >= self.deadline:
            self.cut = Ending.WALL if now >= self._wall else Ending.SILENT

    def take_frames(self, size: int = CHUNK) -> bool:
        """Returns whether more may come."""
        data = _read(self.part.results, size)
        for name, blob in self._reader.feed(data or b""):
            self._frames.append((name, blob))
            if self._on_frame is not None:
                self._on_frame(name, blob)
            self._silence = time.monotonic() + self._limits.silence_s
        if self._reader.ended:
            self._silence = time.monotonic() + LEAVE_S
        return data != b""

    def take_output(self, size: int = CHUNK) -> bool:
        """Returns whether more may come."""
        data = _read(self.part.output, size)
        if data:
            self._output_total += len(data)
            self._output += data[: max(0, self._limits.output_bytes - len(self._output))]
        return data != b""

    def conclude(self, status: int, isolation: Isolation) -> JobResult:
        """The result of a task that ended with a wait status, once what is in its pipes has been taken."""
        self._drain()
        ending, code = self._ending(status)
        fault = self._reader.fault
        return JobResult(
            ending=ending,
            code=code,
            why=fault.why if fault else "",
            frames=tuple(self._frames),
            output=bytes(self._output),
            output_total=self._output_total,
            isolation=isolation,
            wall_s=time.monotonic() - self._began,
        )

    def _drain(self) -> None:
        """Take what is in the pipes now, and no more: a survivor may hold them open and write on."""
        for descriptor, take in ((self.part.results, self.take_frames), (self.part.output, self.take_output)):
            waiting = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
            take(int.from_bytes(waiting, sys.byteorder))

    def _ending(self, status: int) -> tuple[Ending, int]:
        """Ending and code: a broken stream outweighs a limit, and a limit the exit that it caused."""
        reader = self._reader
        if reader.fault is not None:
            return (Ending.TOO_LARGE if reader.fault.too_large else Ending.PROTOCOL), 0
        if self.cut is not None:
            late = self.cut in (Ending.WALL, Ending.SILENT) and reader.ended
            return (Ending.FINISHED if late else self.cut), 0
        if os.WIFSIGNALED(status):
            return Ending.SIGNALLED, os.WTERMSIG(status)
        code = os.WEXITSTATUS(status)
        return (Ending.EXITED if code or not reader.ended else Ending.FINISHED), code


def _read(descriptor: int, size: int) -> bytes | None:
    """Up to `size` bytes; b"" at the end of the stream, None where nothing waits."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
