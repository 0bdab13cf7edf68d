"""tilegate: JIT-compiled AI kernels, shipped as tested binaries.

    reviewed source    -> controlled build -> tested, signed binary
    shape/device check -> run the binary, or the framework (PyTorch) reference
    error              -> sanitized compiler trace

Importing it loads neither torch nor a compiler: those come when a release is used, or in a job's process.
"""

from tilegate.api import (
    Explanation,
    Graph,
    InUse,
    Miss,
    MissReason,
    OperatorStats,
    Prediction,
    Recapture,
    Tolerance,
    explain,
    generation,
    graphs,
    kernel,
    on_recapture,
    operator,
    preflight,
    recording,
    reference_only,
    stats,
    suspects,
    synchronized,
    use,
)

__all__ = [
    "Explanation",
    "Graph",
    "InUse",
    "Miss",
    "MissReason",
    "OperatorStats",
    "Prediction",
    "Recapture",
    "Tolerance",
    "explain",
    "generation",
    "graphs",
    "kernel",
    "on_recapture",
    "operator",
    "preflight",
    "recording",
    "reference_only",
    "stats",
    "suspects",
    "synchronized",
    "use",
]
