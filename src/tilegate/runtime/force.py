"""What is in force in this process: which release, which switches, and what stands for each operator.

Calls never read it: they go through what was attached. Whatever changes what calls run goes through here, gets
a generation number, and is told to those who replay calls that they made before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilegate.errors import ContractError
from tilegate.records.canonical import digest_of, encode
from tilegate.records.contract import Contract
from tilegate.records.miss import MissReason
from tilegate.records.release import Candidate
from tilegate.runtime.dispatch import Site
from tilegate.runtime.graphs import Graph, Recorder, watch
from tilegate.runtime.load import Table
from tilegate.runtime.lost import Lost
from tilegate.runtime.operator import OPERATORS, Operator, operators
from tilegate.runtime.pending import Pending
from tilegate.runtime.unserved import Unserved

Answers = Site | Unserved | Pending
"""What may be attached to an operator while a release is in use."""


@dataclass(frozen=True, slots=True)
class Recapture:
    """What `on_recapture` tells: calls run something else from now on, and replays do not."""

    generation: int
    """The one from now on."""
    graphs: tuple[Graph, ...]
    """Recorded graphs that were captured under another generation, and that still exist."""


class Force:
    """All of it. One in each process; `api` holds it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.table: Table | None = None
        self.sites: dict[str, Answers] = {}
        self.paused: dict[str, Unserved] = {}
        """What answers while `reference_only` is on. It keeps its count afterwards."""
        self.reference_only = False
        self.lost: dict[int, tuple[str, ...]] = {}
        """Suspects, by number of a place whose device is lost. A process does not get it back."""
        self._statement = ""
        self._redeclared = 0
        self._counted: tuple[Counter[str], Table | None] = Counter(), None
        """Calls that tables no longer in force have served, and the table in force: read as one."""
        self._good: Mapping[str, int] = {}
        self._generations: dict[object, int] = {}
        self._generation = self._numbered()
        self._callbacks: list[Callable[[Recapture], object]] = []
        self.recorder = Recorder(self.counts, lambda: self._generation)
        self._unwatch: Callable[[], None] = lambda: None

    # What changes

    def use(self, table: Table | None) -> None:
        """Serve from a table, or nothing."""
        with self.lock:
            sites: dict[str, Answers] = {}
            if table is not None:
                sites = {o.name: self._site(o, table) for o in operators()}
            self._counted = self.counts(), table
            self.table, self.sites, self.paused = table, sites, {}
            self._statement = digest_of(encode(table.release)) if table is not None else ""
            self._watch_captures()
            self._attach_all()
        self._tell()

    def switch(self, mode: bool) -> None:
        """References only, or not."""
        with self.lock:
            self.reference_only = mode
            self._attach_all()
        self._tell()

    def lose(self, place: int) -> tuple[str, ...]:
        """The device of a place is lost. Returns the suspects. Nobody is told to recapture: there is nothing to
        capture on.
        """
        with self.lock:
            if place not in self.lost:
                self.lost[place] = self.suspects()
                self._attach_all()
            return self.lost[place]

    def declared(self, operator: Operator) -> None:
        """An operator is declared while a release may be in use."""
        with self.lock:
            if self.table is not None:
                self._redeclared += operator.name in self.sites
                self.sites[operator.name] = Pending(operator, self._settle)
                self.paused.pop(operator.name, None)
                self._attach(operator)
        self._tell()

    def on_recapture(self, callback: Callable[[Recapture], object]) -> Callable[[], None]:
        """Call it after each change of generation. Returns an undo."""
        self._callbacks.append(callback)

        def undo() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return undo

    # What is asked

    def generation(self) -> int:
        return self._generation

    def counts(self) -> Counter[str]:
        """Calls that each artifact for GPUs has served since the process began, by name. Takes no lock."""
        retired, table = self._counted
        found = Counter(retired)
        for loaded in table.loaded.values() if table is not None else ():
            for one in loaded:
                if min(one.places) >= 0:
                    found[artifact_name(one.candidate)] += sum(one.rows.hits())
        return found

    def suspects(self) -> tuple[str, ...]:
        """Artifacts for GPUs that were called since the devices were last known to be good, and those in graphs: a replay
        is not counted.
        """
        called = {name for name, n in self.counts().items() if n > self._good.get(name, 0)}
        return tuple(sorted(called | self.recorder.held()))

    def synchronized(self) -> None:
        """All that was launched so far has ended well."""
        self._good = self.counts()

    # How

    def _numbered(self) -> int:
        """What is served gets a number when it is served first, and has it again when it is served again."""
        state = (self._statement, self.reference_only, self._redeclared)
        return self._generations.setdefault(state, len(self._generations))

    def _tell(self) -> None:
        """Every callback is called, also behind one that raises; what was changed stays changed."""
        with self.lock:
            number = self._numbered()
            if number == self._generation:
                return
            self._generation = number
            stale = tuple(g for g in self.recorder.graphs() if g.generation != number)
            callbacks = tuple(self._callbacks)
        raised = []
        for callback in callbacks:
            try:
                callback(Recapture(number, stale))
            except Exception as error:  # noqa: BLE001 - raised again below
                raised.append(error)
        if raised:
            raise ExceptionGroup("told of a change, a callback of on_recapture failed", raised)

    def _watch_captures(self) -> None:
        self._unwatch()
        self._unwatch = lambda: None
        table = self.table
        on_gpus = any(
            min(one.places) >= 0 for found in (table.loaded.values() if table else ()) for one in found
        )
        if on_gpus:
            import torch  # noqa: PLC0415 - only a serving process has it

            self._unwatch = watch(torch.cuda.CUDAGraph, self.recorder)

    def _site(self, declared: Operator, table: Table) -> Site | Unserved:
        """What answers one operator under a table."""
        skipped = tuple(str(s) for s in table.skipped if s.candidate.operator == declared.name)

        def unserved(reason: MissReason) -> Unserved:
            return Unserved(
                declared.name, declared.reference, reason, strict=declared.strict, skipped=skipped
            )

        contract = table.contracts.get(declared.name)
        if contract is None:
            return unserved(MissReason.NOT_IN_RELEASE)
        if changed(declared, contract):
            return unserved(MissReason.CONTRACT_CHANGED)
        loaded = table.loaded.get(declared.name)
        if not loaded:
            return unserved(MissReason.NO_DEVICE_CLASS)
        return Site(
            contract,
            declared.reference,
            loaded,
            table.places,
            strict=declared.strict,
            opaque=declared.opaque,
            skipped=skipped,
            on_lost=self.lose,
        )

    def _attach_all(self) -> None:
        for declared in operators():
            self._attach(declared)

    def _attach(self, declared: Operator) -> None:
        name, site = declared.name, self.sites.get(declared.name)
        if site is None:
            declared.detach()
            return
        call: Callable[..., Any]
        if self.reference_only:
            off = Unserved(name, declared.reference, MissReason.REFERENCE_ONLY, strict=declared.strict)
            paused = self.paused.setdefault(name, off)
            call, explain = paused.call, paused.explain
        else:
            call, explain = site.call, site.explain
        if self.lost:
            wall = Lost(name, call, explain, self.lost)
            call, explain = wall.call, wall.explain
        declared.attach(call, explain)

    def _settle(self, declared: Operator) -> None:
        """Decide what answers for an operator that waited for its module."""
        with self.lock:
            if self.table is None or OPERATORS.get(declared.name) is not declared:
                declared.detach()
                return
            if isinstance(self.sites.get(declared.name), Pending):
                self.sites[declared.name] = self._site(declared, self.table)
            self._attach(declared)


def artifact_name(candidate: Candidate) -> str:
    """`tiled for cuda:sm_90a (0123456789ab)`: kernel, target, and the beginning of the manifest's digest."""
    return f"{candidate.kernel} for {candidate.target} ({candidate.manifest.digest[7:19]})"


def changed(declared: Operator, contract: Contract) -> bool:
    """Whether an operator is not the one that was evaluated: it differs, or reaches what has no digest."""
    try:
        return declared.contract().digest != contract.digest
    except ContractError:
        return True
