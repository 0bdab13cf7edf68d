"""At whoever reads the results. The same at every level: it is the host that must not be fooled."""

from tilegate.drill.probe import Expected, Probe, blocked
from tilegate.records.drill import Theme
from tilegate.sandbox import Ending

_T = Theme.RESULTS


def _always(name: str, tries: str, why: str, *ends: Ending) -> Probe:
    same: Expected = blocked(why)
    return Probe(name, _T, tries, same, same, same, ends=frozenset(ends))


_STREAM = "a stream that breaks a rule is refused as a whole"

RESULTS = (
    _always(
        "exit-code",
        "prints PASS and exits with 0",
        "only a complete stream counts as finished",
        Ending.EXITED,
        Ending.PROTOCOL,
    ),
    _always("pickle-as-result", "sends pickles that would make a file", "nothing is ever unpickled"),
    _always(
        "library-as-result",
        "sends a library with constructors",
        "a library is looked into before it is opened",
    ),
    _always(
        "forged-word",
        "forges what the job is said to be isolated by",
        "the trusted part says it, over a socket that no task holds",
        Ending.PROTOCOL,
    ),
    _always(
        "early-end",
        "forges the end of the stream, with nothing in it",
        "an end without results is none",
        Ending.FINISHED,
        Ending.PROTOCOL,
        Ending.EXITED,
    ),
    _always("noise", "writes into every descriptor it finds", _STREAM, Ending.PROTOCOL),
    _always("many-frames", "100,000 frames", "frames are counted", Ending.TOO_LARGE),
    _always("long-frame", "16 MiB in one frame", "frames have a largest size", Ending.TOO_LARGE),
    _always("endless-header", "a name of 60,000 characters", _STREAM, Ending.PROTOCOL),
    _always("printing", "prints 8 MiB", "the first part is kept, the rest is counted and dropped"),
    _always("cursor", "prints what moves a terminal's cursor", "what a job prints is never shown raw"),
    _always(
        "closed-streams",
        "closes everything and leaves",
        "only a complete stream counts as finished",
        Ending.EXITED,
        Ending.PROTOCOL,
    ),
)
