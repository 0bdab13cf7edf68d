"""Packages written to disk for one test, under a folder and a name of their own."""

import importlib
import itertools
import sys
import textwrap
from contextlib import contextmanager

SERIAL = itertools.count()


@contextmanager
def imported(folder, files, module, *, name=None):
    """Write `files` as a package below `folder`, import one module of it, and forget it again."""
    name = name or f"written{next(SERIAL)}"
    for path, text in files.items():
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(f"{name}.{module}")
    finally:
        sys.path.remove(str(folder))
        for known in [m for m in sys.modules if m.partition(".")[0] == name]:
            del sys.modules[known]
