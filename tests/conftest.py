"""Tests marked `compiler` are skipped, with the reason, where TileLang or a C compiler is missing."""

import importlib.util
import os
import shutil

import pytest
from hypothesis import settings

MISSING = [tool for tool in ("gcc", "g++") if shutil.which(tool) is None]
MISSING += ["tilelang"] if importlib.util.find_spec("tilelang") is None else []


def pytest_collection_modifyitems(items):
    if MISSING:
        skip = pytest.mark.skip(reason=f"not installed: {', '.join(MISSING)}")
        for item in items:
            if item.get_closest_marker("compiler"):
                item.add_marker(skip)


settings.register_profile("long", max_examples=1_000, deadline=None)
if profile := os.environ.get("TILEGATE_HYPOTHESIS"):
    settings.load_profile(profile)


@pytest.fixture
def driver():
    """The stand-in for the CUDA driver, as new; whatever it must not see fails the test."""
    from tests.driver.standin import standin  # here: tvm_ffi imports torch

    one = standin()
    one.fresh()
    yield one
    state = one.state()
    assert one.violations() == []
    assert (state["depth"], state["relaxed"], state["kept"]) == (0, 0, 0)


@pytest.fixture
def machine(monkeypatch, driver):
    """`machine(H200, ...)`: this machine has these GPUs, as many as the stand-in driver has. Returns the driver."""
    from tests.gpus import pretend  # here: likewise

    return lambda *devices, **facts: pretend(monkeypatch, driver, *devices, **facts)
