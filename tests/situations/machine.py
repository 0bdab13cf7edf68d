"""What the machine lacks: packages, room, the right to write."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack, suppress

from tests.situations import workspace
from tests.situations.place import Impossible, Place, Seen, situation

WITHOUT = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
runpy.run_module("tilegate", run_name="__main__")
"""


def mounted(place: Place, folder: str, options: str) -> None:
    """A file system in memory over a folder of the project, until the place is left.

    Raises:
        Impossible: whoever runs this may not mount.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    path = place.project / folder
    path.mkdir(exist_ok=True)
    if libc.mount(b"none", bytes(path), b"tmpfs", ctypes.c_ulong(0), options.encode()):
        raise Impossible(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    undo = ExitStack()
    undo.callback(libc.umount2, bytes(path), 2)
    place.during(undo)


@situation("The commands without click")
def no_click(place: Place) -> Seen:
    """Serving does not need it, so `pip install tilegate` leaves it out."""
    return place.start("tilegate status", "-c", WITHOUT, "click")


@situation("A full disk under the workspace")
def full_workspace(place: Place) -> Seen:
    """Told before the work is begun."""
    workspace.declared(place)
    mounted(place, ".tilegate", "size=64k")
    with suppress(OSError), (place.project / ".tilegate/ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return place.type("tilegate build")


@situation("A full disk under the index")
def full_index(place: Place) -> Seen:
    """The blobs are there, and the index that was lost has no room."""
    workspace.evaluate(place)
    (place.project / ".tilegate").rename(place.project / "whole")
    mounted(place, ".tilegate", "size=256k")
    copied = place.project / ".tilegate/blobs/sha256"
    copied.mkdir(parents=True)
    for path in (place.project / "whole/blobs/sha256").iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    with suppress(OSError), (place.project / ".tilegate/ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return place.type("tilegate status")


@situation("A full disk under the release")
def full_release(place: Place) -> Seen:
    """What was released before stays released."""
    workspace.evaluate(place)
    mounted(place, "release", "size=16k")
    return place.type("tilegate promote")


@situation("A read-only workspace")
def read_only(place: Place) -> Seen:
    """Its file system is mounted read-only."""
    workspace.declared(place)
    mounted(place, ".tilegate", "size=64k,ro")
    return place.type("tilegate build")


@situation("A read-only release")
def read_only_release(place: Place) -> Seen:
    """Its file system is mounted read-only."""
    workspace.evaluate(place)
    mounted(place, "release", "size=64k,ro")
    return place.type("tilegate promote")
