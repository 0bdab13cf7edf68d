"""A project in each state that the commands know, without TileLang: kernels by gcc, evidence written by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from tests import artifacts, world
from tests.situations.place import LEVEL, Place
from tests.situations.project import KERNELS, OPS, TOML
from tilegate.pipeline.opened import Opened, open_project
from tilegate.pipeline.promote import promote
from tilegate.records.artifact import Manifest
from tilegate.records.canonical import digest_of
from tilegate.records.contract import Contract
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.isolation import Isolation, Level
from tilegate.records.plan import Entry, Layout, Origin, Values, Workload
from tilegate.records.target import Target

IR = b"what TileLang would have made"
REDUCED = Isolation(
    level=Level.REDUCED,
    network=False,
    own_pids=False,
    own_files=False,
    filtered=True,
    landlock=7,
    cgroup=False,
    uid=60600,
)

Judge = Callable[[Entry], EntryVerdict | None]


def declared(place: Place, *, ops: str = OPS) -> Declaration:
    """Write the project, and say what its operator declares."""
    place.write(toml=TOML, ops=ops, kernels=KERNELS)
    return importlib.import_module("ops").twice.declaration()


def build(
    place: Place, *, level: str = LEVEL, ops: str = OPS, identity: str = ""
) -> tuple[Opened, Contract, Manifest]:
    """What `tilegate build` would record: a kernel that doubles."""
    declaration = declared(place, ops=ops)
    opened = open_project(place.project)
    (binding,) = opened.bindings
    closure, sources = opened.closure(binding)
    elaboration = world.elaboration_of(declaration.contract, kernel="rows", tiles={"n": (1,)})
    elaboration = structs.replace(elaboration, closure=closure.digest, ir=digest_of(IR))
    where = Target(backend="cpu", arch=level)
    manifest, library = world.artifact(elaboration, world.SCALE, "FACTOR=2", target=where)
    manifest = structs.replace(manifest, identity=identity or manifest.identity)
    for data in (*sources.values(), IR, library):
        opened.workspace.blobs.put(data)
    for document in (closure, declaration, manifest):
        opened.workspace.record(document)
    return opened, declaration.contract, manifest


def evaluate(
    place: Place,
    judge: Judge = lambda _: EntryVerdict.PASSED,
    *,
    values: Sequence[Values] = (Values.NORMAL,),
    extents: Iterable[int] = range(65),
    isolation: Isolation = world.ISOLATION,
    origin: Origin = Origin.SERVED,
    **how: str,
) -> Opened:
    """What `tilegate evaluate` would record if every entry gave the verdict of `judge`."""
    opened, contract, manifest = build(place, **how)
    entries = [
        Entry(workload=Workload(axes={"n": n}), layout=Layout.ALIGNED, values=value, origin=origin)
        for n in extents
        for value in values
    ]
    plan = artifacts.plan_of(contract, manifest, entries)
    evaluation = artifacts.evaluated(plan, manifest, judge, device=world.DEVICE, isolation=isolation)
    opened.workspace.record(plan)
    opened.workspace.record(evaluation)
    return opened


def release(place: Place, **how: str) -> None:
    """What `tilegate promote` writes when everything passed."""
    evaluate(place, **how)
    promote(place.project)
