"""The one door to a subprocess: `run_job(job, limits) -> JobResult`.

A job finds honest faults: a crash, a hang, a flood of output cannot reach the caller. It is not yet a wall
against a malicious author: the file system is visible to it. `JobResult.isolation` says what was in force.
"""

from tilegate.sandbox.job import Ending, Job, JobResult, last_words
from tilegate.sandbox.policy import COMPILE, DESCRIBE, ELABORATE, EVALUATE, REFERENCE
from tilegate.sandbox.run import JobStopped, run_job, stop_jobs

__all__ = [
    "COMPILE",
    "DESCRIBE",
    "ELABORATE",
    "EVALUATE",
    "REFERENCE",
    "Ending",
    "Job",
    "JobResult",
    "JobStopped",
    "last_words",
    "run_job",
    "stop_jobs",
]
