"""Slips on the command line."""

import contextlib
import os
from pathlib import Path

from tests.situations import workspace
from tests.situations.place import Place, Seen, situation


@situation("An unknown command")
def unknown_command(place: Place) -> Seen:
    """Commands are written in small letters."""
    return place.type("tilegate Build")


@situation("An unknown option")
def unknown_option(place: Place) -> Seen:
    """A letter is missing."""
    return place.type("tilegate status --jsn")


@situation("A missing argument")
def missing_argument(place: Place) -> Seen:
    """Which operator?"""
    return place.type("tilegate explain")


@situation("A value that an option does not take")
def bad_value(place: Place) -> Seen:
    """No blob is younger than nothing."""
    return place.type("tilegate store gc --grace-s -1")


@situation("A folder that does not exist")
def no_folder(place: Place) -> Seen:
    """A slip in the path behind -C."""
    return place.type("tilegate status -C nowhere")


@situation("A current folder that was removed")
def removed_folder(place: Place) -> Seen:
    """By another terminal."""
    gone = place.root / "gone"
    gone.mkdir()
    place.during(contextlib.chdir(gone))
    gone.rmdir()
    return place.type("tilegate status")


@situation("An unknown target")
def unknown_target(place: Place) -> Seen:
    """A target is a backend and an instruction set, not a machine."""
    workspace.declared(place)
    return place.type("tilegate build -t cpu:native")


@situation("An operator or kernel that is not there")
def unknown_name(place: Place) -> Seen:
    """A letter is missing."""
    workspace.declared(place)
    return place.type("tilegate build row")


@situation("Standard output cannot be written")
def full_output(place: Place) -> Seen:
    """It goes to a disk that is full."""
    workspace.declared(place)
    with Path("/dev/full").open("w") as full:
        return place.start("tilegate status > /dev/full", "-m", "tilegate", "status", stdout=full.fileno())


@situation("The reader of standard output has gone", "long")
def broken_pipe(place: Place) -> Seen:
    """No failure, and not a word."""
    workspace.declared(place)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return place.start("tilegate status | head -0", "-m", "tilegate", "status", stdout=writer)
    finally:
        os.close(writer)
