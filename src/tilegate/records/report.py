"""What the commands answer: stable, versioned, the same for people and for `--json`."""

from __future__ import annotations

from tilegate.records.canonical import Document, Record
from tilegate.records.closure import Specialization
from tilegate.records.drill import DrillReport
from tilegate.records.isolation import Isolation
from tilegate.records.plan import Workload
from tilegate.records.target import DeviceClass
from tilegate.records.trace import CompilerTrace
from tilegate.records.verdict import Rejected


class BuildLine(Record, frozen=True):
    """One kernel x specialization x target."""

    operator: str
    kernel: str
    specialization: Specialization
    target: str
    manifest: str | None = None
    """Digest; None where the build failed."""
    size: int = 0
    """Bytes of the library."""
    cached: bool = False
    trace: CompilerTrace | None = None


class BuildReport(Document, frozen=True, tag="tilegate.report.build/1"):
    lines: tuple[BuildLine, ...]
    isolation: tuple[Isolation, ...]
    """Of the jobs that made the artifacts, each once."""

    @property
    def accepted(self) -> bool:
        return all(line.trace is None for line in self.lines)


class EvaluateLine(Record, frozen=True):
    """One artifact on this device."""

    operator: str
    kernel: str
    specialization: Specialization
    target: str
    manifest: str
    evaluation: str | None
    """Digest of the evidence; None where the device cannot run the target."""
    verdicts: dict[str, int]
    """Entries by verdict; `missing` are those that never ran."""
    entries: int


class EvaluateReport(Document, frozen=True, tag="tilegate.report.evaluate/1"):
    """Evidence is accepted whatever it says: promotion decides."""

    device: DeviceClass
    lines: tuple[EvaluateLine, ...]
    isolation: tuple[Isolation, ...]
    """Of the workers, each once."""

    @property
    def accepted(self) -> bool:
        return True


class PromotedLine(Record, frozen=True):
    operator: str
    kernel: str
    specialization: Specialization
    target: str
    classes: tuple[str, ...]
    """One line each, as a guard would be read aloud."""
    notes: tuple[str, ...] = ()


class PromoteReport(Document, frozen=True, tag="tilegate.report.promote/1"):
    release: str | None
    """Folder of the release; None where nothing was promoted."""
    version: int
    lines: tuple[PromotedLine, ...]
    rejected: tuple[Rejected, ...]

    @property
    def accepted(self) -> bool:
        return self.release is not None and not self.rejected


class Cell(Record, frozen=True):
    """One operator x kernel x specialization on one target."""

    state: str
    """absent, failed, built, evaluated, rejected, promoted."""
    text: str
    """The guard, the verdicts or the reason, in one line."""


class MatrixRow(Record, frozen=True):
    operator: str
    kernel: str
    specialization: Specialization
    cells: dict[str, Cell]
    """By target."""


class Matrix(Document, frozen=True, tag="tilegate.report.matrix/1"):
    device: DeviceClass
    targets: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    release_version: int | None = None

    @property
    def accepted(self) -> bool:
        return True


class ExplainCandidate(Record, frozen=True):
    kernel: str
    target: str
    specialization: Specialization
    classes: tuple[str, ...]


class ExplainReport(Document, frozen=True, tag="tilegate.report.explain/1"):
    operator: str
    workload: Workload
    served_by: str | None
    shape_class: str = ""
    reason: str = ""
    candidates: tuple[ExplainCandidate, ...] = ()
    evidence: tuple[str, ...] = ()
    """What evaluations say of exactly these extents, a line each."""

    @property
    def accepted(self) -> bool:
        return True


class Check(Record, frozen=True):
    name: str
    ok: bool
    found: str
    mend: str = ""
    """What to type; empty where nothing is to mend."""
    needed_for: str = ""


class DoctorReport(Document, frozen=True, tag="tilegate.report.doctor/1"):
    checks: tuple[Check, ...]

    @property
    def accepted(self) -> bool:
        return all(check.ok for check in self.checks)


class StoreFault(Record, frozen=True):
    """One thing that is wrong with a workspace or a release."""

    kind: str
    """corrupt, missing, unknown or index."""
    what: str
    """A digest, or the path of a file or folder."""
    why: str
    """What was found, in words."""
    next_step: str
    """What to type or do."""


class StoreReport(Document, frozen=True, tag="tilegate.report.store/1"):
    action: str
    """check, rebuild or gc."""
    blobs: int
    """Found whole."""
    size: int
    """Bytes of them all."""
    documents: dict[str, int]
    """Of the blobs, those that are records, by schema."""
    leftovers: int
    """Files that a killed process left half-written. Nobody reads them, and gc removes the old ones."""
    faults: tuple[StoreFault, ...] = ()
    removed: dict[str, int] = {}
    """Blobs that gc removed, by schema; `content` stands for those without one, `leftovers` for files."""
    freed: int = 0
    """Bytes of what was removed."""
    dry_run: bool = False
    """True: nothing was removed, and `removed` tells what would be."""

    @property
    def accepted(self) -> bool:
        return not self.faults


Report = (
    BuildReport
    | EvaluateReport
    | PromoteReport
    | Matrix
    | ExplainReport
    | DoctorReport
    | StoreReport
    | DrillReport
)
