"""What a build can meet, from a module's import to the compiler."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from tests.situations.place import Place, Seen, situation
from tests.situations.project import KERNELS, OPS, TOML
from tilegate import pipeline
from tilegate.build.jobs import elaborate
from tilegate.pipeline.tools import Tools
from tilegate.sandbox import JobPolicy, bubblewrap

COPY = """
    import tilegate

    @tilegate.kernel("ops:twice", dynamic=("n",))
    def rows(n):
        import tilelang.language as T

        @T.prim_func
        def copy(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
            with T.Kernel(1):
                for i in T.serial(n):
                    y[i] = 2.0 * x[i]

        return copy
"""

FACTORIES = """
    import tilegate

    @tilegate.kernel("ops:twice", specialize={"n": (1, 2, 3, 4, 5)})
    def rows(n):
        import tilelang.language as T

        if n == 1:
            raise ValueError("no rows")
        if n == 2:
            return [n]
        if n == 3:
            raise SystemExit

        @T.prim_func
        def copy(x: T.Tensor((64, 1) if n == 4 else (64,), "float32"), y: T.Tensor((64,), "float32")):
            with T.Kernel(1):
                T.evaluate(0)

        return copy
"""


def built(place: Place, more: str = "", *, kernels: str = KERNELS, how: str = "") -> Seen:
    """Build with something more at the end of the kernels' module."""
    place.write(toml=TOML, ops=OPS, kernels=f"{kernels}\n    {more}\n")
    return place.type(f"tilegate build {how}".rstrip())


@situation("A kernels module that imports what is not installed")
def missing_import(place: Place) -> Seen:
    """`import nowhere_to_be_found`, in the seventh line."""
    return built(place, "import nowhere_to_be_found")


@situation("A kernels module that imports a name that is not there")
def missing_name(place: Place) -> Seen:
    """`from ops import thrice`."""
    return built(place, "from ops import thrice")


@situation("A kernels module that raises when it is imported")
def module_raises(place: Place) -> Seen:
    """Its last line fails. What it says may hold data, so only its length is told."""
    return built(place, "{}['twice']")


@situation("A kernels module that leaves the process")
def module_exits(place: Place) -> Seen:
    """`os._exit(7)`."""
    return built(place, "import os; os._exit(7)")


@situation("A kernels module that crashes")
def module_crashes(place: Place) -> Seen:
    """It reads address 0."""
    return built(place, "import ctypes; ctypes.string_at(0)")


@situation("A kernels module or factory that never ends")
def endless(place: Place) -> Seen:
    """`while True: pass`. The limit is 1.5 s here, and 120 s otherwise."""

    def impatient(*asked: Any, policy: JobPolicy, **how: Any) -> Any:
        return elaborate(*asked, policy=policy.within(wall_s=1.5, silence_s=1.5), **how)

    tools = Tools(elaborate=impatient)
    place.during(mock.patch.object(pipeline, "build", partial(pipeline.build, tools=tools)))
    return built(place, "while True: pass")


@situation("A factory that is not in its module")
def missing_factory(place: Place) -> Seen:
    """A `[[kernel]]` table says `factory = "kernels:row"`."""
    place.write(
        toml="""
            operators = ["ops"]
            targets = ["cpu:x86-64-v2"]

            [[kernel]]
            operator = "ops:twice"
            factory = "kernels:row"
            dynamic = ["n"]
        """,
        ops=OPS,
        kernels=KERNELS,
    )
    return place.type("tilegate build")


@situation("Factories that raise, return something else, exit, or contradict the contract", "compiler")
def factories(place: Place) -> Seen:
    """One kernel with five values of `n`, of which each goes wrong in a way of its own."""
    return built(place, kernels=FACTORIES)


@situation("TileLang is not installed")
def no_tilelang(place: Place) -> Seen:
    """`import tilelang` fails in the kernels' module."""
    return built(place, "import sys; sys.modules['tilelang'] = None; import tilelang")


@situation("No compiler", "compiler", "long")
def no_compiler(place: Place) -> Seen:
    """gcc and g++ are not on PATH."""
    place.during(mock.patch.dict(os.environ, {"PATH": str(place.root)}))
    return built(place, kernels=COPY)


@situation("No compiler, and somebody asked before building")
def no_compiler_doctor(place: Place) -> Seen:
    """As before. The spaces between the columns are shortened here."""
    place.during(mock.patch.dict(os.environ, {"PATH": str(place.root)}))
    seen = place.type("tilegate doctor")
    lines = [re.sub(" {2,}", "  ", line) for line in seen.text.splitlines() if "gcc" in line]
    return Seen("$ tilegate doctor | grep gcc", "\n".join(lines), 0)


@situation("No room for a job")
def no_room(place: Place) -> Seen:
    """The folder for temporary files is gone. Under `full` a job does not need one."""
    place.during(mock.patch.object(tempfile, "tempdir", str(place.root / "gone")))
    return built(place, how="--isolation reduced")


@situation("No bubblewrap")
def no_bubblewrap(place: Place) -> Seen:
    """It is not installed. The same screen tells of any other piece of the sandbox."""
    place.during(mock.patch.object(bubblewrap, "PROGRAMS", (str(place.root / "bwrap"),)))
    return built(place)


@situation("Ctrl-C")
def interrupted(place: Place) -> Seen:
    """While a factory runs. When the command returns, so has its job."""
    name = f"tg-{secrets.token_hex(5)}"
    place.write(toml=TOML, ops=OPS, kernels=KERNELS + _running_until_killed(name))
    process = subprocess.Popen(
        [sys.executable, "-m", "tilegate", "build"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until = time.monotonic() + 120
    while not _running(name):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "the factory does not begin"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert not _running(name)
    return Seen("$ tilegate build\n^C", text, process.returncode)


def _running_until_killed(name: str) -> str:
    return f"""
    import ctypes, time
    ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)
    time.sleep(3600)
"""


def _running(name: str) -> bool:
    """Whether a process of this machine calls itself so."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it went meanwhile
            if (process / "comm").read_text().strip() == name:
                return True
    return False
