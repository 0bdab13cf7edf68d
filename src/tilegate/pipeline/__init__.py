"""What the commands call. The only place where build, evaluate, store and trust meet."""

from tilegate.pipeline import store
from tilegate.pipeline.build import build
from tilegate.pipeline.bundle import evaluate_bundle
from tilegate.pipeline.doctor import doctor
from tilegate.pipeline.evaluate import evaluate
from tilegate.pipeline.explain import explain
from tilegate.pipeline.export import export
from tilegate.pipeline.merge import merge
from tilegate.pipeline.promote import promote
from tilegate.pipeline.status import status

__all__ = [
    "build",
    "doctor",
    "evaluate",
    "evaluate_bundle",
    "explain",
    "export",
    "merge",
    "promote",
    "status",
    "store",
]
