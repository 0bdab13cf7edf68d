"""The CUDA launcher over a stand-in driver: streams, devices, failures, threads, processes, and what is left."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tvm_ffi

from tests.driver.exchange import ExchangedTensor, asked
from tests.driver.hosts import PAIR, READY, SCALE, SCALE_KERNEL, TWO_DEEP, TWO_KERNELS, pair
from tests.driver.standin import DeviceTensor, Opened, driver_error, library_bytes, opened, reason, standin
from tilegate.records.miss import GUARD_CODES, MissReason
from tilegate.runtime.dispatch import _detail

# Streams, devices, contexts.


def test_a_launch_is_on_the_current_stream_of_the_tensors_device(driver):
    scale = opened(PAIR, SCALE, SCALE_KERNEL)
    stream = 2 << 16 | 7
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:1"), stream):
        assert scale(*pair(device=1)) == 0
        assert scale(*pair(device=0)) == 0
    assert scale(*pair(device=1)) == 0
    assert [(seen["device"], seen["stream"]) for seen in driver.launches()] == [(1, stream), (0, 0), (1, 0)]


def test_a_launch_is_on_the_stream_that_the_tensors_framework_names(driver):
    scale = opened(PAIR, SCALE, SCALE_KERNEL)
    assert scale(ExchangedTensor(300, device=2), ExchangedTensor(300, device=2)) == 0
    assert asked == [(2, 2)]
    assert [seen["stream"] for seen in driver.launches()] == [3 << 16 | 5]
    assert scale(*pair(device=2)) == 0
    assert driver.launches()[-1]["stream"] == 0, "the stream of one call is not that of the next"


ALONE = """
import ctypes, sys
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("offset", ctypes.c_uint64)]
class Any(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int32), ("zero", ctypes.c_uint32), ("value", ctypes.c_int64)]
shape = (ctypes.c_int64 * 1)(3)
table = (ctypes.c_int64 * 8)(1, 0, 1, 2**40, 0, 0, 2**31 - 1, 1)
memory = [(ctypes.c_float * 3)() for _ in "xy"]
tensors = [Tensor(ctypes.addressof(m), (2, 0), 1, (2, 32, 1, 0), ctypes.addressof(shape)) for m in memory]
args = (Any * 3)(*(Any(7, 0, ctypes.addressof(t)) for t in tensors), Any(1, 0, ctypes.addressof(table)))
result = Any()
entry = getattr(ctypes.CDLL(sys.argv[1]), "__tvm_ffi_tilegate_entry")
print(entry(None, args, 3, ctypes.byref(result)), result.value)
"""


def test_without_a_stream_to_ask_for_nothing_is_launched_on_another(tmp_path):
    """A library that was opened where there is no libtvm_ffi does not fall back to the default stream."""
    _, data = library_bytes(PAIR, SCALE, [SCALE_KERNEL], driver=standin().path)
    (tmp_path / "kernel.so").write_bytes(data)
    command = [sys.executable, "-c", ALONE, str(tmp_path / "kernel.so")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert (said[0], reason(int(said[1])), driver_error(int(said[1]))) == ("0", MissReason.DRIVER, 3)


def test_each_device_has_its_own_context_and_its_own_module_once(driver):
    scale = opened(PAIR, SCALE, SCALE_KERNEL)
    for device in (0, 3, 0, 1, 3):
        assert scale(*pair(device=device)) == 0
    assert driver.state()["retained"] == [1, 1, 0, 1]
    assert driver.state()["modules"] == [1, 1, 0, 1]
    assert [seen["device"] for seen in driver.launches()] == [0, 3, 0, 1, 3]


def test_the_callers_device_is_current_again_after_a_call(driver):
    scale = opened(PAIR, SCALE, SCALE_KERNEL)
    driver.enter(3)
    try:
        assert scale(*pair(device=1)) == 0
        assert (driver.state()["current"], driver.state()["depth"]) == (3, 1)
    finally:
        driver.leave()


@pytest.mark.parametrize("tensors", [(0, 1), (1, 0)])
def test_tensors_on_two_devices_are_refused_before_the_driver_is_asked(driver, tensors):
    x, y = (DeviceTensor(300, device=d) for d in tensors)
    assert reason(opened(PAIR, SCALE, SCALE_KERNEL)(x, y)) is MissReason.DEVICE
    assert driver.calls() == []


@pytest.mark.parametrize("device", [64, 2**31 - 1, -1])
def test_a_device_beyond_the_table_is_refused(driver, device):
    assert reason(opened(PAIR, SCALE, SCALE_KERNEL)(*pair(device=device))) is MissReason.DEVICE
    assert driver.calls() == []


def test_a_device_that_is_not_there_is_the_drivers_error(driver):
    code = opened(PAIR, SCALE, SCALE_KERNEL)(*pair(device=9))
    assert (reason(code), driver_error(code)) == (MissReason.DRIVER, 101)


# Failures.


@pytest.mark.parametrize("result", [1, 2, 700, 719])
def test_any_failure_leaves_the_stack_balanced_and_nothing_launched_twice(driver, result):
    """Whichever driver call fails: the context stack is as before, no workspace is left, no kernel ran twice,
    and the code carries the driver's number."""
    expected = MissReason.STICKY if result >= 700 else MissReason.DRIVER
    for nth in range(1, 100):
        driver.fresh()
        driver.enter(2)
        one = opened(PAIR, TWO_DEEP, *TWO_KERNELS)
        driver.fail(nth, result)
        code = one(*pair(device=1))
        state = driver.state()
        assert (state["depth"], state["current"], state["relaxed"], state["kept"]) == (1, 2, 0, 0)
        names = [seen["launch"] for seen in driver.launches()]
        assert names == ["first", "second"][: len(names)]
        if code == 0:
            break
        assert (reason(code), driver_error(code)) == (expected, result)
        assert code >> 24 & 0xFF == len(names)
        assert state["retained"][1] == state["modules"][1] <= 1
        driver.forget()
        assert one(*pair(device=1)) == 0, "the next call tries again"
        assert driver.state()["retained"] == [0, 1, 0, 0]
        assert driver.state()["modules"] == [0, 1, 0, 0]
        driver.leave()
    assert nth > 25, "every call of the driver had its turn"
    assert [seen["launch"] for seen in driver.launches()] == ["first", "second"]
    driver.leave()


def test_a_lost_context_is_told_as_such_at_every_call(driver):
    scale = opened(PAIR, SCALE, SCALE_KERNEL)
    assert scale(*pair()) == 0
    driver.make_sticky(700)
    for _ in range(3):
        code = scale(*pair())
        assert (reason(code), driver_error(code)) == (MissReason.STICKY, 700)
    assert len(driver.launches()) == 1
    driver.make_sticky(0)


def test_a_machine_without_a_driver_is_a_code(tmp_path):
    identity, data = library_bytes(PAIR, SCALE, [SCALE_KERNEL], driver=tmp_path / "libcuda.so.1")
    code = Opened(identity, data, ("n",))(*pair())
    assert (reason(code), driver_error(code)) == (MissReason.DRIVER, 303)


def test_a_driver_that_is_too_old_is_a_code(tmp_path):
    old = tmp_path / "libcuda.so.1"
    source = Path(__file__).parent / "driver" / "driver.c"
    hidden = "-DcuLaunchKernelEx=cuSomethingElse"
    subprocess.run(["gcc", "-shared", "-fPIC", hidden, str(source), "-o", str(old)], check=True)
    identity, data = library_bytes(PAIR, SCALE, [SCALE_KERNEL], driver=old)
    code = Opened(identity, data, ("n",))(*pair())
    assert (reason(code), driver_error(code)) == (MissReason.DRIVER, 302)


def test_a_drivers_error_is_told_by_its_number_and_names_no_tensor():
    code = GUARD_CODES.index(MissReason.DRIVER) | 250 << 8 | 302 << 32
    assert (
        _detail(MissReason.DRIVER, code, PAIR, {"x": None})
        == "driver error 302: the driver lacks a function: it is too old"
    )
    assert _detail(MissReason.DIMENSIONS, 250 << 8, PAIR, {"x": None}) == ""


# Threads, captures, processes.


def test_threads_that_come_first_together_load_the_module_once(driver):
    scale = opened(PAIR, SCALE, SCALE_KERNEL)
    codes, start = [], threading.Barrier(8)

    def work():
        mine = pair()
        start.wait()
        codes.extend(scale(*mine) for _ in range(25))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 200
    assert len(driver.launches()) == 200
    assert driver.calls().count("cuModuleLoadData") == 1
    for one in {line["thread"] for line in driver.log() if "call" in line}:
        mine = [str(line["call"]) for line in driver.log() if line.get("thread") == one]
        assert mine[-75:] == READY * 25


def test_a_first_call_inside_a_capture_does_not_break_it(driver):
    driver.capture(on=True)
    assert opened(PAIR, TWO_DEEP, *TWO_KERNELS)(*pair()) == 0


APART = """
import os, sys
from pathlib import Path
from tests.driver.standin import DeviceTensor, Opened, Standin, library_bytes
from tests.driver.hosts import PAIR, SCALE, SCALE_KERNEL

def call(**kinds):
    library = library_bytes(PAIR, SCALE, [SCALE_KERNEL], **kinds)
    return Opened(*library, ("n",)), DeviceTensor(3), DeviceTensor(3)

def in_child(scale, x, y):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code = scale(x, y)
        os.write(write, repr((code, Standin(path).calls())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 65536).decode()

path = Path(sys.argv[1])
scale, x, y = call()
print(in_child(scale, x, y))
print(scale(x, y))
Standin(path).forget()
print(in_child(scale, x, y))
print((scale(x, y), Standin(path).calls()))
scale, x, y = call(wiping=False)
scale(x, y)
Standin(path).forget()
print(in_child(scale, x, y))
"""


@pytest.fixture(scope="module")
def apart():
    """What a process of its own prints, where the driver is to be found by its name."""
    root = Path(__file__).parent.parent
    path = standin().path
    found = {**os.environ, "LD_LIBRARY_PATH": str(path.parent)}
    command = [sys.executable, "-c", APART, str(path)]
    done = subprocess.run(command, cwd=root, env=found, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [ast.literal_eval(line) for line in done.stdout.splitlines()]


def test_the_driver_is_found_by_its_name_alone(apart):
    assert apart[1] == 0


def test_a_forked_child_uses_none_of_its_parents_handles(apart):
    code, calls = apart[2]
    assert (reason(code), driver_error(code), calls) == (MissReason.DRIVER, 3, ["cuInit"])
    assert apart[3] == (0, READY), "the parent goes on as before"


def test_a_forked_child_is_known_also_where_the_system_empties_no_memory(apart):
    code, calls = apart[4]
    assert (reason(code), driver_error(code), calls) == (MissReason.DRIVER, 3, [])


def test_a_forked_child_of_a_parent_that_never_called_starts_afresh(apart):
    code, calls = apart[0]
    assert (code, calls[0], calls[-3:]) == (0, "cuInit", READY)
