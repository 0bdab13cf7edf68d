"""What evidence and policy may say no to."""

from tests.situations import workspace
from tests.situations.place import Place, Seen, situation
from tests.situations.project import OPS
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.plan import Origin, Values


@situation("Nothing is built")
def nothing_built(place: Place) -> Seen:
    """`tilegate evaluate` before `tilegate build`."""
    workspace.declared(place)
    return place.type("tilegate evaluate")


@situation("The source was edited since it was built")
def edited_source(place: Place) -> Seen:
    """One line more in the kernels' module: what was built is of another closure."""
    workspace.build(place)
    with (place.project / "kernels.py").open("a") as file:
        file.write("# a better one\n")
    return place.type("tilegate evaluate")


@situation("Nothing that this machine can run")
def another_level(place: Place) -> Seen:
    """The only artifact is for a higher instruction set."""
    workspace.build(place, level="x86-64-v4")
    return place.type("tilegate evaluate")


@situation("Nothing to promote")
def nothing_to_promote(place: Place) -> Seen:
    """`tilegate promote` before `tilegate build`."""
    workspace.declared(place)
    return place.type("tilegate promote")


@situation("No evidence")
def no_evidence(place: Place) -> Seen:
    """Built, and never evaluated."""
    workspace.build(place)
    return place.type("tilegate promote")


@situation("Nothing of the plan was run")
def nothing_ran(place: Place) -> Seen:
    """The kernel took its worker with it, again and again: what did not run has not passed."""
    workspace.evaluate(place, lambda _: None)
    return place.type("tilegate promote")


@situation("Wrong at every shape")
def always_wrong(place: Place) -> Seen:
    """Every entry of the plan came out WRONG."""
    workspace.evaluate(place, lambda _: EntryVerdict.WRONG)
    return place.type("tilegate promote")


@situation("Wrong for some values")
def value_dependence(place: Place) -> Seen:
    """Right with normal values, wrong with huge ones: no guard could tell the calls apart."""
    workspace.evaluate(
        place,
        lambda entry: EntryVerdict.WRONG if entry.values is Values.HUGE else EntryVerdict.PASSED,
        values=(Values.NORMAL, Values.HUGE),
    )
    return place.type("tilegate promote")


@situation("Too little to infer from")
def too_few(place: Place) -> Seen:
    """Two extents passed, and neither is served."""
    workspace.evaluate(place, extents=(5, 9), origin=Origin.BOUNDARY)
    return place.type("tilegate promote")


@situation("Isolation that policy does not accept")
def isolation(place: Place) -> Seen:
    """Evaluated with `--isolation reduced`, and policy says nothing of it: it accepts `full` alone."""
    workspace.evaluate(place, isolation=workspace.REDUCED)
    return place.type("tilegate promote")


@situation("A reference that cannot be imported", "long")
def no_reference(place: Place) -> Seen:
    """Its module raises, where the reference is run."""
    raising = "\n    import sys\n    if 'tilegate.evaluate.reference' in sys.modules:\n        raise OSError('no licence')\n"
    workspace.build(place, ops=OPS + raising)
    return place.type("tilegate evaluate")


@situation("A library that is another one than its manifest says", "long")
def another_library(place: Place) -> Seen:
    """The worker refuses it before the first entry."""
    workspace.build(place, identity="0" * 64)
    return place.type("tilegate evaluate")
