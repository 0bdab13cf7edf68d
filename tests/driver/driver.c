/* A driver without a device. It keeps the state that the real one keeps, writes every call down, and notes as a
 * violation whatever the real one leaves undefined or a launcher should have refused before asking.
 *
 * A device binary is text here: a line for each kernel, its name and the bytes of each parameter.
 * A stream's handle is its device's ordinal plus 1, times 65536, plus a number; NULL is any device's own.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 4, MODULES = 256, FUNCTIONS = 1024, KEPT = 64, DEPTH = 16, PARAMETERS = 32 };
enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500,
       CAPTURE_UNSUPPORTED = 900 };

typedef struct { int ordinal, retained; } context;
typedef struct { int ordinal, loaded; const char *image; } module;
typedef struct { module *home; char name[128]; int count, sizes[PARAMETERS], max_shared, large; } function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static context contexts[DEVICES];
static module modules[MODULES];
static function functions[FUNCTIONS];
static uint64_t kept[KEPT];
static int num_modules, num_functions, calls, fail_at, fail_with, sticky, capturing;
static pid_t initialized;
static char *text;
static size_t length, room;
static _Thread_local context *stack[DEPTH];
static _Thread_local int depth, relaxed;

static void write_down(const char *format, ...) {
  va_list args;
  for (;;) {
    va_start(args, format);
    int wanted = vsnprintf(text + length, room - length, format, args);
    va_end(args);
    if (length + wanted < room) { length += wanted; return; }
    room = 2 * room + wanted + 4096;
    text = realloc(text, room);
  }
}

static int violation(const char *what) {
  write_down("{\"violation\": \"%s\"}\n", what);
  return INVALID_VALUE;
}

static int current(void) { return depth ? stack[depth - 1]->ordinal : -1; }

/* Every call begins here, with the lock held; `number` is what is written of it. */
static int enter(const char *name) {
  if (initialized && initialized != getpid()) {
    write_down("{\"call\": \"%s\", \"forked\": true}\n", name);
    return NOT_INITIALIZED;
  }
  write_down("{\"call\": \"%s\", \"thread\": %d, \"current\": %d}\n", name, (int)gettid(), current());
  if (sticky) return sticky;
  return ++calls == fail_at ? fail_with : 0;
}

#define BEGIN(name)                 \
  pthread_mutex_lock(&lock);        \
  int result = enter(name);

#define END                         \
  pthread_mutex_unlock(&lock);      \
  return result;

/* For tests. */

void standin_reset(void) {
  pthread_mutex_lock(&lock);
  length = calls = fail_at = fail_with = sticky = capturing = 0;
  if (text) *text = 0;
  memset(kept, 0, sizeof kept);
  num_modules = num_functions = 0;
  memset(contexts, 0, sizeof contexts);
  pthread_mutex_unlock(&lock);
}

/* The nth call from now on (1 is the next) gives `result`. */
void standin_fail(int nth, int result) { calls = 0, fail_at = nth, fail_with = result; }
void standin_make_sticky(int result) { sticky = result; }
void standin_capture(int on) { capturing = on; }
const char *standin_log(void) { return text ? text : ""; }
void standin_clear_log(void) { length = 0; if (text) *text = 0; }
int standin_retained(int ordinal) { return contexts[ordinal].retained; }
int standin_depth(void) { return depth; }
int standin_current(void) { return current(); }

/* As if the framework had made a device current. */
void standin_enter(int ordinal) {
  contexts[ordinal].ordinal = ordinal;
  stack[depth++] = &contexts[ordinal];
}
void standin_leave(void) { --depth; }

int standin_modules(int ordinal) {
  int n = 0;
  for (int i = 0; i < num_modules; ++i) n += modules[i].loaded && modules[i].ordinal == ordinal;
  return n;
}

int standin_kept(void) {
  int n = 0;
  for (int i = 0; i < KEPT; ++i) n += !!kept[i];
  return n;
}

/* The driver. */

int cuInit(unsigned flags) {
  BEGIN("cuInit")
  if (flags) result = violation("flags");
  if (!result) initialized = getpid();
  END
}

int cuDeviceGet(int *device, int ordinal) {
  BEGIN("cuDeviceGet")
  if (!result && !initialized) result = NOT_INITIALIZED;
  if (!result && (ordinal < 0 || ordinal >= DEVICES)) result = INVALID_DEVICE;
  *device = 100 + ordinal; /* a handle is not an ordinal */
  END
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  static const int limits[] = {0, 1024, 1024, 1024, 64, 2147483647, 65535, 65535};
  BEGIN("cuDeviceGetAttribute")
  if (device < 100 || device >= 100 + DEVICES) result = violation("device handle");
  if (attribute >= 1 && attribute <= 7) *value = limits[attribute];
  else if (attribute == 109) *value = 1 << 20;
  else result = violation("unknown attribute");
  END
}

int cuDevicePrimaryCtxRetain(context **made, int device) {
  BEGIN("cuDevicePrimaryCtxRetain")
  if (!result) {
    *made = &contexts[device - 100];
    (*made)->ordinal = device - 100;
    ++(*made)->retained;
  }
  END
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  BEGIN("cuDevicePrimaryCtxRelease")
  if (--contexts[device - 100].retained < 0) violation("released too often");
  END
}

int cuCtxPushCurrent_v2(context *pushed) {
  BEGIN("cuCtxPushCurrent")
  if (!result && pushed->retained < 1) result = violation("pushed a context that is not retained");
  if (!result) stack[depth++] = pushed;
  END
}

/* As the real one, it pops also where it reports an error of work that was launched before. */
int cuCtxPopCurrent_v2(context **popped) {
  BEGIN("cuCtxPopCurrent")
  if (!depth) result = violation("popped an empty stack");
  else *popped = stack[--depth];
  END
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
  BEGIN("cuThreadExchangeStreamCaptureMode")
  if (!result) {
    int was = relaxed ? 2 : 0;
    relaxed = *mode == 2;
    *mode = was;
  }
  END
}
int standin_relaxed(void) { return relaxed; }

int cuModuleLoadData(module **made, const char *image) {
  BEGIN("cuModuleLoadData")
  if (!result && !depth) result = violation("loaded without a context");
  if (!result && capturing && !relaxed) result = CAPTURE_UNSUPPORTED;
  if (!result) {
    for (int i = 0; i < 1000; ++i) sched_yield(); /* long enough for another thread to come along */
    *made = &modules[num_modules++];
    **made = (module){current(), 1, image};
  }
  END
}

int cuModuleUnload(module *gone) {
  BEGIN("cuModuleUnload")
  if (!gone->loaded || gone->ordinal != current()) violation("unloaded elsewhere");
  gone->loaded = 0;
  END
}

int cuModuleGetFunction(function **found, module *home, const char *name) {
  BEGIN("cuModuleGetFunction")
  if (!home->loaded) result = violation("module is not loaded");
  const char *line = home->image;
  if (!result) result = NOT_FOUND;
  for (; result == NOT_FOUND && line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    function made = {.home = home, .max_shared = 49152};
    int at;
    if (sscanf(line, "%127s%n", made.name, &at) != 1 || strcmp(made.name, name)) continue;
    for (const char *next = line + at; *next == ' ';) made.sizes[made.count++] = strtol(next, (char **)&next, 10);
    functions[num_functions] = made;
    *found = &functions[num_functions++];
    result = 0;
  }
  END
}

int cuFuncSetAttribute(function *of, int attribute, int value) {
  BEGIN("cuFuncSetAttribute")
  write_down("{\"function\": \"%s\", \"attribute\": %d, \"value\": %d}\n", of->name, attribute, value);
  if (of->home->ordinal != current()) result = violation("attribute set in another context");
  if (attribute == 8) of->max_shared = value;
  else if (attribute == 14) of->large = value;
  else result = violation("unknown function attribute");
  END
}

typedef struct { void *base; size_t bytes; float ratio; int hit, miss; } window;
typedef struct { int id; char pad[4]; union { char pad[64]; unsigned cluster[3]; int on; window window; } value; } attribute;
typedef struct { unsigned grid[3], block[3], shared; uint64_t stream; attribute *attributes; unsigned count; } config;

static int launch(const char *name, const config *given, function *what, void **parameters) {
  unsigned cluster[3] = {1, 1, 1};
  int result = 0;
  if (what->home->ordinal != current()) result = violation("launched in another device's context");
  if (given->stream && (int)(given->stream >> 16) != current() + 1) result = violation("another device's stream");
  write_down("{\"launch\": \"%s\", \"by\": \"%s\", \"device\": %d, \"stream\": %llu, \"grid\": [%u, %u, %u], "
             "\"block\": [%u, %u, %u], \"shared\": %u, \"attributes\": {", what->name, name, current(),
             (unsigned long long)given->stream, given->grid[0], given->grid[1], given->grid[2], given->block[0],
             given->block[1], given->block[2], given->shared);
  for (unsigned i = 0; i < given->count; ++i) {
    const attribute *a = &given->attributes[i];
    const char *comma = i ? ", " : "";
    if (a->id == 4) {
      memcpy(cluster, a->value.cluster, sizeof cluster);
      write_down("%s\"cluster\": [%u, %u, %u]", comma, cluster[0], cluster[1], cluster[2]);
    } else if (a->id == 2 || a->id == 6) {
      write_down("%s\"%s\": %d", comma, a->id == 2 ? "cooperative" : "programmatic", a->value.on);
    } else if (a->id == 1) {
      const window *w = &a->value.window;
      write_down("%s\"window\": [%llu, %zu, %f, %d, %d]", comma, (unsigned long long)(uintptr_t)w->base, w->bytes,
                 w->ratio, w->hit, w->miss);
    } else {
      write_down("%s\"unknown\": %d", comma, a->id);
    }
  }
  write_down("}, \"parameters\": [");
  for (int i = 0; i < what->count; ++i) {
    write_down(i ? ", \"" : "\"");
    for (int b = 0; b < what->sizes[i]; ++b) write_down("%02x", ((unsigned char *)parameters[i])[b]);
    write_down("\"");
  }
  write_down("]}\n");
  static const unsigned most[] = {2147483647, 65535, 65535, 1024, 1024, 64};
  for (int a = 0; a < 3; ++a) {
    if (!given->grid[a] || given->grid[a] > most[a]) result = violation("grid");
    if (!given->block[a] || given->block[a] > most[3 + a]) result = violation("block");
    if (given->grid[a] % cluster[a]) result = violation("grid is no multiple of the cluster");
  }
  if (given->block[0] * given->block[1] * given->block[2] > 1024) result = violation("threads");
  if (given->shared > (unsigned)what->max_shared) result = violation("dynamic shared memory");
  if (cluster[0] * cluster[1] * cluster[2] > 8 && !what->large) result = violation("large cluster");
  return result;
}

int cuLaunchKernel(function *what, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, uint64_t stream, void **parameters, void **extra) {
  BEGIN("cuLaunchKernel")
  config given = {{gx, gy, gz}, {bx, by, bz}, shared, stream, NULL, 0};
  if (extra) result = violation("extra");
  if (!result) result = launch("cuLaunchKernel", &given, what, parameters);
  END
}

int cuLaunchKernelEx(const config *given, function *what, void **parameters, void **extra) {
  BEGIN("cuLaunchKernelEx")
  if (extra) result = violation("extra");
  if (!result) result = launch("cuLaunchKernelEx", given, what, parameters);
  END
}

int cuMemAllocAsync(uint64_t *address, size_t bytes, uint64_t stream) {
  BEGIN("cuMemAllocAsync")
  write_down("{\"allocate\": %zu, \"stream\": %llu}\n", bytes, (unsigned long long)stream);
  if (!bytes || !depth) result = violation("allocation");
  for (int i = 0; i < KEPT && !result; ++i) {
    if (kept[i]) continue;
    kept[i] = *address = 0x7000000000 + 256 * (i + 1);
    break;
  }
  END
}

int cuMemFreeAsync(uint64_t address, uint64_t stream) {
  BEGIN("cuMemFreeAsync")
  int found = 0;
  write_down("{\"free\": %llu, \"stream\": %llu}\n", (unsigned long long)address, (unsigned long long)stream);
  for (int i = 0; i < KEPT; ++i)
    if (kept[i] == address) kept[i] = 0, found = 1;
  if (!found) result = violation("freed what was not allocated");
  END
}

static int encode(const char *kind, uint64_t *map, int dtype, unsigned rank, uint64_t address,
                  const uint64_t *extents, const uint64_t *strides) {
  if ((uintptr_t)map % 64) return violation("a tensor map is not aligned");
  if (rank < 1 || rank > 5 || !address || address % 16) return violation("tensor map");
  for (unsigned i = 0; i < rank; ++i)
    if (!extents[i] || extents[i] >> 32) return violation("extent of a tensor map");
  write_down("{\"map\": \"%s\", \"dtype\": %d, \"address\": %llu, \"extents\": [", kind, dtype,
             (unsigned long long)address);
  for (unsigned i = 0; i < rank; ++i) write_down(i ? ", %llu" : "%llu", (unsigned long long)extents[i]);
  write_down("], \"strides\": [");
  for (unsigned i = 0; i + 1 < rank; ++i) write_down(i ? ", %llu" : "%llu", (unsigned long long)strides[i]);
  write_down("], ");
  for (int i = 0; i < 16; ++i) map[i] = address + i;
  return 0;
}

static void numbers(const char *name, const unsigned *values, unsigned count) {
  write_down("\"%s\": [", name);
  for (unsigned i = 0; i < count; ++i) write_down(i ? ", %d" : "%d", (int)values[i]);
  write_down("], ");
}

int cuTensorMapEncodeTiled(uint64_t *map, int dtype, unsigned rank, uint64_t address, const uint64_t *extents,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int fill) {
  BEGIN("cuTensorMapEncodeTiled")
  if (!result) result = encode("tiled", map, dtype, rank, address, extents, strides);
  if (!result) {
    numbers("box", box, rank);
    numbers("steps", steps, rank);
    write_down("\"format\": [%d, %d, %d, %d]}\n", interleave, swizzle, promotion, fill);
  }
  END
}

int cuTensorMapEncodeIm2col(uint64_t *map, int dtype, unsigned rank, uint64_t address, const uint64_t *extents,
                            const uint64_t *strides, const int *lower, const int *upper, unsigned channels,
                            unsigned pixels, const unsigned *steps, int interleave, int swizzle, int promotion,
                            int fill) {
  BEGIN("cuTensorMapEncodeIm2col")
  if (!result) result = encode("im2col", map, dtype, rank, address, extents, strides);
  if (!result) {
    numbers("lower", (const unsigned *)lower, rank - 2);
    numbers("upper", (const unsigned *)upper, rank - 2);
    numbers("steps", steps, rank);
    write_down("\"channels\": %u, \"pixels\": %u, \"format\": [%d, %d, %d, %d]}\n", channels, pixels, interleave,
               swizzle, promotion, fill);
  }
  END
}
