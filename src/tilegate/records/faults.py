"""Faults at run time, by what may be done about them."""

from __future__ import annotations

import enum


class FaultClass(enum.Enum):
    """What a failure while serving is, and so whether the reference may answer this call."""

    ARGUMENT = "argument"
    """The call is outside every class: the reference answers. Not a fault of the artifact."""
    CAPABILITY = "capability"
    """The device lacks what the artifact needs: the reference, from load on."""
    RESOURCES = "resources"
    """Memory or another resource ran out: the reference may answer this call."""
    LAUNCH = "launch"
    """The driver declined the launch before anything ran: the reference may answer."""
    STICKY = "sticky"
    """The device context is dead: nothing more runs there, not even the reference."""
    HANG = "hang"
    HOST_CRASH = "host_crash"
    """The process is gone; the journal tells the next one."""

    @property
    def reference_may_answer(self) -> bool:
        return self in (FaultClass.ARGUMENT, FaultClass.CAPABILITY, FaultClass.RESOURCES, FaultClass.LAUNCH)
