/* What TileLang's host code asks for by name, besides the kernels. kernel_table.py lists the same names. */
#ifndef TILEGATE_PACKED_H
#define TILEGATE_PACKED_H

#define TG_MAX_RANK 5

/* A reader of packed arguments: after a wrong kind, or past the end, it gives zeros and says so once. */
typedef struct {
  const TVMFFIAny *next, *end;
  int wrong;
} tg_reader;

static inline int64_t tg_take(tg_reader *reader) {
  int ok = reader->next < reader->end && reader->next->type_index == kTVMFFIInt;
  reader->wrong |= !ok;
  return ok ? reader->next++->v_int64 : 0;
}

static inline void *tg_take_pointer(tg_reader *reader) {
  int ok = reader->next < reader->end &&
           (reader->next->type_index == kTVMFFIOpaquePtr || reader->next->type_index == kTVMFFINone);
  reader->wrong |= !ok;
  return ok ? reader->next++->v_ptr : NULL;
}

static inline void tg_take_small(tg_reader *reader, uint32_t *into, int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] = (uint32_t)tg_take(reader);
}

typedef struct {
  void *map, *address;
  int dtype, format[4]; /* interleave, swizzle, promotion, fill */
  int64_t rank;
  uint64_t extents[TG_MAX_RANK], strides[TG_MAX_RANK]; /* strides in bytes; the first is the element's own */
  int empty;
} tg_map;

static inline void tg_take_map(tg_reader *reader, tg_map *map, int64_t min_rank) {
  map->map = tg_take_pointer(reader);
  map->dtype = (int)tg_take(reader);
  map->rank = tg_take(reader);
  map->address = tg_take_pointer(reader);
  map->empty = 0;
  reader->wrong |= map->rank < min_rank || map->rank > TG_MAX_RANK || !map->map;
  if (reader->wrong) map->rank = 0;
  for (int64_t i = 0; i < map->rank; ++i) {
    map->extents[i] = (uint64_t)tg_take(reader);
    map->empty |= !map->extents[i];
  }
  for (int64_t i = 0; i < map->rank; ++i) map->strides[i] = (uint64_t)tg_take(reader);
}

/* The driver has no map of a tensor without elements. Nor is one needed where the grid is empty too: so the
 * refusal waits for a launch. */
static inline int tg_no_map(tg_run *run, const tg_reader *reader, const tg_map *map) {
  if (reader->wrong || reader->next != reader->end) return tg_host_is_wrong(run);
  if (!map->empty) return 1;
  run->void_map = 1;
  return 0;
}

static int tg_set_device(tg_run *run, const TVMFFIAny *args, int32_t num_args) {
  tg_reader reader = {args, args + num_args, 0};
  int64_t type = tg_take(&reader), id = tg_take(&reader);
  return reader.wrong || type != TG_DEVICE || id != run->id ? tg_host_is_wrong(run) : 0;
}

static int tg_map_tiled(tg_run *run, const TVMFFIAny *args, int32_t num_args) {
  tg_reader reader = {args, args + num_args, 0};
  uint32_t box[TG_MAX_RANK], steps[TG_MAX_RANK], format[4];
  tg_map map;
  tg_take_map(&reader, &map, 1);
  tg_take_small(&reader, box, map.rank);
  tg_take_small(&reader, steps, map.rank);
  tg_take_small(&reader, format, 4);
  int wanted = tg_no_map(run, &reader, &map);
  if (wanted <= 0) return wanted;
  return tg_asked(run, TG_OP_map_tiled,
                  run->driver->map_tiled(map.map, map.dtype, (uint32_t)map.rank, map.address, map.extents,
                                         map.strides + 1, box, steps, (int)format[0], (int)format[1],
                                         (int)format[2], (int)format[3]));
}

static int tg_map_im2col(tg_run *run, const TVMFFIAny *args, int32_t num_args) {
  tg_reader reader = {args, args + num_args, 0};
  uint32_t steps[TG_MAX_RANK], lower[TG_MAX_RANK], upper[TG_MAX_RANK], box[2], format[4];
  tg_map map;
  tg_take_map(&reader, &map, 3);
  tg_take_small(&reader, steps, map.rank);
  tg_take_small(&reader, lower, map.rank - 2);
  tg_take_small(&reader, upper, map.rank - 2);
  tg_take_small(&reader, box, 2); /* pixels, then channels: the driver takes them the other way round */
  tg_take_small(&reader, format, 4);
  int wanted = tg_no_map(run, &reader, &map);
  if (wanted <= 0) return wanted;
  return tg_asked(run, TG_OP_map_im2col,
                  run->driver->map_im2col(map.map, map.dtype, (uint32_t)map.rank, map.address, map.extents,
                                          map.strides + 1, (const int *)lower, (const int *)upper, box[1],
                                          box[0], steps, (int)format[0], (int)format[1], (int)format[2],
                                          (int)format[3]));
}

/* The window goes with each launch, not with the stream: the stream is torch's, and stays as it was. */
static int tg_set_window(tg_run *run, const TVMFFIAny *args, int32_t num_args) {
  tg_reader reader = {args, args + num_args, 0};
  void *base = tg_take_pointer(&reader);
  int64_t bytes = tg_take(&reader);
  if (reader.wrong || bytes < 0 || num_args != 3 || args[2].type_index != kTVMFFIFloat)
    return tg_host_is_wrong(run);
  if (bytes > run->device->max_window) bytes = run->device->max_window;
  run->window = (tg_window){base, (size_t)bytes, (float)args[2].v_float64, TG_PERSISTING, TG_STREAMING};
  return 0;
}

static int tg_reset_window(tg_run *run, const TVMFFIAny *args, int32_t num_args) {
  (void)args;
  if (num_args) return tg_host_is_wrong(run);
  run->window = (tg_window){0};
  return 0;
}

typedef struct {
  const char *name;
  int (*call)(tg_run *run, const TVMFFIAny *args, int32_t num_args);
} tg_named;

static const tg_named tg_provided[] = {
    {"__tvm_set_device", tg_set_device},
    {"__tvm_tensormap_create_tiled", tg_map_tiled},
    {"__tvm_tensormap_create_im2col", tg_map_im2col},
    {"__tvm_cuda_stream_set_access_policy_window", tg_set_window},
    {"__tvm_cuda_stream_reset_access_policy_window", tg_reset_window},
};

#endif
