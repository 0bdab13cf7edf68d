"""Host functions in C, as TileLang prints them: arguments into a stack, a function by name, a call."""

from __future__ import annotations

from collections.abc import Sequence

from tests import world
from tests.driver.standin import DeviceTensor, kernel

BEGIN = """
#include <stdint.h>
#include <tvm/ffi/c_api.h>
void* __tvm_ffi__library_ctx = NULL;
#define AT(i) ((DLTensor*)((TVMFFIAny*)args)[i].v_ptr)
int32_t __tvm_ffi_body(void* self_handle, void* args, int32_t num_args, void* result) {
  __attribute__((aligned(128))) TVMFFIAny stack[64];
  __attribute__((aligned(128))) TVMFFIAny map[16];
  void* stack_ffi_any = stack;
  void* workspace = NULL;
  int32_t dev_id = AT(0)->device.device_id;
  int64_t n = AT(0)->shape[0];
"""
END = "  return 0;\n}\n"


def pointer(text: str) -> str:
    return (
        f"  (((TVMFFIAny*)stack_ffi_any)[AT_].type_index) = ({text}) == NULL ? 0 : 4;\n"
        "  (((TVMFFIAny*)stack_ffi_any)[AT_].zero_padding) = 0;\n"
        f"  (((TVMFFIAny*)stack_ffi_any)[AT_].v_ptr) = {text};\n"
    )


def integer(text: object) -> str:
    return (
        "  (((TVMFFIAny*)stack_ffi_any)[AT_].type_index) = 1;\n"
        "  (((TVMFFIAny*)stack_ffi_any)[AT_].zero_padding) = 0;\n"
        f"  (((TVMFFIAny*)stack_ffi_any)[AT_].v_int64) = ((int64_t){text});\n"
    )


def floating(text: object) -> str:
    return (
        "  (((TVMFFIAny*)stack_ffi_any)[AT_].type_index) = 3;\n"
        "  (((TVMFFIAny*)stack_ffi_any)[AT_].zero_padding) = 0;\n"
        f"  (((TVMFFIAny*)stack_ffi_any)[AT_].v_float64) = ((double){text});\n"
    )


def packed(name: str, *values: str) -> str:
    """One call by name, cached in a static variable as TileLang does."""
    variable = f"{name}_packed"
    filled = "".join(value.replace("AT_", str(i)) for i, value in enumerate(values))
    return f"""  {{ static void* {variable} = NULL;
{filled}
  if ({variable} == NULL) {{
    if (TVMBackendGetFuncFromEnv(__tvm_ffi__library_ctx, "{name}", &{variable}) != 0) {{
      return -1;
    }}
  }}
  TVMFFIAny result_1;
  result_1.type_index = kTVMFFINone;
  result_1.zero_padding = 0;
  result_1.v_int64 = 0;
  if (TVMFFIFunctionCall({variable}, (TVMFFIAny*) stack_ffi_any, {len(values)}, &result_1) != 0) {{
    return -1;
  }} }}
"""


def set_device() -> str:
    return packed("__tvm_set_device", integer(2), integer("dev_id"))


def launch(
    *values: str, numbers: Sequence[object] = ("(n + 255) / 256", 256, 1, 1), name: str = "body_kernel"
) -> str:
    """numbers: the launch parameters; those of `standin.kernel` are grid x and block x, y, z."""
    return packed(name, *values, *map(integer, numbers))


def tiled(extents: Sequence[object], *, address: str = "AT(0)->data") -> str:
    """A two-dimensional tensor map of float16, box 32 x 64."""
    head = [pointer("map"), integer(6), integer(2), pointer(address), *map(integer, extents)]
    tail = [2, 256, 32, 64, 1, 1, 0, 2, 3, 0]
    return packed("__tvm_tensormap_create_tiled", *head, *map(integer, tail))


def allocate(size: str) -> str:
    return (
        f"  workspace = TVMBackendAllocWorkspace(2, dev_id, ((uint64_t)({size})), 2, 32);\n"
        "  if (workspace == NULL) {\n    return -1;\n  }\n"
    )


FREE = "  if (TVMBackendFreeWorkspace(2, dev_id, workspace) != 0) {\n    return -1;\n  }\n"


def host(*steps: str) -> str:
    return "".join([BEGIN, set_device(), *steps, END])


PAIR = world.contract_of({"x": ("n",)}, {"y": ("n",)})
SCALE = host(launch(pointer("AT(0)->data"), pointer("AT(1)->data"), integer("n")))
SCALE_KERNEL = kernel("pointer", "pointer", "int32")
"""One kernel over one axis: it is given both tensors and the extent."""

READY = ["cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"]
"""What such a call asks of the driver, once its device is ready."""

TWO_DEEP = host(
    tiled(["n", 128]),
    allocate("4 * n"),
    launch(pointer("map"), pointer("workspace"), integer("n"), name="first"),
    launch(pointer("workspace"), pointer("AT(1)->data"), name="second"),
    FREE,
)
TWO_KERNELS = (
    kernel("tensor_map", "pointer", "int32", name="first", max_dynamic_shared_bytes=65536),
    kernel("pointer", "pointer", name="second", cluster=(1, 1, 1)),
)
"""Tensor map, workspace, two kernels: a call that asks the driver for most that it can be asked for."""


def pair(n: int = 300, device: int = 0) -> tuple[DeviceTensor, DeviceTensor]:
    return DeviceTensor(n, device=device), DeviceTensor(n, device=device)
