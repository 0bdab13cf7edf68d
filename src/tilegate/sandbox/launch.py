"""Starting a sandbox and ending it: the parent's side of the door.

    with opened(policy, warm=(...)) as box:
        box.start(0, job) ...

What stands in the way of the isolation that was asked for is an error before anything foreign runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilegate.errors import SandboxError
from tilegate.records.canonical import encode
from tilegate.records.isolation import JobPolicy, Level, Reads
from tilegate.sandbox import bubblewrap, cgroup, confine, control, slots, trees
from tilegate.sandbox.box import Box
from tilegate.sandbox.folder import scratch_folder
from tilegate.sandbox.missing import lacking

_HERE = Path(__file__).parent
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",  # sums must not depend on how many cores a machine has
    "HF_HUB_OFFLINE": "1",
    # TileLang's cache holds libraries and pickles that are run when found: never shared.
    "TILELANG_DISABLE_CACHE": "1",
    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",  # importing tvm_ffi would start a C++ build for some torch
}
"""All that a job sees of the environment, with PATH and a home of its own."""


@contextlib.contextmanager
def opened(
    policy: JobPolicy, *, warm: Sequence[str] = (), import_paths: Sequence[str] = (), parallel: int = 1
) -> Iterator[Box]:
    """A sandbox for the length of a `with`, that has been started. Afterwards it and its folder are gone.

    Args:
        policy: what its tasks may see and take.
        warm: modules that it imports before the first task.
        import_paths: more entries at the end of `sys.path`, to be read.
        parallel: how many tasks will run at once.

    Raises:
        SandboxError: a piece of the isolation is missing, or the process could not be started.
    """
    with ExitStack() as ours:
        try:
            box = _start(policy, tuple(warm), tuple(import_paths), parallel, ours)
        except OSError as error:
            raise SandboxError(
                "a job could not be started",
                where=str(error.filename or policy.kind),
                why=error.strerror or str(error),
                next_step="free memory, processes or space for temporary files; Linux 5.13 or later is needed",
            ) from error
        yield box


def _start(
    policy: JobPolicy, warm: tuple[str, ...], import_paths: tuple[str, ...], parallel: int, ours: ExitStack
) -> Box:
    place = _place(policy, import_paths, parallel, ours)
    with ExitStack() as theirs:
        parent, child = control.pair()
        ours.callback(parent.close)
        theirs.callback(child.close)
        output, output_writer = os.pipe()
        ours.callback(os.close, output)
        theirs.callback(os.close, output_writer)
        os.set_blocking(output, False)
        order = control.Order(
            level=policy.level,
            limits=policy.within(processes=policy.limits.processes * parallel).limits,
            control_fd=child.fileno(),
            uid=os.getuid() if place.slot is None else place.slot,
            cgroup=place.group is not None,
            own_user=policy.level is Level.FULL or place.slot is not None,
            parent=os.getpid(),
            parents=confine.namespaces(),
            reads=tuple(map(str, place.reads)),
            devices=tuple(map(str, trees.nodes())) if policy.level is Level.GPU else (),
            memory_files=policy.memory_files,
            scratch=place.scratch,
            warm=warm,
        )
        inner = [sys.executable, "-I", "-B", "-X", "utf8", str(_HERE / "inner.py"), encode(order).decode()]
        process = subprocess.Popen(
            **_program(place, [*inner, *import_paths]),
            stdin=subprocess.DEVNULL,
            stdout=output_writer,
            stderr=output_writer,
            pass_fds=(child.fileno(),),
            start_new_session=True,
            umask=0o077,
        )
    box = Box(process, parent, output, policy.level, place.group)
    ours.callback(box.close)
    return box


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a sandbox is made, and as whom."""

    policy: JobPolicy
    reads: tuple[Path, ...]
    slot: int | None
    """The user id that it has to itself, where this process may give it one."""
    scratch: str
    environment: dict[str, str]
    group: cgroup.Group | None


def _place(policy: JobPolicy, import_paths: Sequence[str], parallel: int, ours: ExitStack) -> _Place:
    driver = (Reads.DRIVER,) if policy.level is Level.GPU else ()
    reads = trees.visible((*policy.reads, *driver), import_paths)
    confined = policy.level is not Level.NONE
    if confined and slots.stuck_as_root():
        raise lacking(policy.level, "another user", "this is root, in a namespace that has no other user id")
    slot = ours.enter_context(slots.claimed()) if confined and slots.switchable() else None
    full = policy.level is Level.FULL
    scratch = bubblewrap.SCRATCH if full else ours.enter_context(scratch_folder(slot))
    if slot is not None and not full:
        ours.callback(slots.sweep, slot)
    path = trees.search_path(policy.reads, reads) if confined else os.environ.get("PATH", os.defpath)
    environment = {**_ENVIRONMENT, "PATH": path, "HOME": scratch, "TMPDIR": scratch}
    bounds = {
        "memory_bytes": policy.limits.job_bytes * parallel + policy.limits.scratch_bytes,
        "processes": policy.limits.processes * parallel,
    }
    group = ours.enter_context(cgroup.group(**bounds)) if confined else None
    return _Place(policy, reads, slot, scratch, environment, group)


def _program(place: _Place, command: list[str]) -> dict[str, Any]:
    """What `Popen` starts: the child itself, bubblewrap in front of it, or what opens shut folders before both."""
    environment, folder = place.environment, place.scratch
    if place.policy.level is Level.FULL:
        bwrap = bubblewrap.program()
        if bwrap is None:
            raise lacking(Level.FULL, "bubblewrap", f"no {bubblewrap.PROGRAMS[0]} that can be run")
        command = bubblewrap.command(
            bwrap, command, reads=place.reads, aliases=trees.aliases(),
            environment=environment, limits=place.policy.limits,
        )  # fmt: skip
        environment, folder = {}, "/"  # bubblewrap's own: it is seen from inside
    shut = trees.shut(place.reads) if place.slot is not None else ()
    if not shut and place.group is None:
        user = {"user": place.slot, "group": place.slot, "extra_groups": []} if place.slot is not None else {}
        return {"args": command, "env": environment, "cwd": folder, **user}
    order = {
        "doors": place.group.doors if place.group is not None else (),
        "shut": [str(path) for path in shut],
        "needed": [str(path) for path in place.reads],
        "uid": place.slot,
        "command": command,
        "environment": environment,
    }
    outer = [sys.executable, "-I", "-S", str(_HERE / "outer.py"), json.dumps(order)]
    return {"args": outer, "env": {}, "cwd": folder}
