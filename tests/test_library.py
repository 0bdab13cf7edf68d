"""Opening artifacts from memory: the right one always runs."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest
import torch

from tests import world
from tilegate.errors import ToolError, TrustError
from tilegate.library import Rows, open_library

ELABORATION = world.elaboration_of(world.SCALE_CONTRACT)


def scaled_by(factor):
    return world.artifact(ELABORATION, world.SCALE, f"FACTOR={factor}")


def run(library):
    x, y = torch.ones(4), torch.empty(4)
    assert library.entry(x, y, Rows.admitting_all(("n",)).address) == 0
    return y[0].item()


def test_two_artifacts_loaded_closed_and_reloaded_hot_run_their_own_code():
    """glibc takes libraries of equal path for one: descriptors are reused, paths must not be."""
    (m2, two), (m3, three) = scaled_by(2), scaled_by(3)
    for _ in range(40):
        first = open_library(two, identity=m2.identity)
        assert run(first) == 2
        del first
        second = open_library(three, identity=m3.identity)
        assert run(second) == 3
        third = open_library(two, identity=m2.identity)
        assert (run(second), run(third)) == (3, 2)
        del second, third


def test_a_thousand_loads_keep_no_descriptor():
    (m2, two), (m3, three) = scaled_by(2), scaled_by(3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    held = []
    for i in range(1100):
        data, manifest, factor = ((two, m2, 2), (three, m3, 3))[i % 2]
        held.append((open_library(data, identity=manifest.identity), factor))
    assert [run(library) for library, _ in held[::50]] == [factor for _, factor in held[::50]]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_library_of_another_identity_is_never_called():
    (m2, _), (_, three) = scaled_by(2), scaled_by(3)
    with pytest.raises(TrustError, match="not the one its manifest names"):
        open_library(three, identity=m2.identity)


def test_bytes_that_are_no_library_are_a_tool_error():
    with pytest.raises(ToolError, match="loader refuses"):
        open_library(b"\x7fELF not really", identity="0")


def test_an_entry_outlives_the_library_object():
    manifest, data = scaled_by(2)
    entry = open_library(data, identity=manifest.identity).entry
    gc.collect()
    x, y = torch.ones(4), torch.empty(4)
    assert entry(x, y, Rows.admitting_all(("n",)).address) == 0
    assert y[0].item() == 2


def test_hits_of_many_threads_are_all_counted():
    manifest, data = scaled_by(2)
    library = open_library(data, identity=manifest.identity)
    rows = Rows([world.any_shape(("n",))], ("n",))

    def work():
        x, y = torch.ones(4), torch.empty(4)
        for _ in range(2000):
            library.entry(x, y, rows.address)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows.hits() == (16000,)
