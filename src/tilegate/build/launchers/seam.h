/* Read before TileLang's host code (gcc -include): its calls of TVM's runtime become calls of the launcher.
 *
 * TVM's runtime keeps the state of a call in the thread; here it is the host function's own first argument,
 * which TileLang names and does not read. A call of anything else does not link, and one made outside of the
 * host function does not compile.
 */
#ifndef TILEGATE_SEAM_H
#define TILEGATE_SEAM_H

#include <stdint.h>
#include <tvm/ffi/c_api.h>
#if __has_include("tvm/runtime/c_backend_api.h")
#include "tvm/runtime/base.h"
#include "tvm/runtime/c_backend_api.h"
#endif

#undef half
typedef _Float16 half; /* TileLang's word for float16 scalars, which it widens to double */

/* Each returns 0 (a workspace: its address), or has noted in the run why not. */
int tg_find(void *run, const char *name, void **function);
int tg_call_found(void *run, const void *function, const TVMFFIAny *args, int32_t num_args);
void *tg_allocate(void *run, int device_type, int device_id, uint64_t bytes);
int tg_free(void *run, void *memory);

#define TVMBackendGetFuncFromEnv(context, name, function) tg_find(self_handle, name, function)
#define TVMFFIFunctionCall(function, args, num_args, result) \
  ((void)(result), tg_call_found(self_handle, function, args, num_args))
#define TVMBackendAllocWorkspace(device_type, device_id, bytes, code, bits) \
  tg_allocate(self_handle, device_type, device_id, bytes)
#define TVMBackendFreeWorkspace(device_type, device_id, memory) tg_free(self_handle, memory)
/* TileLang's host code reports a refusal in words; here it becomes the code TG_HOST. */
#define TVMFFIErrorSetRaisedFromCStr(kind, message) ((void)(message))

#endif
