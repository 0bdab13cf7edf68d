"""What may be wrong with the words of `tilegate explain`, and what it says where no binary answers."""

from tests.situations import workspace
from tests.situations.place import Place, Seen, situation


def explained(place: Place, words: str) -> Seen:
    """Explain a call of the released operator."""
    workspace.release(place)
    return place.type(f"tilegate explain {words}")


@situation("No release to explain")
def no_release(place: Place) -> Seen:
    """Nothing was promoted yet."""
    workspace.declared(place)
    return place.type("tilegate explain twice n=4")


@situation("An unknown operator")
def unknown_operator(place: Place) -> Seen:
    """A slip in its name."""
    return explained(place, "twise n=4")


@situation("An axis that the operator has not")
def unknown_axis(place: Place) -> Seen:
    """The operator has `n`."""
    return explained(place, "twice N=4")


@situation("A missing axis")
def missing_axis(place: Place) -> Seen:
    """Every axis needs an extent."""
    return explained(place, "twice")


@situation("No number")
def no_number(place: Place) -> Seen:
    """An extent is a whole number."""
    return explained(place, "twice n=four")


@situation("A negative extent")
def negative(place: Place) -> Seen:
    """An extent is 0 or more."""
    return explained(place, "twice n=-4")


@situation("A word without its value")
def no_value(place: Place) -> Seen:
    """AXIS=EXTENT is meant."""
    return explained(place, "twice n 4")


@situation("A shape without evidence")
def no_class(place: Place) -> Seen:
    """No error: the reference answers."""
    return explained(place, "twice n=65")


@situation("A release for another processor")
def another_processor(place: Place) -> Seen:
    """No error: the reference answers. The only artifact is for a higher instruction set."""
    workspace.release(place, level="x86-64-v4")
    return place.type("tilegate explain twice n=4")
