"""The drill of the sandbox: every probe is a job, made against canaries, and judged by what the host saw."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from tilegate.build.elf import objections
from tilegate.drill.expected import PROBES
from tilegate.drill.probe import LEVELS, Expected, Facts, Probe, Situation, judge, not_made
from tilegate.drill.probes import CLAIM, QUIET, TASK, module_of
from tilegate.drill.probes.results import FORGED_UID
from tilegate.drill.stage import Stage, staged
from tilegate.errors import RecordError, SandboxError, UsageError
from tilegate.records.canonical import decode, encode
from tilegate.records.drill import Claim, DrillLine, DrillReport, Outcome
from tilegate.records.isolation import Isolation, JobPolicy, Level, Limits
from tilegate.rules.spelling import did_you_mean
from tilegate.sandbox import DRILL, Ending, Job, JobResult, landlock, run_job, run_jobs

Progress = Callable[[str, int, int], None]


def drill_sandbox(
    level: Level = Level.FULL,
    names: Sequence[str] = (),
    *,
    probes: Sequence[Probe] = PROBES,
    progress: Progress | None = None,
) -> DrillReport:
    """Try to break out of jobs of a level on this machine, in every way that the drill knows.

    Args:
        level: of the jobs.
        names: probes to make; without any, all.
        probes: those that there are.
        progress: called with (what, done, total).

    Raises:
        UsageError: there is no probe of a name, or nothing is expected of the level.
        SandboxError: the level cannot be had on this machine.
    """
    if level not in LEVELS:
        told = ", ".join(one.value for one in LEVELS)
        raise UsageError(f"the drill expects nothing of {level.value}", next_step=f"ask for one of {told}")
    chosen = _chosen(probes, names)
    policy = DRILL.at(level)
    isolation = _isolation(policy)
    situation = Situation(root=os.getuid() == 0, landlock=landlock.abi(), cgroup=isolation.cgroup)
    with staged(level) as stage:
        drill = _Drill(stage, policy, situation)
        lines = drill.together(chosen)
        for done, probe in enumerate(chosen):
            if progress is not None:
                progress("drill", done, len(chosen))
            if probe.name not in lines:
                lines[probe.name] = drill.alone(probe)
    in_order = tuple(lines[probe.name] for probe in chosen)
    return DrillReport(level=level, caller=os.getuid(), isolation=isolation, lines=in_order)


def _chosen(probes: Sequence[Probe], names: Iterable[str]) -> list[Probe]:
    known = {probe.name: probe for probe in probes}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no probe {name!r}", next_step=did_you_mean(name, known))
    return [known[name] for name in names] or list(probes)


def _isolation(policy: JobPolicy) -> Isolation:
    """What a job without an attack finds. A drill against another level than asked for would prove nothing."""
    result = run_job(Job(task=QUIET, inputs={"quiet": b"word"}), policy)
    if result.frames != (("quiet", b"word"),) or result.ending is not Ending.FINISHED:
        raise SandboxError(
            "a job without an attack did not finish",
            where=QUIET,
            why=result.why or f"it ended as {result.ending.value}",
            next_step="tilegate doctor",
        )
    if result.isolation.level is not policy.level:
        raise SandboxError(
            f"jobs get the level {result.isolation.level.value!r}",
            why=f"{policy.level.value!r} was asked for",
            next_step="tilegate doctor",
        )
    return result.isolation


class _Drill:
    """Attacks from jobs of one policy, on one stage."""

    def __init__(self, stage: Stage, policy: JobPolicy, situation: Situation) -> None:
        self._stage = stage
        self._policy = policy
        self._situation = situation

    def together(self, probes: Sequence[Probe]) -> dict[str, DrillLine]:
        """The lines of those that were made in one warmed sandbox, and blocked without leaving a trace.

        Whatever else becomes of one proves nothing about it here, where a neighbour may be behind it.
        """
        gentle = [probe for probe in probes if self._is_gentle(probe)]
        jobs = [self._job(probe) for probe in gentle]
        results = run_jobs(jobs, self._policy, warm=sorted({module_of(p.theme.value) for p in gentle}))
        if self._stage.traces():
            return {}
        lines = [self._judged(*pair, traces=()) for pair in zip(gentle, results, strict=True)]
        return {line.probe: line for line in lines if line.outcome is Outcome.BLOCKED}

    def alone(self, probe: Probe) -> DrillLine:
        expected = self._expected(probe)
        lacking = self._lacking(probe)
        if expected.outcomes == (Outcome.NOT_APPLICABLE,):
            return _told(probe, expected, Outcome.NOT_APPLICABLE, expected.why)
        if lacking:
            return _told(probe, not_made(expected.why), Outcome.NOT_APPLICABLE, lacking)
        result = run_job(self._job(probe), self._policy.within(**probe.limits))
        return self._judged(probe, result, traces=self._stage.traces())

    def _judged(self, probe: Probe, result: JobResult, traces: Sequence[str]) -> DrillLine:
        limits = self._policy.within(**probe.limits).limits
        facts = Facts(
            traces=[*traces, *_in_result(result, limits)], ending=result.ending, claim=_claim(result)
        )
        outcome, detail = judge(probe, facts)
        return _told(probe, self._expected(probe), outcome, detail, result.wall_s)

    def _job(self, probe: Probe) -> Job:
        inputs = {
            "theme": probe.theme.value.encode(),
            "probe": probe.name.encode(),
            "props": encode(self._stage.props()),
        }
        return Job(task=TASK, inputs=inputs, import_paths=(self._stage.import_path,))

    def _is_gentle(self, probe: Probe) -> bool:
        disturbs = probe.alone or probe.ends or probe.limits
        blocked = self._expected(probe).outcomes == (Outcome.BLOCKED,)
        return blocked and not disturbs and not self._lacking(probe)

    def _expected(self, probe: Probe) -> Expected:
        return probe.expected(self._policy.level, self._situation)

    def _lacking(self, probe: Probe) -> str:
        lacks = self._stage.lacks
        return ", ".join(f"{need}: {lacks[need]}" for need in probe.needs if need in lacks)


def _told(probe: Probe, expected: Expected, outcome: Outcome, detail: str, wall_s: float = 0.0) -> DrillLine:
    return DrillLine(
        probe=probe.name,
        theme=probe.theme,
        tries=probe.tries,
        outcome=outcome,
        expected=expected.outcomes,
        why=expected.why,
        detail=_printable(detail),
        wall_s=wall_s,
    )


def _claim(result: JobResult) -> Claim | None:
    """The last word under that name. Whatever else was sent is not looked at, and never opened."""
    said = [blob for name, blob in result.frames if name == CLAIM]
    if not said:
        return None
    try:
        return decode(Claim, said[-1], where="a claim")
    except RecordError:
        return None


def _in_result(result: JobResult, limits: Limits) -> Iterator[str]:
    """What must not have come through."""
    if result.isolation.uid == FORGED_UID:
        yield "forged the isolation that the job is said to have"
    if len(result.output) > limits.output_bytes:
        yield "more output was kept than allowed"
    if len(result.frames) > limits.frames or sum(len(blob) for _, blob in result.frames) > limits.total_bytes:
        yield "more frames were kept than allowed"
    for name, blob in result.frames:
        if name == "library" and not objections(blob):
            yield "a library with constructors would have been opened"


def _printable(text: str) -> str:
    """A job must not move the cursor of a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)[:200]
