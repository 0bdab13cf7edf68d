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
