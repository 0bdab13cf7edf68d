"""The describe job: import operator modules, say what they declare. Runs inside the sandbox."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from tilegate.build.failing import failure
from tilegate.build.requests import DescribeRequest
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.sandbox import importer


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """Emit a `declaration` frame for each operator that the modules declare, or one `failure` frame."""
    request = decode(DescribeRequest, inputs["request"], where="describe request")
    sources = {digest_of(data): data for name, data in inputs.items() if name != "request"}
    importer.install(request.files, sources)
    for name in request.modules:
        try:
            module = importlib.import_module(name)
            for value in vars(module).values():
                declaration = getattr(value, "declaration", None)
                if callable(declaration) and getattr(value, "origin", "").startswith(f"{name}:"):
                    emit("declaration", encode(declaration()))
        except BaseException as error:  # noqa: BLE001 - a module may raise anything
            emit("failure", failure("import", error, module=name))
            return
