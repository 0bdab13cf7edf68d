"""The commands: one verb each, one thin file each. Only here is anything printed, and only here do we exit."""

from __future__ import annotations

import click

from tilegate.cli.build import build
from tilegate.cli.doctor import doctor
from tilegate.cli.drill import drill
from tilegate.cli.evaluate import evaluate
from tilegate.cli.explain import explain
from tilegate.cli.output import Group
from tilegate.cli.promote import promote
from tilegate.cli.status import status
from tilegate.cli.store import store


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tilegate")
def commands() -> None:
    r"""JIT-compiled AI kernels, shipped as tested binaries.

    \b
    reviewed source    -> controlled build -> tested, signed binary
    shape/device check -> run the binary, or the framework (PyTorch) reference
    error              -> sanitized compiler trace

    Exit codes: 0 accepted, 1 rejected, 2 usage, 3 a tool failed, 4 trust failed; 130 after Ctrl-C.
    Data goes to stdout (--json: stable and versioned), sentences to stderr.
    """


for command in (build, evaluate, promote, status, explain, doctor, drill, store):
    commands.add_command(command)
