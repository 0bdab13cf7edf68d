"""Inside the job: the trusted start of the child, run by path as a program of its own.

    parent ── bubblewrap ── init (pid 1) ── keeper ── task, task, ...      full
    parent ── keeper ── task, task, ...                                    reduced, none

It confines itself, tells what came of it, imports what all tasks need, and becomes the keeper: a process that
runs nothing foreign, forks a child for each task, and tells how each ended.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import socket
import sys
from pathlib import Path


def _own(name: str, root: Path) -> None:
    """Both sides of the wall run the same tilegate, whichever others the search path holds, if any.

    What a package offers is loaded when it is first asked for: most tasks declare no operator and start no job.
    """
    spec = importlib.util.spec_from_file_location(
        name, root / "__init__.py", submodule_search_locations=[str(root)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{root} is no package")
    sys.modules[name] = package = importlib.util.module_from_spec(spec)
    execute = spec.loader.exec_module

    def load(attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if importlib.util.find_spec(f"{name}.{attribute}"):
            return importlib.import_module(f"{name}.{attribute}")
        del package.__dict__["__getattr__"]
        execute(package)
        return getattr(package, attribute)

    package.__dict__["__getattr__"] = load


sys.path += sys.argv[2:]
_own("tilegate", Path(__file__).parents[1])
_own("tilegate.sandbox", Path(__file__).parent)

from tilegate.records.canonical import decode  # noqa: E402 (found by the line above)
from tilegate.records.isolation import Level  # noqa: E402 (found by the line above)
from tilegate.sandbox import confine, control  # noqa: E402 (found by the line above)
from tilegate.sandbox.keeper import Keeper  # noqa: E402 (found by the line above)


def main() -> None:
    order = decode(control.Order, sys.argv[1].encode(), where="the order of a job")
    parent = socket.socket(fileno=order.control_fd)
    parent.set_inheritable(False)
    if order.level is Level.FULL:
        os.environ.pop("PWD", None)  # bubblewrap's own addition
    else:
        confine.die_with(order.parent)  # there, bubblewrap sees to it
    try:
        isolation = confine.confine(order)
    except confine.Unavailable as error:
        parent.send(control.write(error.lacking))
        os._exit(1)
    for module in order.warm:
        with contextlib.suppress(Exception):  # a task that needs it says so in words of its own
            importlib.import_module(module)
    parent.send(control.write(control.Ready(isolation=isolation)))
    Keeper(parent, order.scratch, fenced=isolation.landlock > 0).serve()


if __name__ == "__main__":
    main()
