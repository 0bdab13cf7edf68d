"""What the commands call. The only place where build, evaluate, store and trust meet."""

from tilegate.pipeline import store
from tilegate.pipeline.build import build
from tilegate.pipeline.doctor import doctor
from tilegate.pipeline.evaluate import evaluate
from tilegate.pipeline.explain import explain
from tilegate.pipeline.promote import promote
from tilegate.pipeline.status import status

__all__ = ["build", "doctor", "evaluate", "explain", "promote", "status", "store"]
