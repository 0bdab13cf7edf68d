"""The one door to a subprocess: `run_job(job, limits) -> JobResult`.

A job finds honest faults: a crash, a hang, a flood of output cannot reach the caller. It is not yet a wall
against a malicious author: the file system is visible to it. `JobResult.isolation` says what was in force.
"""

from tilegate.sandbox.job import Ending, Job, JobResult
from tilegate.sandbox.policy import COMPILE, DESCRIBE, ELABORATE, EVALUATE, REFERENCE
from tilegate.sandbox.run import run_job

__all__ = [
    "COMPILE",
    "DESCRIBE",
    "ELABORATE",
    "EVALUATE",
    "REFERENCE",
    "Ending",
    "Job",
    "JobResult",
    "run_job",
]
