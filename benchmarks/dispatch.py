"""Host time of a call: without a release, served, and missed, each against what it stands on."""

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from figures import ROOT, Row, medians, record

import tilegate
from tilegate import pipeline

ROUNDS, CALLS = 60, 2000
VERIFIED = (
    "What a served call verifies. In Python: plain tensor types, no gradient, no negative bit, no torch mode, "
    "transform, tracing or autocast, attribute values. In C: argument count, tensor handles, device, dtype, rank, "
    "every extent in 64 bits, symbols shared between tensors, the int32 limit, strides, overlap with outputs, shape "
    "class, alignment, element limit."
)


def promoted(folder: Path) -> Path:
    """The quickstart's rms_norm, built and promoted in a copy."""
    project = folder / "quickstart"
    shutil.copytree(
        ROOT / "examples/quickstart",
        project,
        ignore=shutil.ignore_patterns(".tilegate", "release", "__pycache__"),
    )
    pipeline.build(project, only=["rms_norm"])
    pipeline.evaluate(project, only=["rms_norm"])
    pipeline.promote(project, only=["rms_norm"])
    return project


def measure(project: Path) -> list[Row]:
    sys.path.insert(0, str(project))
    from operators import rms_norm

    x, weight, out = torch.randn(1, 384), torch.randn(384), torch.empty(1, 384)
    narrow, short = x[:, :383].contiguous(), weight[:383].contiguous()
    reference = rms_norm.reference

    @torch.library.custom_op("beside::rms_norm", mutates_args=())
    def public(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, weight)

    plain = [("operator", lambda: rms_norm(narrow, short)), ("plain", lambda: reference(narrow, short))]
    nothing = medians(plain, rounds=ROUNDS, calls=CALLS)
    tilegate.use(project / "release", allow_unsigned=True)
    site = rms_norm._call  # noqa: SLF001 - the call site, to reach the artifact behind it
    one = next(o for o in site.keeps_open if o.manifest.elaboration.specialization.dtypes["T"] == "float32")
    entry, rows = one.library.entry, one.rows.address
    served = medians(
        [
            ("hit", lambda: rms_norm(x, weight)),
            ("bare", lambda: entry(x, weight, out, rows)),
            ("allocation", lambda: torch.empty_like(x)),
            ("torch", lambda: torch.nn.functional.rms_norm(x, (384,), weight, 1e-6)),
        ],
        rounds=ROUNDS,
        calls=CALLS,
    )
    node = torch.ops.tilegate.rms_norm.default
    graphs = medians(
        [
            ("hit", lambda: rms_norm(x, weight)),
            ("node", lambda: node(x, weight, 1e-6)),
            ("custom_op", lambda: public(x, weight)),
        ],
        rounds=ROUNDS,
        calls=CALLS,
    )
    over = served["hit"] - served["bare"] - served["allocation"]
    missed = (
        medians(  # behind the hits: the first call that lacks a fixed extent makes the call site ask for it
            [
                ("hit", lambda: rms_norm(x, weight)),
                ("extent", lambda: rms_norm(narrow, short)),
                ("attribute", lambda: rms_norm(narrow, short, 1e-5)),
                ("reference", lambda: reference(narrow, short)),
            ],
            rounds=ROUNDS,
            calls=CALLS,
        )
    )
    return [
        (
            "no release attached, over the plain function",
            us(nothing["operator"] - nothing["plain"]),
            "aim: under 1",
        ),
        ("served call, rms_norm 1 x 384", us(served["hit"]), ""),
        ("of which the artifact called bare, its guard in C included", us(served["bare"]), ""),
        ("of which allocation of the output", us(served["allocation"]), ""),
        ("of which the rest: checks in Python, over bare", us(over), "aim: 0.5"),
        ("torch.nn.functional.rms_norm, the same call", us(served["torch"]), ""),
        (
            "missed call, over the reference: an extent, seen in C",
            us(missed["extent"] - missed["reference"]),
            "aim: 1",
        ),
        (
            "missed call, over the reference: an attribute, seen in Python",
            us(missed["attribute"] - missed["reference"]),
            "aim: 1",
        ),
        ("served call, between calls that miss for an extent", us(missed["hit"]), ""),
        (
            "node of a compiled graph, over the served call that it makes",
            us(graphs["node"] - graphs["hit"]),
            f"torch.library.custom_op: {us(graphs['custom_op'] - graphs['hit'])}",
        ),
    ]


def us(value: float) -> str:
    return f"{value:.2f} us"


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        found = measure(promoted(Path(name)))
    how = f"one thread, medians of {ROUNDS} interleaved rounds of {CALLS} calls"
    record("dispatch", "Host time of a call", how, found, VERIFIED)
