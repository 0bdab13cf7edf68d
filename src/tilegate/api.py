"""What a user imports. Joins the release, its verification and the serving side; holds what is in force."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from tilegate.errors import UsageError
from tilegate.processor import local_processor
from tilegate.records.contract import Tolerance
from tilegate.records.miss import Miss, MissReason
from tilegate.records.profile import Profile, ProfileLine
from tilegate.records.release import Release
from tilegate.rules.preflight import answer
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.force import Force, Recapture, artifact_name, changed
from tilegate.runtime.graphs import Graph
from tilegate.runtime.inuse import InUse, in_use
from tilegate.runtime.load import Place, Table, load
from tilegate.runtime.operator import OPERATORS, Operator, kernel, on_register, operator, operators
from tilegate.store.layout import Layout
from tilegate.trust.verify import verify

__all__ = [
    "Explanation",
    "Graph",
    "InUse",
    "Miss",
    "MissReason",
    "OperatorStats",
    "Prediction",
    "Recapture",
    "Tolerance",
    "explain",
    "generation",
    "graphs",
    "kernel",
    "on_recapture",
    "operator",
    "preflight",
    "recording",
    "reference_only",
    "stats",
    "suspects",
    "synchronized",
    "use",
]

OLDEST_CUDA = (12, 0)
"""The launcher asks the driver for functions of this version."""

_force = Force()


def use(path: str | PathLike[str] | None, *, allow_unsigned: bool = False) -> InUse | None:
    """Serve tested binaries from a release; `use(None)` goes back to the references.

    The whole release is verified and opened before anything changes: when this raises, what was in force
    stays in force. Operators declared later are attached too. Where the release has artifacts for GPUs, their
    driver is initialized: a process that forks its workers calls this in the workers.

    Args:
        path: folder that `tilegate promote` wrote.
        allow_unsigned: releases are not signed yet; say that you know while developing.

    Returns:
        What is served here and what is not; None where nothing is in use.

    Raises:
        TrustError: a byte, digest or size differs from what the release says.
        UsageError: there is no release.
    """
    if path is None:
        _force.use(None)
        return None
    layout = Layout(Path(path))
    release = verify(layout.open_statement(), allow_unsigned=allow_unsigned)
    table = load(release, layout.open_blob, _places(release))
    _force.use(table)
    return in_use(table, {o.name: _force.sites.get(o.name) for o in operators()})


def explain(declared: Operator, *args: Any, **kwargs: Any) -> Explanation:
    """Which binary would answer this call, or why none would. Runs the real guard; counts nothing."""
    return declared.explain(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class OperatorStats:
    """Calls of one operator since its release was attached."""

    hits: dict[str, int]
    """Served by a tested binary, by `kernel for target (manifest digest)`. A replayed graph is not counted."""
    misses: dict[str, int]
    """Answered by the reference, by reason with the detail of the first one."""

    @property
    def hit_rate(self) -> float:
        """Share of calls that a tested binary served; 0 where there were none."""
        served, calls = sum(self.hits.values()), sum(self.hits.values()) + sum(self.misses.values())
        return served / calls if calls else 0.0


def stats() -> dict[str, OperatorStats]:
    """Counts of every attached operator. No data, and no shape but the first that missed."""
    with _force.lock:
        table = _force.table
        candidates = table.release.candidates if table is not None else ()
        names = {c.manifest.digest: artifact_name(c) for c in candidates}
        out: dict[str, OperatorStats] = {}
        for name, site in _force.sites.items():
            misses = {str(miss): n for miss, n in site.misses().items()}
            if name in _force.paused:
                misses |= {str(miss): n for miss, n in _force.paused[name].misses().items()}
            hits = {names[digest]: n for digest, n in site.hits().items()}
            out[name] = OperatorStats(hits=hits, misses=misses)
        return out


@dataclass(frozen=True, slots=True)
class Prediction:
    """What will answer one workload of a profile."""

    line: ProfileLine
    served_by: str | None
    miss: Miss | None


def preflight(
    profile: Profile | Iterable[ProfileLine] | None = None, *, device: str | None = None
) -> tuple[Prediction, ...]:
    """Which served workloads will miss, before traffic comes.

    Args:
        profile: what the service calls; None takes the workloads that the operators declare as served.
        device: where the tensors will lie, as torch spells it; without it the first GPU that the release in use
            has anything for, or else the processor.

    Raises:
        UsageError: there is no such device, or the release in use has nothing to do with it.
    """
    with _force.lock:
        table = _force.table
    if profile is None:
        lines = [ProfileLine(operator=o.name, workload=w) for o in operators() for w in o.served]
    else:
        lines = list(profile.lines if isinstance(profile, Profile) else profile)
    place = _place(table, device) if table is not None else -1
    return tuple(_predict(line, table, place) for line in lines)


class reference_only:  # noqa: N801 - reads like torch.set_grad_enabled, and works like it
    """Send every operator to its reference, in the whole process, from now on or inside a `with`.

    Needs no key and no release: switching tested binaries off is always allowed. CUDA graphs replay what they
    hold all the same, until they are captured again: `on_recapture` tells.
    """

    def __init__(self, mode: bool = True) -> None:
        self._before = _force.reference_only
        _force.switch(mode)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _force.switch(self._before)


def generation() -> int:
    """A number for what is served now: another one as soon as `use` or `reference_only` changes what calls run,
    and the former one when that is served again.
    """
    return _force.generation()


def graphs() -> tuple[Graph, ...]:
    """CUDA graphs that were captured while artifacts for GPUs were in use, and still exist."""
    return _force.recorder.graphs()


def on_recapture(callback: Callable[[Recapture], object]) -> Callable[[], None]:
    """Be told when calls run something else than graphs replay. Returns an undo.

    `callback(recapture)` is called by the thread that made the change, after it.
    """
    return _force.on_recapture(callback)


@contextlib.contextmanager
def recording(captured: Any) -> Iterator[None]:
    """Around a capture that `torch.cuda.CUDAGraph` knows nothing of: `captured` stands for the graph, for as long
    as it exists.
    """
    _force.recorder.begin(captured)
    try:
        yield
    except BaseException:
        _force.recorder.forget(captured)
        raise
    _force.recorder.end(captured)


def suspects() -> tuple[str, ...]:
    """Artifacts that may have caused a device error which shows only now: called since `synchronized`, or held by
    a graph.
    """
    return _force.suspects()


def synchronized() -> None:
    """Tell that the devices have been waited for, and no error was found: what ran before is no suspect any more.
    tilegate waits for no device by itself.
    """
    _force.synchronized()


def _places(release: Release) -> tuple[Place, ...]:
    """Where tensors may lie. The GPUs' driver is asked only where the release has something for them."""
    found = [Place(-1, local_processor())]
    if any(c.target.backend == "cuda" for c in release.candidates):
        from tilegate.device import gpus  # noqa: PLC0415 - nobody else needs it

        for number, gpu in enumerate(gpus()):
            spoken = gpu.versions.get("cuda driver", "0.0")
            old = tuple(int(part) for part in spoken.split(".")) < OLDEST_CUDA
            needed = ".".join(map(str, OLDEST_CUDA))
            why = f"its driver speaks CUDA {spoken}, and {needed} is needed" if old else ""
            found.append(Place(number, gpu.device, why))
    return tuple(found)


def _place(table: Table, device: str | None) -> int:
    numbers = {str(place): place.number for place in table.places}
    if device is None:
        used = [n for found in table.loaded.values() for one in found for n in one.places if n >= 0]
        return min(used, default=-1)
    asked = "cuda:0" if device == "cuda" else device
    if asked not in numbers:
        raise UsageError(
            f"nothing is known of device {device!r}",
            why="GPUs are looked at where the release in use has artifacts for them",
            next_step=f"one of: {', '.join(numbers)}",
        )
    return numbers[asked]


def _predict(line: ProfileLine, table: Table | None, place: int) -> Prediction:
    if table is None:
        return Prediction(line, None, Miss(reason=MissReason.NO_RELEASE))
    declared = OPERATORS.get(line.operator)
    contract = table.contracts.get(line.operator)
    if declared is not None and contract is not None and changed(declared, contract):
        return Prediction(line, None, Miss(reason=MissReason.CONTRACT_CHANGED))
    here = [one for one in table.loaded.get(line.operator, ()) if place in one.places]
    if contract is not None and not here:
        return Prediction(line, None, Miss(reason=MissReason.NO_DEVICE_CLASS))
    found = answer([(one.candidate, one.manifest) for one in here], line.workload)
    if found.candidate is None:
        return Prediction(line, None, found.miss)
    return Prediction(line, f"{found.candidate.kernel} for {found.candidate.target}", None)


on_register.append(_force.declared)
