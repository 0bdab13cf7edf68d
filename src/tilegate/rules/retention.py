"""What a workspace keeps: everything that evidence, an artifact or a release rests on.

Laws (proved in tests/test_store_commands.py):

1. Nothing that is kept names something that is removed, and neither does anything that a release names.
2. Every artifact is kept, or only every superseded one goes: of a source that is no longer there, in no release,
   and without a failure. So no failure is ever removed: the same source builds the same artifact again, and
   every later plan of the operator faces what ever failed.
3. All evaluations of an artifact that is kept are kept: evidence only accumulates. So is what was handed out to
   be evaluated elsewhere: what comes back can be held against it.
4. Waves go from what names to what is named. Whoever is stopped between two of them leaves no name behind that
   leads nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from tilegate.records.artifact import Elaboration, Manifest
from tilegate.records.bundle import Export
from tilegate.records.canonical import Document, schema_of
from tilegate.records.closure import Closure
from tilegate.records.declaration import Declaration
from tilegate.records.evaluation import EntryVerdict, Evaluation
from tilegate.records.plan import Plan
from tilegate.records.release import Release

RAW = ""
"""In place of a schema: sources, IR, libraries."""

MANIFEST, EVALUATION, EXPORT, PLAN, CLOSURE, ELABORATION, DECLARATION = (
    str(schema_of(kind)) for kind in (Manifest, Evaluation, Export, Plan, Closure, Elaboration, Declaration)
)

PARTS = (PLAN, ELABORATION, CLOSURE, DECLARATION, RAW)
"""Kept for the sake of what names them; every other document for its own."""

WAVES = (EVALUATION, EXPORT, PLAN, MANIFEST, ELABORATION, CLOSURE, DECLARATION, RAW)
"""(4) None names one that stands before it."""


class Reference(NamedTuple):
    """What one document says of another. A contract is found in the declaration that holds it."""

    role: str
    """library, ir, source, closure, declaration, manifest, plan, evaluation or contract."""
    digest: str


class Held(NamedTuple):
    """What retention asks of one blob."""

    schema: str = RAW
    names: tuple[Reference, ...] = ()
    contract: str = ""
    """Of a declaration: the digest that others know it by."""
    failed: bool = False
    """Of an evaluation: some entry did not pass."""

    def named(self, role: str) -> str:
        return next((reference.digest for reference in self.names if reference.role == role), "")


def held_of(document: Document) -> Held:
    """What retention asks of a document."""
    return Held(
        schema=str(schema_of(type(document))),
        names=tuple(dict.fromkeys(references(document))),
        contract=document.contract.digest if isinstance(document, Declaration) else "",
        failed=isinstance(document, Evaluation)
        and any(r.verdict not in (EntryVerdict.PASSED, EntryVerdict.UNSUPPORTED) for r in document.results),
    )


def references(document: Document) -> Iterator[Reference]:
    """Every blob and contract that a document rests on."""
    match document:
        case Closure(files=files):
            yield from (Reference("source", file.digest) for file in files)
        case Elaboration(contract=contract, closure=closure, ir=ir):
            yield from (Reference("contract", contract), Reference("closure", closure), Reference("ir", ir))
        case Manifest(elaboration=built, library=library):
            yield from (*references(built), Reference("library", library.digest))
        case Plan(contract=contract, manifest=manifest):
            yield from (Reference("contract", contract), Reference("manifest", manifest))
        case Export():
            yield Reference("manifest", document.manifest)
            yield Reference("plan", document.plan)
            yield Reference("declaration", document.declaration)
            yield Reference("closure", document.closure)
        case Evaluation():
            yield Reference("contract", document.contract)
            yield Reference("manifest", document.manifest)
            yield Reference("library", document.library)
            yield Reference("plan", document.plan)
        case Release():
            yield from (Reference("contract", blob.digest) for blob in document.contracts)
            for candidate in document.candidates:
                yield Reference("manifest", candidate.manifest.digest)
                yield Reference("library", candidate.library.digest)
                yield from (Reference("evaluation", blob.digest) for blob in candidate.evaluations)


def plan_gc(
    held: Mapping[str, Held],
    *,
    released: Iterable[str],
    young: Iterable[str] = (),
    current: Collection[str] | None = None,
) -> tuple[tuple[str, ...], ...]:
    """What may be removed, in waves.

    1. Superseded artifacts may go, with their evaluations: those that law 2 lets go.
    2. What releases name, what is young, and every other document that is no part is kept, with all that these
       rest on.
    3. A superseded artifact that is kept by (2) does not go, and neither do its evaluations: once more.

    Args:
        held: every blob of the workspace, by digest.
        released: digests that releases name, contracts among them.
        young: blobs whose writer may not have named them yet.
        current: digests of the closures of the source as it stands; None lets no artifact go.
    """
    declared = _declared(held)
    going = _superseded(held, current) if current is not None else set()  # (1)
    while True:
        staying = (d for d, one in held.items() if one.schema not in PARTS and not _goes(d, one, going))
        kept = _reach({*released, *young, *staying}, held, declared)  # (2)
        if not going & kept:
            break
        going -= kept  # (3)
    waves = ((digest for digest in held.keys() - kept if held[digest].schema == schema) for schema in WAVES)
    return tuple(tuple(sorted(wave)) for wave in waves)


def _superseded(held: Mapping[str, Held], current: Collection[str]) -> set[str]:
    failed = {one.named("manifest") for one in held.values() if one.failed}
    return {
        digest
        for digest, one in held.items()
        if one.schema == MANIFEST and one.named("closure") not in current and digest not in failed
    }


def _goes(digest: str, one: Held, going: Collection[str]) -> bool:
    return digest in going or (one.schema in (EVALUATION, EXPORT) and one.named("manifest") in going)


def _declared(held: Mapping[str, Held]) -> dict[str, list[str]]:
    """Declarations by the contract that they hold."""
    found: dict[str, list[str]] = {}
    for digest, one in held.items():
        if one.schema == DECLARATION:
            found.setdefault(one.contract, []).append(digest)
    return found


def _reach(starts: Iterable[str], held: Mapping[str, Held], declared: Mapping[str, list[str]]) -> set[str]:
    """Whatever the starts rest on, themselves included."""
    found: set[str] = set()
    pending = list(starts)
    while pending:
        digest = pending.pop()
        if digest not in found:
            found.add(digest)
            pending += declared.get(digest, ())
            pending += (reference.digest for reference in held[digest].names) if digest in held else ()
    return found
