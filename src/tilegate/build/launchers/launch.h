/* One run of the host function, and the launch of a kernel in it. */
#ifndef TILEGATE_LAUNCH_H
#define TILEGATE_LAUNCH_H

#include <string.h>

#define TG_MAX_WORKSPACES 16

typedef struct {
  const tg_driver *driver;
  const tg_device *device;
  int id;
  tg_stream stream;
  int64_t failure;   /* the first refusal, or TG_LAUNCHED */
  int launches;      /* kernels that are in the stream already */
  int void_map;      /* a tensor map was asked for of a tensor without elements */
  tg_window window;  /* of L2, for the launches that follow; no bytes: none */
  int num_workspaces;
  tg_address workspaces[TG_MAX_WORKSPACES];
} tg_run;

/* The first refusal stands. Its fourth byte tells how many kernels were launched before it. */
static inline int tg_refuse(tg_run *run, int64_t code) {
  if (!code) return 0;
  if (!run->failure) run->failure = code | (int64_t)(run->launches & 0xFF) << 24;
  return -1;
}

static inline int tg_asked(tg_run *run, enum tg_operation operation, tg_result result) {
  return tg_refuse(run, tg_driver_code(operation, result));
}

static inline int tg_host_is_wrong(tg_run *run) { return tg_refuse(run, TG_REFUSE(TG_HOST, 0, 0)); }

/* float16 or bfloat16 from a double: to nearest, ties to even, in one step (through float it would be two). */
static inline uint16_t tg_narrow(double value, int exponent_bits, int mantissa_bits) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint64_t sign = bits >> 63 << 15, mantissa = bits & (((uint64_t)1 << 52) - 1);
  int64_t exponent = (int64_t)(bits >> 52 & 0x7FF), top = ((int64_t)1 << exponent_bits) - 1;
  uint64_t infinity = (uint64_t)top << mantissa_bits;
  if (exponent == 0x7FF && mantissa) return (uint16_t)(sign | infinity | (uint64_t)1 << (mantissa_bits - 1));
  int64_t shifted = exponent - 1023 + (top >> 1);
  if (shifted >= top) return (uint16_t)(sign | infinity);
  int64_t drop = 52 - mantissa_bits + (shifted > 0 ? 0 : 1 - shifted);
  if (drop > 53) return (uint16_t)sign; /* below half of the smallest; a double's own subnormals too */
  uint64_t whole = mantissa | (uint64_t)1 << 52;
  uint64_t kept = whole >> drop, rest = whole & (((uint64_t)1 << drop) - 1), half = (uint64_t)1 << (drop - 1);
  if (rest > half || (rest == half && kept & 1)) ++kept;
  if (shifted > 0) kept += (uint64_t)(shifted - 1) << mantissa_bits; /* the leading 1 adds to the exponent */
  return (uint16_t)(sign | kept);
}

/* The address of one parameter's bytes, which lie in the argument itself or in `room`. NULL: the host code
 * passes what the kernel does not take. */
static inline const void *tg_parameter(const TVMFFIAny *arg, uint8_t kind, void *room) {
  static const struct {
    int64_t low, high;
  } range[] = {
      [TG_ARG_BOOL] = {0, 1},
      [TG_ARG_INT8] = {INT8_MIN, INT8_MAX},
      [TG_ARG_INT16] = {INT16_MIN, INT16_MAX},
      [TG_ARG_INT32] = {INT32_MIN, INT32_MAX},
      [TG_ARG_INT64] = {INT64_MIN, INT64_MAX},
      [TG_ARG_UINT8] = {0, UINT8_MAX},
      [TG_ARG_UINT16] = {0, UINT16_MAX},
      [TG_ARG_UINT32] = {0, UINT32_MAX},
      [TG_ARG_UINT64] = {INT64_MIN, INT64_MAX}, /* the same bits */
  };
  switch (kind) {
    case TG_ARG_POINTER:
      if (arg->type_index == kTVMFFINone || arg->type_index == kTVMFFIOpaquePtr) return &arg->v_ptr;
      return NULL;
    case TG_ARG_TENSOR_MAP:
      return arg->type_index == kTVMFFIOpaquePtr ? arg->v_ptr : NULL;
    case TG_ARG_FLOAT16:
    case TG_ARG_BFLOAT16:
    case TG_ARG_FLOAT32:
    case TG_ARG_FLOAT64:
      if (arg->type_index != kTVMFFIFloat) return NULL;
      if (kind == TG_ARG_FLOAT64) return &arg->v_float64;
      if (kind == TG_ARG_FLOAT32) return memcpy(room, &(float){(float)arg->v_float64}, sizeof(float));
      uint16_t narrow = kind == TG_ARG_FLOAT16 ? tg_narrow(arg->v_float64, 5, 10) : tg_narrow(arg->v_float64, 8, 7);
      return memcpy(room, &narrow, sizeof narrow);
    default: /* an integer: its low bytes come first */
      if (arg->type_index != kTVMFFIInt && arg->type_index != kTVMFFIBool) return NULL;
      if (arg->v_int64 < range[kind].low || arg->v_int64 > range[kind].high) return NULL;
      return &arg->v_int64;
  }
}

/* What the launch parameters come to. 1: launch; 0: nothing to do; -1: refused. */
static inline int tg_read_launch(tg_run *run, int k, const TVMFFIAny *args, tg_launch_config *config) {
  const tg_kernel *kernel = &tg_kernels[k];
  const tg_device *device = run->device;
  int64_t number[TG_PARAM_DYNAMIC_SHARED + 1];
  for (int p = 0; p < TG_PARAM_DYNAMIC_SHARED; ++p) number[p] = 1;
  number[TG_PARAM_DYNAMIC_SHARED] = 0;
  for (int a = 0; a < 3; ++a) number[TG_PARAM_CLUSTER_X + a] = kernel->cluster[a];
  for (int i = 0; i < kernel->num_launch; ++i) {
    if (args[i].type_index != kTVMFFIInt) return tg_host_is_wrong(run);
    number[kernel->launch[i]] = args[i].v_int64;
  }
  if (!number[TG_PARAM_GRID_X] || !number[TG_PARAM_GRID_Y] || !number[TG_PARAM_GRID_Z]) return 0;
  int64_t threads = 1;
  for (int a = 0; a < 3; ++a) {
    int64_t grid = number[TG_PARAM_GRID_X + a], block = number[TG_PARAM_BLOCK_X + a];
    if (grid < 0 || grid > device->max_grid[a] || number[TG_PARAM_CLUSTER_X + a] != kernel->cluster[a] ||
        grid % kernel->cluster[a])
      return tg_refuse(run, TG_REFUSE(TG_DIMENSIONS, k, TG_PARAM_GRID_X + a));
    if (block < 1 || block > device->max_block[a])
      return tg_refuse(run, TG_REFUSE(TG_DIMENSIONS, k, TG_PARAM_BLOCK_X + a));
    threads *= block;
    config->grid[a] = (uint32_t)grid;
    config->block[a] = (uint32_t)block;
  }
  int64_t shared = number[TG_PARAM_DYNAMIC_SHARED];
  if (threads > device->max_threads) return tg_refuse(run, TG_REFUSE(TG_DIMENSIONS, k, TG_PARAM_BLOCK_X));
  if (shared < 0 || shared > kernel->max_dynamic_shared)
    return tg_refuse(run, TG_REFUSE(TG_DIMENSIONS, k, TG_PARAM_DYNAMIC_SHARED));
  config->dynamic_shared = (uint32_t)shared;
  return 1;
}

static inline uint32_t tg_set_attributes(const tg_run *run, const tg_kernel *kernel, tg_attribute *attributes) {
  uint32_t n = 0;
  if (kernel->cluster[0] > 1 || kernel->cluster[1] > 1 || kernel->cluster[2] > 1) {
    attributes[n].id = TG_ATTRIBUTE_CLUSTER;
    memcpy(attributes[n++].value.cluster, kernel->cluster, sizeof kernel->cluster);
  }
  if (kernel->cooperative) {
    attributes[n].id = TG_ATTRIBUTE_COOPERATIVE;
    attributes[n++].value.on = 1;
  }
  if (kernel->programmatic) {
    attributes[n].id = TG_ATTRIBUTE_PROGRAMMATIC;
    attributes[n++].value.on = 1;
  }
  if (run->window.bytes) {
    attributes[n].id = TG_ATTRIBUTE_WINDOW;
    attributes[n++].value.window = run->window;
  }
  return n;
}

static inline int tg_launch_kernel(tg_run *run, int k, const TVMFFIAny *args, int32_t num_args) {
  const tg_kernel *kernel = &tg_kernels[k];
  const void *parameters[TG_MAX_ARGUMENTS];
  uint64_t room[TG_MAX_ARGUMENTS];
  tg_launch_config config;
  tg_attribute attributes[4];
  if (num_args != kernel->num_arguments + kernel->num_launch) return tg_host_is_wrong(run);
  for (int i = 0; i < kernel->num_arguments; ++i) {
    parameters[i] = tg_parameter(&args[i], kernel->arguments[i], &room[i]);
    if (!parameters[i]) return tg_host_is_wrong(run);
  }
  int launch = tg_read_launch(run, k, args + kernel->num_arguments, &config);
  if (launch <= 0) return launch;
  if (run->void_map) return tg_asked(run, TG_OP_map_tiled, TG_INVALID_VALUE);
  tg_function function = run->device->functions[k];
  config.stream = run->stream;
  config.attributes = attributes;
  config.num_attributes = tg_set_attributes(run, kernel, attributes);
  void **given = (void **)parameters; /* the driver does not write to them */
  int failed;
  if (config.num_attributes)
    failed = tg_asked(run, TG_OP_launch_with, run->driver->launch_with(&config, function, given, NULL));
  else
    failed = tg_asked(run, TG_OP_launch,
                      run->driver->launch(function, config.grid[0], config.grid[1], config.grid[2],
                                          config.block[0], config.block[1], config.block[2],
                                          config.dynamic_shared, run->stream, given, NULL));
  if (!failed) ++run->launches;
  return failed;
}

#endif
