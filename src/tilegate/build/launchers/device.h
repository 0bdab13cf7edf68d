/* What is kept between calls: the driver, and for each device its primary context with the binary loaded.
 *
 * It is made by the first call on a device, under a lock, and only read by those that follow. It lies in
 * memory that the kernel empties in a forked child: a child starts with nothing, and hears from the driver
 * whether it may go on. It is never given back, not even when the library is closed: work may be in flight.
 */
#ifndef TILEGATE_DEVICE_H
#define TILEGATE_DEVICE_H

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define TG_MAX_DEVICES 64

typedef struct {
  int ready; /* written last, read first */
  tg_context context;
  tg_function functions[TG_KERNELS];
  int64_t max_grid[3], max_block[3], max_threads, max_window;
} tg_device;

typedef struct {
  pthread_mutex_t lock; /* zeros are an open lock */
  int opened;
  pid_t owner; /* set only where the kernel does not empty the memory */
  tg_driver driver;
  tg_device devices[TG_MAX_DEVICES];
} tg_process;

/* NULL where there is no memory, or where it belongs to a parent and could not be emptied. */
static inline tg_process *tg_own_process(void) {
  static tg_process *mine;
  tg_process *process = __atomic_load_n(&mine, __ATOMIC_ACQUIRE);
  if (!process) {
    tg_process *made =
        mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return NULL;
    if (madvise(made, sizeof *made, MADV_WIPEONFORK)) made->owner = getpid();
    if (__atomic_compare_exchange_n(&mine, &process, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      process = made;
    else
      munmap(made, sizeof *made); /* another thread was first, and `process` is now its */
  }
  return process->owner && process->owner != getpid() ? NULL : process;
}

static inline int64_t tg_read_limits(const tg_driver *driver, tg_device *device, int handle) {
  struct {
    int attribute;
    int64_t *into;
  } wanted[] = {
      {TG_LIMIT_THREADS, &device->max_threads},      {TG_LIMIT_WINDOW, &device->max_window},
      {TG_LIMIT_BLOCK_X, &device->max_block[0]},     {TG_LIMIT_BLOCK_X + 1, &device->max_block[1]},
      {TG_LIMIT_BLOCK_X + 2, &device->max_block[2]}, {TG_LIMIT_GRID_X, &device->max_grid[0]},
      {TG_LIMIT_GRID_X + 1, &device->max_grid[1]},   {TG_LIMIT_GRID_X + 2, &device->max_grid[2]},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i) {
    int value = 0;
    int64_t failed = tg_driver_code(TG_OP_limit, driver->limit(&value, wanted[i].attribute, handle));
    if (failed) return failed;
    *wanted[i].into = value;
  }
  return TG_LAUNCHED;
}

/* The kernels of a loaded binary, each allowed what its launches will ask for. */
static inline int64_t tg_find_functions(const tg_driver *driver, tg_device *device, tg_module module) {
  for (int k = 0; k < TG_KERNELS; ++k) {
    const tg_kernel *kernel = &tg_kernels[k];
    tg_function *function = &device->functions[k];
    uint64_t blocks = (uint64_t)kernel->cluster[0] * kernel->cluster[1] * kernel->cluster[2];
    int64_t failed =
        tg_driver_code(TG_OP_function, driver->function(function, module, kernel->name));
    if (!failed && kernel->max_dynamic_shared)
      failed = tg_driver_code(TG_OP_set, driver->set(*function, TG_FUNCTION_DYNAMIC_SHARED,
                                                     (int)kernel->max_dynamic_shared));
    if (!failed && blocks > TG_PORTABLE_CLUSTER)
      failed = tg_driver_code(TG_OP_set, driver->set(*function, TG_FUNCTION_LARGE_CLUSTER, 1));
    if (failed) return failed;
  }
  return TG_LAUNCHED;
}

static inline int64_t tg_load_module(const tg_driver *driver, tg_device *device, int handle) {
  tg_module module;
  int64_t failed = tg_read_limits(driver, device, handle);
  if (failed) return failed;
  failed = tg_driver_code(TG_OP_load, driver->load(&module, tg_binary));
  if (failed) return failed;
  failed = tg_find_functions(driver, device, module);
  if (failed) driver->unload(module);
  return failed;
}

/* A stream of this thread may be capturing. Loading is no part of what is captured: hence the relaxed mode. */
static inline int64_t tg_load_in_context(const tg_driver *driver, tg_device *device, int handle) {
  int mode = TG_CAPTURE_RELAXED;
  tg_context popped;
  int64_t failed = tg_driver_code(TG_OP_capture_mode, driver->capture_mode(&mode));
  if (failed) return failed;
  failed = tg_driver_code(TG_OP_push, driver->push(device->context));
  if (!failed) {
    failed = tg_load_module(driver, device, handle);
    if (!failed) __atomic_store_n(&device->ready, 1, __ATOMIC_RELEASE);
    int64_t left = tg_driver_code(TG_OP_pop, driver->pop(&popped));
    if (!failed) failed = left;
  }
  int64_t restored = tg_driver_code(TG_OP_capture_mode, driver->capture_mode(&mode));
  if (restored) driver->capture_mode(&mode); /* the mode is the thread's own: it is worth a second try */
  return failed ? failed : restored;
}

/* A failure to load leaves nothing behind, and the next call tries again. */
static inline int64_t tg_make_ready(tg_process *process, int id) {
  const tg_driver *driver = &process->driver;
  tg_device *device = &process->devices[id];
  int handle;
  if (!process->opened) {
    int64_t failed = tg_open_driver(&process->driver);
    if (failed) return failed;
    process->opened = 1;
  }
  int64_t failed = tg_driver_code(TG_OP_device, driver->device(&handle, id));
  if (failed) return failed;
  failed = tg_driver_code(TG_OP_retain, driver->retain(&device->context, handle));
  if (failed) return failed;
  failed = tg_load_in_context(driver, device, handle);
  if (!device->ready) driver->release(handle);
  return failed;
}

static inline int64_t tg_ready(tg_process *process, int id) {
  if (__builtin_expect(__atomic_load_n(&process->devices[id].ready, __ATOMIC_ACQUIRE), 1)) return TG_LAUNCHED;
  pthread_mutex_lock(&process->lock);
  int64_t failed = process->devices[id].ready ? TG_LAUNCHED : tg_make_ready(process, id);
  pthread_mutex_unlock(&process->lock);
  return failed;
}

#endif
