"""Load of a release with 1,000 artifacts, against reading and hashing the same bytes."""

from __future__ import annotations

import hashlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import torch
from figures import ROOT, Row, record

sys.path.insert(0, str(ROOT))
from tests import world
from tilegate.processor import local_processor
from tilegate.records.canonical import blob_of
from tilegate.runtime.load import Place, load
from tilegate.store.layout import Layout
from tilegate.trust.verify import verify

ARTIFACTS, ROUNDS = 1000, 7


def variants(count: int):
    """Artifacts that differ in identity only: the string is exchanged in the library's bytes."""
    elaboration = world.elaboration_of(world.SCALE_CONTRACT)
    manifest, library = world.artifact(elaboration, world.SCALE, "FACTOR=2")
    for number in range(count):
        identity = hashlib.sha256(str(number).encode()).hexdigest()
        data = library.replace(manifest.identity.encode(), identity.encode())
        yield msgspec.structs.replace(manifest, identity=identity, library=blob_of(data)), data


def measure(root: Path) -> list[Row]:
    world.write_release(root, world.SCALE_CONTRACT, list(variants(ARTIFACTS)))
    files = list((root / "blobs/sha256").iterdir())
    size = sum(path.stat().st_size for path in files)
    loads, hashes, checks = [], [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for path in files:
            hashlib.sha256(path.read_bytes()).digest()
        hashes.append(time.perf_counter() - start)
        layout = Layout(root)
        start = time.perf_counter()
        release = verify(layout.open_statement(), allow_unsigned=True)
        checks.append(time.perf_counter() - start)
        start = time.perf_counter()
        table = load(release, layout.open_blob, [Place(-1, local_processor())])
        loads.append(time.perf_counter() - start)
        assert len(table.loaded["scale"]) == ARTIFACTS
        del table
    read, verified, opened = (statistics.median(v) * 1000 for v in (hashes, checks, loads))
    return [
        (f"reading and hashing {len(files)} blobs, {size / 1e6:.1f} MB", f"{read:.0f} ms", ""),
        ("the statement: read, decoded, cross-checked", f"{verified:.0f} ms", ""),
        ("load: every blob read and hashed, decoded, opened, identity compared", f"{opened:.0f} ms", ""),
        ("load, per artifact", f"{opened / ARTIFACTS:.2f} ms", ""),
    ]


if __name__ == "__main__":
    torch.empty(0)
    with tempfile.TemporaryDirectory() as name:
        found = measure(Path(name) / "release")
    record("load", "Load of a thousand artifacts", f"medians of {ROUNDS} rounds in one process", found)
