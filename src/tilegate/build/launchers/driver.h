/* The driver as a table of functions, found by name when it is first needed: an artifact needs libc alone to
 * be opened, and no vendor's header to be built. Another backend is another list of names and numbers.
 *
 * Here: the CUDA driver API, version 12.0 or later. The types are those of cuda.h, under names of our own;
 * tests/test_launcher.py compares sizes, offsets and numbers with cuda.h where there is one.
 */
#ifndef TILEGATE_DRIVER_H
#define TILEGATE_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TG_DRIVER_LIBRARY
#define TG_DRIVER_LIBRARY "libcuda.so.1"
#endif

typedef int tg_result;    /* CUresult */
typedef uint64_t tg_address; /* CUdeviceptr */
typedef struct tg_context_ *tg_context;
typedef struct tg_module_ *tg_module;
typedef struct tg_function_ *tg_function;
typedef struct tg_stream_ *tg_stream;

typedef struct {
  void *base;
  size_t bytes;
  float hit_ratio;
  int hit, miss;
} tg_window; /* CUaccessPolicyWindow */

typedef struct {
  int id;
  union {
    char pad[64];
    tg_window window;
    uint32_t cluster[3];
    int on;
  } __attribute__((aligned(8))) value;
} tg_attribute; /* CUlaunchAttribute */

typedef struct {
  uint32_t grid[3], block[3], dynamic_shared;
  tg_stream stream;
  tg_attribute *attributes;
  uint32_t num_attributes;
} tg_launch_config; /* CUlaunchConfig */

enum { /* CUlaunchAttributeID, CUaccessProperty */
  TG_ATTRIBUTE_WINDOW = 1,
  TG_ATTRIBUTE_COOPERATIVE = 2,
  TG_ATTRIBUTE_CLUSTER = 4,
  TG_ATTRIBUTE_PROGRAMMATIC = 6,
  TG_STREAMING = 1,
  TG_PERSISTING = 2
};

enum { /* CUdevice_attribute, CUfunction_attribute, CUstreamCaptureMode */
  TG_LIMIT_THREADS = 1,
  TG_LIMIT_BLOCK_X = 2, /* y and z follow */
  TG_LIMIT_GRID_X = 5,  /* y and z follow */
  TG_LIMIT_WINDOW = 109,
  TG_FUNCTION_DYNAMIC_SHARED = 8,
  TG_FUNCTION_LARGE_CLUSTER = 14,
  TG_CAPTURE_RELAXED = 2
};

enum { /* CUresult */
  TG_INVALID_VALUE = 1,
  TG_NOT_INITIALIZED = 3,
  TG_SYMBOL_NOT_FOUND = 302,
  TG_LIBRARY_NOT_FOUND = 303
};

#define TG_PORTABLE_CLUSTER 8 /* blocks; more must be allowed for each function */

/* name here, name there, arguments */
#define TG_DRIVER_FUNCTIONS(X)                                                                               \
  X(init, "cuInit", (unsigned flags))                                                                        \
  X(device, "cuDeviceGet", (int *device, int ordinal))                                                       \
  X(limit, "cuDeviceGetAttribute", (int *value, int attribute, int device))                                  \
  X(retain, "cuDevicePrimaryCtxRetain", (tg_context * context, int device))                                  \
  X(release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                   \
  X(push, "cuCtxPushCurrent_v2", (tg_context context))                                                       \
  X(pop, "cuCtxPopCurrent_v2", (tg_context * context))                                                       \
  X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                                          \
  X(load, "cuModuleLoadData", (tg_module * module, const void *image))                                       \
  X(unload, "cuModuleUnload", (tg_module module))                                                            \
  X(function, "cuModuleGetFunction", (tg_function * function, tg_module module, const char *name))           \
  X(set, "cuFuncSetAttribute", (tg_function function, int attribute, int value))                             \
  X(launch, "cuLaunchKernel",                                                                                \
    (tg_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,     \
     unsigned dynamic_shared, tg_stream stream, void **parameters, void **extra))                            \
  X(launch_with, "cuLaunchKernelEx",                                                                         \
    (const tg_launch_config *config, tg_function function, void **parameters, void **extra))                        \
  X(allocate, "cuMemAllocAsync", (tg_address * address, size_t bytes, tg_stream stream))                     \
  X(free, "cuMemFreeAsync", (tg_address address, tg_stream stream))                                          \
  X(map_tiled, "cuTensorMapEncodeTiled",                                                                     \
    (void *map, int dtype, uint32_t rank, void *address, const uint64_t *extents, const uint64_t *strides,   \
     const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))      \
  X(map_im2col, "cuTensorMapEncodeIm2col",                                                                   \
    (void *map, int dtype, uint32_t rank, void *address, const uint64_t *extents, const uint64_t *strides,   \
     const int *lower, const int *upper, uint32_t channels, uint32_t pixels, const uint32_t *steps,          \
     int interleave, int swizzle, int promotion, int fill))

#define TG_POINTER_TO(name, symbol, arguments) tg_result(*name) arguments;
typedef struct {
  TG_DRIVER_FUNCTIONS(TG_POINTER_TO)
} tg_driver;

#define TG_OPERATION(name, symbol, arguments) TG_OP_##name,
enum tg_operation { TG_OP_open, TG_DRIVER_FUNCTIONS(TG_OPERATION) };

/* Errors that end a context: every call after them fails, on this device, until the process is gone. */
static inline int tg_sticky(tg_result result) {
  switch (result) {
    case 214: /* ECC uncorrectable */
    case 220: /* NVLink uncorrectable */
    case 226: /* contained */
    case 700: /* illegal address */
    case 702: /* launch timeout */
    case 709: /* context is destroyed */
    case 710: /* assert */
    case 714: /* hardware stack */
    case 715: /* illegal instruction */
    case 716: /* misaligned address */
    case 717: /* invalid address space */
    case 718: /* invalid program counter */
    case 719: /* launch failed */
    case 721: /* tensor memory leak */
    case 999: /* unknown */
      return 1;
    default:
      return 0;
  }
}

/* A driver's refusal: the operation, and the driver's own number in the upper half. 0 where there is none. */
static inline int64_t tg_driver_code(enum tg_operation operation, tg_result result) {
  if (!result) return TG_LAUNCHED;
  return TG_REFUSE(tg_sticky(result) ? TG_STICKY : TG_DRIVER, operation, 0) | (int64_t)(uint32_t)result << 32;
}

/* The library stays open: its functions are called until the process ends. */
static inline int64_t tg_open_driver(tg_driver *driver) {
  void *library = dlopen(TG_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) return tg_driver_code(TG_OP_open, TG_LIBRARY_NOT_FOUND);
#define TG_FIND(name, symbol, arguments)                          \
  *(void **)&driver->name = dlsym(library, symbol);               \
  if (!driver->name) return tg_driver_code(TG_OP_##name, TG_SYMBOL_NOT_FOUND);
  TG_DRIVER_FUNCTIONS(TG_FIND)
  return tg_driver_code(TG_OP_init, driver->init(0));
}

#endif
