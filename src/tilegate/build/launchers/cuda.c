/* The CUDA launcher: guard, then TileLang's host function on dense views, in the context and on the stream of
 * the tensors' device.
 *
 * Exports two symbols (cuda.map): the entry, and the identity that is compared after loading. The library
 * needs libc only: the driver is opened when it is first needed (driver.h), and what TileLang's host code asks
 * of its runtime is answered here (seam.h). A refusal and a driver's error alike are numbers, never exceptions.
 *
 * A call without a workspace asks the driver for three things once its device is ready: push the context,
 * launch, pop. Nothing waits for the device, so a call can be captured in a graph.
 */
#include "abi.h"
#include "kernels.h"
#include "guard.h"
#include "driver.h"
#include "device.h"
#include "launch.h"
#include "packed.h"

#define TG_EXPORT __attribute__((visibility("default")))

int32_t TG_HOST_ENTRY(void *run, void *args, int32_t num_args, void *result);

/* From libtvm_ffi, which has opened this library: the stream that the caller's framework works on. tvm_ffi asks
 * the framework of the first argument on a device for it, and keeps it for the time of the call. */
extern void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) __attribute__((weak));

int tg_find(void *run, const char *name, void **function) {
  for (size_t i = 0; i < sizeof tg_provided / sizeof *tg_provided; ++i)
    if (!strcmp(name, tg_provided[i].name)) return *function = (void *)&tg_provided[i], 0;
  for (int k = 0; k < TG_KERNELS; ++k)
    if (!strcmp(name, tg_kernels[k].name)) return *function = (void *)&tg_kernels[k], 0;
  return tg_host_is_wrong(run);
}

int tg_call_found(void *run, const void *function, const TVMFFIAny *args, int32_t num_args) {
  const tg_kernel *kernel = function;
  if (kernel >= tg_kernels && kernel < tg_kernels + TG_KERNELS)
    return tg_launch_kernel(run, (int)(kernel - tg_kernels), args, num_args);
  return ((const tg_named *)function)->call(run, args, num_args);
}

void *tg_allocate(void *opaque, int device_type, int device_id, uint64_t bytes) {
  tg_run *run = opaque;
  tg_address address = 0;
  if (device_type != TG_DEVICE || device_id != run->id || run->num_workspaces == TG_MAX_WORKSPACES)
    return tg_host_is_wrong(run), NULL;
  if (tg_asked(run, TG_OP_allocate, run->driver->allocate(&address, bytes ? bytes : 1, run->stream))) return NULL;
  run->workspaces[run->num_workspaces++] = address;
  return (void *)address;
}

int tg_free(void *opaque, void *memory) {
  tg_run *run = opaque;
  for (int i = 0; i < run->num_workspaces; ++i) {
    if (run->workspaces[i] != (tg_address)memory) continue;
    run->workspaces[i] = run->workspaces[--run->num_workspaces];
    return tg_asked(run, TG_OP_free, run->driver->free((tg_address)memory, run->stream));
  }
  return tg_host_is_wrong(run);
}

static void tg_run_host(tg_run *run, tg_call *call) {
  TVMFFIAny views[TG_TENSORS], unused;
  for (int i = 0; i < TG_TENSORS; ++i) {
    views[i].type_index = kTVMFFIDLTensorPtr;
    views[i].zero_padding = 0;
    views[i].v_ptr = &call->view[i];
  }
  unused.type_index = kTVMFFINone;
  if (TG_HOST_ENTRY(run, views, TG_TENSORS, &unused)) tg_host_is_wrong(run); /* unless it is known better why */
  while (run->num_workspaces) tg_free(run, (void *)run->workspaces[0]); /* host code that fails frees nothing */
}

static int64_t tg_launch(const TVMFFIAny *args, int32_t num_args) {
  tg_call call;
  int64_t refused = tg_guard(&call, args, num_args);
  if (refused) return refused;
  int id = call.view[0].device.device_id;
  if (id < 0 || id >= TG_MAX_DEVICES) return TG_REFUSE(TG_ON_ANOTHER_DEVICE, 0, 0);
  tg_process *process = tg_own_process();
  if (!process || !TVMFFIEnvGetStream) return tg_driver_code(TG_OP_open, TG_NOT_INITIALIZED);
  refused = tg_ready(process, id);
  if (refused) return refused;

  tg_run run;
  run.driver = &process->driver;
  run.device = &process->devices[id];
  run.id = id;
  run.stream = TVMFFIEnvGetStream(TG_DEVICE, id);
  run.failure = TG_LAUNCHED;
  run.launches = run.void_map = run.num_workspaces = 0;
  run.window.bytes = 0;
  tg_context popped;
  if (tg_asked(&run, TG_OP_push, run.driver->push(run.device->context))) return run.failure;
  tg_run_host(&run, &call);
  tg_asked(&run, TG_OP_pop, run.driver->pop(&popped));
  return run.failure;
}

TG_EXPORT int __tvm_ffi_tilegate_entry(void *self, const TVMFFIAny *args, int32_t num_args,
                                       TVMFFIAny *result) {
  (void)self;
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = tg_launch(args, num_args);
  return 0;
}

TG_EXPORT int __tvm_ffi_tilegate_identity(void *self, const TVMFFIAny *args, int32_t num_args,
                                          TVMFFIAny *result) {
  (void)self, (void)args, (void)num_args;
  static const char identity[] = TG_IDENTITY;
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = (int64_t)(uintptr_t)identity;
  return 0;
}
