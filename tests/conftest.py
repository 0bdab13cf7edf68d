"""Tests marked `compiler` are skipped, with the reason, where TileLang or a C compiler is missing."""

import importlib.util
import shutil

import pytest

MISSING = [tool for tool in ("gcc", "g++") if shutil.which(tool) is None]
MISSING += ["tilelang"] if importlib.util.find_spec("tilelang") is None else []


def pytest_collection_modifyitems(items):
    if MISSING:
        skip = pytest.mark.skip(reason=f"not installed: {', '.join(MISSING)}")
        for item in items:
            if item.get_closest_marker("compiler"):
                item.add_marker(skip)
