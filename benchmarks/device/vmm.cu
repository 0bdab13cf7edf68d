// Is the driver's virtual memory worth it for over-reads? Maps memory that ends where nothing is mapped, and reads
// one element past its end. Prints `name value` lines.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

// The driver's own functions, without its library at link time.
#define DRIVER(name) static decltype(&name) p_##name
DRIVER(cuMemGetAllocationGranularity);
DRIVER(cuMemAddressReserve);
DRIVER(cuMemCreate);
DRIVER(cuMemMap);
DRIVER(cuMemSetAccess);
DRIVER(cuMemUnmap);
DRIVER(cuMemRelease);
DRIVER(cuMemAddressFree);
#define FIND(name) p_##name = (decltype(p_##name))dlsym(driver, #name)

#define CHECK(x) do { CUresult r = (x); if (r) { printf("failed %s=%d\n", #x, (int)r); return 1; } } while (0)

__global__ void read(const float *x, float *y) { *y = *(volatile const float *)x; }

static double now_us() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main() {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return printf("failed %s\n", dlerror()), 1;
  FIND(cuMemGetAllocationGranularity), FIND(cuMemAddressReserve), FIND(cuMemCreate), FIND(cuMemMap);
  FIND(cuMemSetAccess), FIND(cuMemUnmap), FIND(cuMemRelease), FIND(cuMemAddressFree);
  float *y;
  if (cudaMalloc(&y, 4)) return printf("failed cudaMalloc\n"), 1;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t grain = 0;
  CHECK(p_cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  printf("granularity_bytes %zu\n", grain);
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr at = 0;
  const int rounds = 50;
  double started = now_us();
  for (int i = 0; i < rounds; ++i) {
    CUmemGenericAllocationHandle handle;
    CHECK(p_cuMemAddressReserve(&at, 3 * grain, 0, 0, 0));
    CHECK(p_cuMemCreate(&handle, grain, &prop, 0));
    CHECK(p_cuMemMap(at + grain, grain, 0, handle, 0));
    CHECK(p_cuMemSetAccess(at + grain, grain, &access, 1));
    if (i + 1 < rounds) {
      CHECK(p_cuMemUnmap(at + grain, grain));
      CHECK(p_cuMemRelease(handle));
      CHECK(p_cuMemAddressFree(at, 3 * grain));
    }
  }
  printf("map_and_unmap_us %.0f\n", (now_us() - started) / rounds);
  CUdeviceptr end = at + 2 * grain;
  read<<<1, 1>>>((const float *)(end - 4), y);
  printf("read_of_last_element %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  read<<<1, 1>>>((const float *)end, y);
  printf("read_past_the_end %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  return 0;
}
