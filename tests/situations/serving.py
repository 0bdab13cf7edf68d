"""Calls that raise because their operator is declared with `strict=True`."""

from tests.situations import workspace
from tests.situations.place import Place, Seen, situation
from tests.situations.project import OPS

STRICT = OPS.replace('served=[{"n": 4}]', "strict=True")


def called(place: Place, call: str) -> Seen:
    """Call the strict operator under the release that is there."""
    return place.python(f"""
        import torch
        from ops import twice

        tilegate.use("release", allow_unsigned=True)
        {call}
    """)


@situation("No evidence for the shape")
def strict_shape(place: Place) -> Seen:
    """65 elements, where 0 to 64 were evaluated."""
    workspace.release(place, ops=STRICT)
    return called(place, "twice(torch.ones(65))")


@situation("Another dtype")
def strict_dtype(place: Place) -> Seen:
    """float64, where the contract says float32."""
    workspace.release(place, ops=STRICT)
    return called(place, "twice(torch.ones(4, dtype=torch.float64))")


@situation("A view")
def strict_view(place: Place) -> Seen:
    """Every second element, where the contract says nothing of `strided`."""
    workspace.release(place, ops=STRICT)
    return called(place, "twice(torch.ones(8)[::2])")


@situation("Another processor")
def strict_processor(place: Place) -> Seen:
    """The only artifact is for a higher instruction set."""
    workspace.release(place, ops=STRICT, level="x86-64-v4")
    return called(place, "twice(torch.ones(4))")


@situation("An operator that was edited since it was evaluated")
def strict_changed(place: Place) -> Seen:
    """The reference says `3 * x` now."""
    workspace.release(place, ops=STRICT)
    place.write(ops=STRICT.replace("2 * x", "3 * x"))
    place.forget()
    return called(place, "twice(torch.ones(4))")


@situation("An operator that is not in the release")
def strict_absent(place: Place) -> Seen:
    """It was declared after the promotion."""
    workspace.release(place)
    place.write(more=STRICT.replace("twice", "thrice").replace("2 *", "3 *"))
    return place.python("""
        import torch
        from more import thrice

        tilegate.use("release", allow_unsigned=True)
        thrice(torch.ones(4))
    """)
