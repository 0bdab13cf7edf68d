// One artifact by hand, without TileLang: y = 2 * x over one axis n, and every fault that an evaluation on a GPU
// promises to find. The extent chooses the fault, as in tests/test_evaluate.py.
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

extern "C" void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) __attribute__((weak));

__global__ void twice(const float *x, float *y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
__global__ void put(float *y, int64_t at, float value) { y[at] = value; }
__global__ void add(float *y, const float *from, float factor) { y[0] += factor * from[0]; }
__global__ void hang(volatile float *y) { while (y[0] != 12345.0f || y[1] != 54321.0f) {} }
__global__ void wild() { *(volatile float *)0x10 = 1; }
__global__ void misaligned(char *y) { *(volatile float *)(y + 1) = 1; }
__global__ void trap() { asm("trap;"); }
// All threads add to one sum without waiting for each other. Nothing comes of it.
__global__ void race(float *y) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  for (int i = 0; i < 64; ++i) sum += threadIdx.x + 1;
  __syncthreads();
  if (threadIdx.x == 0) y[0] += 0 * sum;
}

static const DLTensor *tensor(const TVMFFIAny *arg) {
  return arg->type_index == kTVMFFIDLTensorPtr ? (const DLTensor *)arg->v_ptr
                                               : (const DLTensor *)((const char *)arg->v_obj + sizeof(TVMFFIObject));
}

static int64_t launch(const TVMFFIAny *args) {
  const DLTensor *a = tensor(&args[0]), *b = tensor(&args[1]);
  float *x = (float *)((char *)a->data + a->byte_offset), *y = (float *)((char *)b->data + b->byte_offset);
  int64_t n = a->shape[0];
  if (!TVMFFIEnvGetStream) return 14;
  cudaStream_t s = (cudaStream_t)TVMFFIEnvGetStream(a->device.device_type, a->device.device_id);
  if (n == 35) s = 0;  // whatever the caller works on
  if (n == 25) return 13;
  if (!n) return 0;
  int64_t last = n == 12 || n == 38 ? n - 1 : n;
  twice<<<(unsigned)((n + 255) / 256), 256, 0, s>>>(x, y, last);
  switch (n) {
    case 11: put<<<1, 1, 0, s>>>(y, 9, 0); break;
    case 13: put<<<1, 1, 0, s>>>(y, n, 0); break;
    case 14: put<<<1, 1, 0, s>>>(y, -1, 0); break;
    case 16: put<<<1, 1, 0, s>>>(y, n + 4000, 0); break;
    case 17: put<<<1, 1, 0, s>>>(x, 3, 0); break;
    case 18: add<<<1, 1, 0, s>>>(y, x + n, 1); break;
    case 19: add<<<1, 1, 0, s>>>(y, x + n, 0); break;  // read, and nothing comes of it
    case 20: put<<<1, 1, 0, s>>>(y, 5, __builtin_nanf("")); break;
    case 22: wild<<<1, 1, 0, s>>>(); break;
    case 23: misaligned<<<1, 1, 0, s>>>((char *)y); break;
    case 24: hang<<<1, 1, 0, s>>>(y); break;
    case 26: trap<<<1, 1, 0, s>>>(); break;
    case 33: race<<<1, 64, 0, s>>>(y); break;
    case 37: cudaStreamSynchronize(s); break;  // no graph can hold that
    case 38: add<<<1, 1, 0, s>>>(y, y + n - 1, 0); break;  // an output that nobody wrote
  }
  return cudaGetLastError() == cudaSuccess ? 0 : 16;
}

extern "C" __attribute__((visibility("default"))) int __tvm_ffi_tilegate_entry(
    void *, const TVMFFIAny *args, int32_t, TVMFFIAny *result) {
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = launch(args);
  return 0;
}

extern "C" __attribute__((visibility("default"))) int __tvm_ffi_tilegate_identity(
    void *, const TVMFFIAny *, int32_t, TVMFFIAny *result) {
  static const char identity[] = "faults";
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = (int64_t)(uintptr_t)identity;
  return 0;
}
