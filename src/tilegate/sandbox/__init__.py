"""The one door to a subprocess: `run_job(job, policy) -> JobResult`.

Whatever runs somebody's Python, a compiler or an artifact under test runs behind it, in the isolation that the
policy asks for, or not at all. `JobResult.isolation` says what was in force.
"""

from tilegate.records.isolation import JobPolicy, Level
from tilegate.sandbox.job import Ending, Job, JobResult, last_words
from tilegate.sandbox.policy import COMPILE, DESCRIBE, DRILL, ELABORATE, EVALUATE, REFERENCE
from tilegate.sandbox.run import JobStopped, run_job, run_jobs, stop_jobs, warmed

__all__ = [
    "COMPILE",
    "DESCRIBE",
    "DRILL",
    "ELABORATE",
    "EVALUATE",
    "REFERENCE",
    "Ending",
    "Job",
    "JobPolicy",
    "JobResult",
    "JobStopped",
    "Level",
    "last_words",
    "run_job",
    "run_jobs",
    "stop_jobs",
    "warmed",
]
