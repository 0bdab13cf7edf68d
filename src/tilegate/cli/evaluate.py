from __future__ import annotations

from pathlib import Path

import click

from tilegate import pipeline
from tilegate.cli.output import Bar, isolation_option, json_option, project_option, say, show
from tilegate.errors import UsageError
from tilegate.pipeline.bundle import RETURN_BYTES
from tilegate.pipeline.merge import SAMPLE
from tilegate.records.isolation import Level
from tilegate.records.report import EvaluateReport
from tilegate.sandbox import EVALUATE

_FILE = click.Path(dir_okay=False, path_type=Path)
_THERE = click.Path(exists=True, dir_okay=False, path_type=Path)
_MIB = 2**20


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--export", type=_FILE, help="Write what this machine cannot run, or what is named, to a bundle."
)
@click.option("--bundle", type=_THERE, help="Evaluate a bundle here. No project is needed.")
@click.option("--evidence", type=_FILE, help="With --bundle: the file to write.")
@click.option(
    "--return-mib",
    type=click.IntRange(0),
    default=RETURN_BYTES // _MIB,
    show_default=True,
    help="With --bundle: outputs that go with the evidence, in all.",
)
@click.option(
    "--sanitizer",
    is_flag=True,
    help="With --bundle: some entries under compute-sanitizer too, without isolation.",
)
@click.option("--merge", type=_THERE, help="Recompute a sample of an evidence file, and record it.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=SAMPLE,
    show_default=True,
    help="With --merge: entries of each artifact that are recomputed.",
)
@isolation_option
@project_option
@json_option
def evaluate(
    names: tuple[str, ...],
    export: Path | None,
    bundle: Path | None,
    evidence: Path | None,
    return_mib: int,
    sanitizer: bool,
    merge: Path | None,
    sample: int,
    level: Level,
    folder: Path,
    as_json: bool,
) -> None:
    r"""Run artifacts on this device against their plans, and record a verdict for every entry.

    It finds honest faults. It does not stop a malicious author: review does.

    \b
    On another machine's device:
      tilegate evaluate --export FILE                    at home
      tilegate evaluate --bundle FILE --evidence OUT     there
      tilegate evaluate --merge OUT                      at home
    """
    _one_of(names, export, bundle, evidence, merge)
    with Bar() as bar:
        if export is not None:
            report = pipeline.export(folder, export, only=names)
        elif bundle is not None and evidence is not None:
            report = pipeline.evaluate_bundle(
                bundle,
                evidence,
                policy=EVALUATE.at(level),
                return_bytes=return_mib * _MIB,
                sanitized=sanitizer,
                progress=bar.count,
            )
        elif merge is not None:
            report = pipeline.merge(folder, merge, sample=sample, level=level, progress=bar.count)
        else:
            report = pipeline.evaluate(folder, only=names, policy=EVALUATE.at(level), progress=bar.count)
    _tell(report, export)
    show(report, as_json=as_json)


def _one_of(
    names: tuple[str, ...],
    export: Path | None,
    bundle: Path | None,
    evidence: Path | None,
    merge: Path | None,
) -> None:
    if sum(option is not None for option in (export, bundle, merge)) > 1:
        raise UsageError(
            "--export, --bundle and --merge are three steps", next_step="tilegate evaluate --help"
        )
    if (bundle is None) != (evidence is None):
        raise UsageError(
            "--bundle reads what --evidence answers",
            next_step="tilegate evaluate --bundle FILE --evidence OUT",
        )
    if names and (bundle is not None or merge is not None):
        raise UsageError(
            "a bundle and its evidence are taken whole",
            why=f"names were given: {', '.join(names)}",
            next_step="name operators or kernels with --export",
        )


def _tell(report: EvaluateReport, export: Path | None) -> None:
    for isolation in report.isolation:
        say(f"isolation of the workers: {isolation}")
    if export is None:
        say(f"device: {report.device}")
        return
    entries = sum(line.entries for line in report.lines)
    say(f"written: {export}, {len(report.lines)} artifacts with {entries} entries")
    say(f"next: tilegate evaluate --bundle {export.name} --evidence OUT, on a machine with the device")
