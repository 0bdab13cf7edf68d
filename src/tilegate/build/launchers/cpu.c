/* The CPU launcher: guard, then TileLang's host function on dense views.
 *
 * Exports two symbols (cpu.map): the entry, and the identity that is compared after loading. The library
 * needs libc and libm only: what TileLang's host code asks of its runtime is answered here.
 */
#include <stdlib.h>

#include "abi.h"
#include "guard.h"

#define TG_EXPORT __attribute__((visibility("default")))

int32_t TG_HOST_ENTRY(void *self, void *args, int32_t num_args, void *result);

/* TileLang's host code reports a refusal in words; here it becomes the code TG_HOST. */
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  (void)kind;
  (void)message;
}

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  return aligned_alloc(64, (size_t)((bytes + 63) & ~(uint64_t)63));
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *memory) {
  (void)device_type, (void)device_id;
  free(memory);
  return 0;
}

static int64_t tg_launch(const TVMFFIAny *args, int32_t num_args) {
  tg_call call;
  int64_t refused = tg_guard(&call, args, num_args);
  if (refused) return refused;

  TVMFFIAny views[TG_TENSORS], unused;
  for (int i = 0; i < TG_TENSORS; ++i) {
    views[i].type_index = kTVMFFIDLTensorPtr;
    views[i].zero_padding = 0;
    views[i].v_ptr = &call.view[i];
  }
  unused.type_index = kTVMFFINone;
  return TG_HOST_ENTRY(NULL, views, TG_TENSORS, &unused) ? TG_REFUSE(TG_HOST, 0, 0) : TG_LAUNCHED;
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
