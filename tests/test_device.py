"""Which GPU runs what, and a machine that has none."""

from __future__ import annotations

import pytest

from tilegate import device
from tilegate.device import cuda_class, gpus
from tilegate.records.target import Target, runs_on


@pytest.mark.parametrize(
    ("target", "capability", "runs"),
    [
        ("sm_90a", (9, 0), True),
        ("sm_90a", (10, 0), False),
        ("sm_90a", (9, 1), False),
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_89", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_100a", (10, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_120a", (12, 0), True),
    ],
)
def test_machine_code_runs_on_its_own_generation_only(target, capability, runs):
    """There is no PTX in an artifact that a driver could compile for a later one."""
    one = cuda_class(*capability, "NVIDIA some GPU")
    assert runs_on(Target.parse(f"cuda:{target}"), one) is runs
    assert not runs_on(Target.parse("cpu:x86-64-v2"), one)


def test_a_device_class_reads_as_people_say_it():
    assert str(cuda_class(9, 0, "NVIDIA H200")) == "cuda:sm_90 (NVIDIA H200)"


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch):
    monkeypatch.setattr(device, "DRIVER", "libnot-a-driver.so.1")
    assert gpus() == ()
