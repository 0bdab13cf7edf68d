"""What a user imports. Joins the release, its verification and the serving side; holds what is in force."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from tilegate.errors import ContractError
from tilegate.processor import local_processor
from tilegate.records.contract import Contract, Tolerance
from tilegate.records.miss import Miss, MissReason
from tilegate.records.profile import Profile, ProfileLine
from tilegate.rules.preflight import answer
from tilegate.runtime.dispatch import Site
from tilegate.runtime.explanation import Explanation
from tilegate.runtime.load import Table, load
from tilegate.runtime.operator import OPERATORS, Operator, kernel, on_register, operator, operators
from tilegate.runtime.pending import Pending
from tilegate.runtime.unserved import Unserved
from tilegate.store.layout import Layout
from tilegate.trust.verify import verify

__all__ = [
    "Explanation",
    "Miss",
    "MissReason",
    "OperatorStats",
    "Prediction",
    "Tolerance",
    "explain",
    "kernel",
    "operator",
    "preflight",
    "reference_only",
    "stats",
    "use",
]


Answers = Site | Unserved | Pending
"""What may be attached to an operator while a release is in use."""


@dataclass(slots=True)
class _State:
    """What is in force in this process. Calls never read it: they go through what was attached."""

    table: Table | None = None
    sites: dict[str, Answers] = field(default_factory=dict)
    paused: dict[str, Unserved] = field(default_factory=dict)
    """What answers while `reference_only` is on. It keeps its count afterwards."""
    reference_only: bool = False


_state = _State()
_lock = threading.RLock()


def use(path: str | PathLike[str] | None, *, allow_unsigned: bool = False) -> None:
    """Serve tested binaries from a release; `use(None)` goes back to the references.

    The whole release is verified and opened before anything changes: when this raises, what was in force
    stays in force. Operators declared later are attached too.

    Args:
        path: folder that `tilegate promote` wrote.
        allow_unsigned: releases are not signed yet; say that you know while developing.

    Raises:
        TrustError: a byte, digest or size differs from what the release says.
        UsageError: there is no release.
    """
    if path is None:
        with _lock:
            _state.table, _state.sites, _state.paused = None, {}, {}
            _attach_all()
        return
    layout = Layout(Path(path))
    release = verify(layout.open_statement(), allow_unsigned=allow_unsigned)
    table = load(release, layout.open_blob, local_processor())
    with _lock:
        sites: dict[str, Answers] = {o.name: _site(o, table) for o in operators()}
        _state.table, _state.sites, _state.paused = table, sites, {}
        _attach_all()


def explain(declared: Operator, *args: Any, **kwargs: Any) -> Explanation:
    """Which binary would answer this call, or why none would. Runs the real guard; counts nothing."""
    return declared.explain(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class OperatorStats:
    """Calls of one operator since its release was attached."""

    hits: dict[str, int]
    """Served by a tested binary, by `kernel for target (manifest digest)`."""
    misses: dict[str, int]
    """Answered by the reference, by reason with the detail of the first one."""

    @property
    def hit_rate(self) -> float:
        """Share of calls that a tested binary served; 0 where there were none."""
        served, calls = sum(self.hits.values()), sum(self.hits.values()) + sum(self.misses.values())
        return served / calls if calls else 0.0


def stats() -> dict[str, OperatorStats]:
    """Counts of every attached operator. No data, and no shape but the first that missed."""
    with _lock:
        names = {
            c.manifest.digest: f"{c.kernel} for {c.target} ({c.manifest.digest[7:19]})"
            for c in (_state.table.release.candidates if _state.table else ())
        }
        out: dict[str, OperatorStats] = {}
        for name, site in _state.sites.items():
            misses = {str(miss): n for miss, n in site.misses().items()}
            if name in _state.paused:
                misses |= {str(miss): n for miss, n in _state.paused[name].misses().items()}
            hits = {names[digest]: n for digest, n in site.hits().items()}
            out[name] = OperatorStats(hits=hits, misses=misses)
        return out


@dataclass(frozen=True, slots=True)
class Prediction:
    """What will answer one workload of a profile."""

    line: ProfileLine
    served_by: str | None
    miss: Miss | None


def preflight(profile: Profile | Iterable[ProfileLine] | None = None) -> tuple[Prediction, ...]:
    """Which served workloads will miss, before traffic comes.

    Args:
        profile: what the service calls; None takes the workloads that the operators declare as served.
    """
    with _lock:
        table = _state.table
    if profile is None:
        lines = [ProfileLine(operator=o.name, workload=w) for o in operators() for w in o.served]
    else:
        lines = list(profile.lines if isinstance(profile, Profile) else profile)
    return tuple(_predict(line, table) for line in lines)


class reference_only:  # noqa: N801 - reads like torch.set_grad_enabled, and works like it
    """Send every operator to its reference, in the whole process, from now on or inside a `with`.

    Needs no key and no release: switching tested binaries off is always allowed.
    """

    def __init__(self, mode: bool = True) -> None:
        with _lock:
            self._before = _state.reference_only
            _switch(mode)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            _switch(self._before)


def _switch(mode: bool) -> None:
    _state.reference_only = mode
    _attach_all()


def _site(declared: Operator, table: Table) -> Site | Unserved:
    """What answers one operator under a table."""

    def unserved(reason: MissReason) -> Unserved:
        return Unserved(declared.name, declared.reference, reason, strict=declared.strict)

    contract = table.contracts.get(declared.name)
    if contract is None:
        return unserved(MissReason.NOT_IN_RELEASE)
    if _changed(declared, contract):
        return unserved(MissReason.CONTRACT_CHANGED)
    loaded = table.loaded.get(declared.name)
    if not loaded:
        return unserved(MissReason.NO_DEVICE_CLASS)
    return Site(contract, declared.reference, loaded, strict=declared.strict)


def _changed(declared: Operator, contract: Contract) -> bool:
    """Whether an operator is not the one that was evaluated: it differs, or reaches what has no digest."""
    try:
        return declared.contract().digest != contract.digest
    except ContractError:
        return True


def _attach_all() -> None:
    for declared in operators():
        _attach(declared)


def _attach(declared: Operator) -> None:
    name, site = declared.name, _state.sites.get(declared.name)
    if site is None:
        declared.detach()
    elif _state.reference_only:
        off = Unserved(name, declared.reference, MissReason.REFERENCE_ONLY, strict=declared.strict)
        paused = _state.paused.setdefault(name, off)
        declared.attach(paused.call, paused.explain)
    else:
        declared.attach(site.call, site.explain)


def _attach_new(declared: Operator) -> None:
    with _lock:
        if _state.table is not None:
            _state.sites[declared.name] = Pending(declared, _settle)
            _state.paused.pop(declared.name, None)
            _attach(declared)


def _settle(declared: Operator) -> None:
    """Decide what answers for an operator that waited for its module."""
    with _lock:
        if _state.table is None or OPERATORS.get(declared.name) is not declared:
            declared.detach()
            return
        if isinstance(_state.sites.get(declared.name), Pending):
            _state.sites[declared.name] = _site(declared, _state.table)
        _attach(declared)


def _predict(line: ProfileLine, table: Table | None) -> Prediction:
    if table is None:
        return Prediction(line, None, Miss(reason=MissReason.NO_RELEASE))
    declared = OPERATORS.get(line.operator)
    contract = table.contracts.get(line.operator)
    if declared is not None and contract is not None and _changed(declared, contract):
        return Prediction(line, None, Miss(reason=MissReason.CONTRACT_CHANGED))
    if contract is not None and line.operator not in table.loaded:
        return Prediction(line, None, Miss(reason=MissReason.NO_DEVICE_CLASS))
    known = [(one.candidate, one.manifest) for one in table.loaded.get(line.operator, ())]
    found = answer(known, line.workload)
    if found.candidate is None:
        return Prediction(line, None, found.miss)
    return Prediction(line, f"{found.candidate.kernel} for {found.candidate.target}", None)


on_register.append(_attach_new)
