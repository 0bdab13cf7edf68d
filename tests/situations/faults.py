"""Calls that neither a binary nor the reference can answer: a GPU fails, as the stand-in driver plays it."""

import importlib
from contextlib import ExitStack
from unittest import mock

import pytest
import torch

from tests import gpus, world
from tests.driver.hosts import host, launch, pointer
from tests.driver.standin import Standin, kernel, standin
from tests.situations.place import Place, Seen, situation
from tests.situations.project import OPS
from tilegate import api

IN_PLACE = """
import tilegate

@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"x": "float32[n]"}, in_place=("x",))
def twice_(x):
    return x.mul_(2)
"""
HALVES = host(launch(pointer("AT(0)->data"), name="first"), launch(pointer("AT(0)->data"), name="second"))


def with_gpu(place: Place, ops: str, operator: str, **made: object) -> Standin:
    """A project with a release for a GPU that is there, and `torch.ones` that can make tensors on it."""
    patch, stack = pytest.MonkeyPatch(), ExitStack()
    stack.callback(api._force.lost.clear)
    stack.callback(patch.undo)
    stack.enter_context(mock.patch.object(torch, "ones", lambda n, device: gpus.GpuTensor(n)))
    place.during(stack)
    driver = gpus.pretend(patch, standin(), gpus.H200)
    driver.fresh()
    place.write(ops=ops)
    contract = getattr(importlib.import_module("ops"), operator).contract()
    world.write_parts(place.project / "release", gpus.part(contract, **made))
    api.synchronized()
    return driver


@situation("A device is lost")
def lost(place: Place) -> Seen:
    """A kernel has written where nothing is: the driver says so at the next call, whatever that is."""
    driver = with_gpu(place, OPS, "twice")
    driver.make_sticky(700)
    return place.python("""
        import torch
        from ops import twice

        tilegate.use("release", allow_unsigned=True)
        twice(torch.ones(4, device="cuda"))
    """)


@situation("An in-place call stops half way")
def half(place: Place) -> Seen:
    """The driver launches the first of two kernels, and refuses the second."""
    kernels = tuple(kernel("pointer", name=name) for name in ("first", "second"))
    driver = with_gpu(place, IN_PLACE, "twice_", host=HALVES, kernels=kernels)
    api.use(place.project / "release", allow_unsigned=True)
    call = importlib.import_module("ops").twice_
    call(gpus.GpuTensor(4))
    driver.forget()
    call(gpus.GpuTensor(4))
    second = [i for i, name in enumerate(driver.calls(), 1) if name == "cuLaunchKernel"][1]
    driver.fail(second, 701)
    return place.python("""
        import torch
        from ops import twice_

        twice_(torch.ones(4, device="cuda"))
    """)
