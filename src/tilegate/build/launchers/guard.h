/* The guard: everything a call must satisfy before an artifact runs, in 64 bits and in front of TileLang's
 * own checks, which narrow extents to int32, read any object as a tensor and do not compare symbols.
 *
 * A refusal is a return value, never an exception. Nothing is allocated, locked or written but the counter
 * of the row that admitted the call.
 *
 * abi.h, which build/abi.py writes for each artifact, comes first and defines
 *   TG_TENSORS, TG_SYMBOLS   how many
 *   TG_MAX_NDIM              largest rank, at least 1
 *   TG_DEVICE                DLPack device type
 *   tg_dim, tg_tensor        symbol < 0: the extent is fixed
 *   tg_tensors[TG_TENSORS]   what each argument must be, in call order
 */
#ifndef TILEGATE_GUARD_H
#define TILEGATE_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

/* In the order of records.miss.GUARD_CODES. */
enum tg_code {
  TG_LAUNCHED,
  TG_NOT_A_TENSOR,
  TG_ON_ANOTHER_DEVICE,
  TG_DTYPE,
  TG_RANK,
  TG_EXTENT,
  TG_SYMBOL,
  TG_NARROW,
  TG_STRIDES,
  TG_ALIAS,
  TG_SHAPE_CLASS,
  TG_ALIGNMENT,
  TG_ELEMENTS,
  TG_HOST,
  TG_ARGUMENTS,
  TG_DIMENSIONS,
  TG_DRIVER,
  TG_STICKY
};

/* A refusal names its reason, the tensor and the dim, each in a byte of its own. */
#define TG_REFUSE(code, tensor, dim) \
  ((int64_t)(code) | (int64_t)(tensor) << 8 | (int64_t)(dim) << 16)

/* The rows of a table, one for each shape class (ShapeClass.row behind a counter):
 *   table: n_rows, row...   row: hits, alignment, max_elements, dense, (start, stop, step) for each symbol */
#define TG_ROW (4 + 3 * TG_SYMBOLS)

/* A call as the guard has seen it: dense views, and the value of every symbol. The strides are written out:
 * TileLang's host code takes a missing array for strides of 1. */
typedef struct {
  DLTensor view[TG_TENSORS];
  int64_t strides[TG_TENSORS][TG_MAX_NDIM];
  int64_t bytes[TG_TENSORS];
  int64_t symbol[TG_SYMBOLS + 1];
  int64_t max_elements;
  uintptr_t address_bits;
  int loose; /* 1 + the first tensor that is not dense, or 0 */
} tg_call;

static inline const DLTensor *tg_dltensor(const TVMFFIAny *arg) {
  if (arg->type_index == kTVMFFIDLTensorPtr) return (const DLTensor *)arg->v_ptr;
  if (arg->type_index == kTVMFFITensor)
    return (const DLTensor *)((const char *)arg->v_obj + sizeof(TVMFFIObject));
  return NULL;
}

static inline int64_t tg_read_tensor(tg_call *call, int i, const DLTensor *t) {
  const tg_tensor *want = &tg_tensors[i];
  if (t->device.device_type != TG_DEVICE || t->device.device_id != call->view[0].device.device_id)
    return TG_REFUSE(TG_ON_ANOTHER_DEVICE, i, 0);
  if (t->dtype.code != want->dtype_code || t->dtype.bits != want->dtype_bits || t->dtype.lanes != 1)
    return TG_REFUSE(TG_DTYPE, i, 0);
  if (t->ndim != want->ndim) return TG_REFUSE(TG_RANK, i, 0);

  int64_t elements = 1;
  for (int d = 0; d < want->ndim; ++d) {
    int64_t extent = t->shape[d];
    int32_t symbol = want->dims[d].symbol;
    if (extent < 0 || extent > INT32_MAX) return TG_REFUSE(TG_NARROW, i, d);
    if (symbol < 0) {
      if (extent != want->dims[d].extent) return TG_REFUSE(TG_EXTENT, i, d);
    } else if (call->symbol[symbol] < 0) {
      call->symbol[symbol] = extent;
    } else if (extent != call->symbol[symbol]) {
      return TG_REFUSE(TG_SYMBOL, i, d);
    }
    if (__builtin_mul_overflow(elements, extent, &elements)) return TG_REFUSE(TG_ELEMENTS, i, d);
  }
  int64_t dense = 1, span = elements ? 1 : 0;
  for (int d = want->ndim - 1; d >= 0; --d) {
    /* A unit dim may carry any stride, and so may a tensor without elements. */
    int64_t stride = t->strides && elements && t->shape[d] != 1 ? t->strides[d] : dense;
    if (stride != dense) {
      if (!want->strided || d == want->ndim - 1 || stride < 0 || stride > INT32_MAX)
        return TG_REFUSE(TG_STRIDES, i, d);
      if (!call->loose) call->loose = i + 1;
    }
    if (elements) span += (t->shape[d] - 1) * stride; /* below 2^61 + 2^62: no overflow */
    if (span > (int64_t)1 << 61) return TG_REFUSE(TG_ELEMENTS, i, d);
    call->strides[i][d] = stride;
    dense *= t->shape[d];
  }
  call->view[i] = *t;
  call->view[i].strides = call->strides[i];
  call->view[i].data = (char *)t->data + t->byte_offset;
  call->view[i].byte_offset = 0;
  /* torch has tensors without memory: zeros that autograd made up, wrappers. */
  if (elements && !t->data) return TG_REFUSE(TG_NOT_A_TENSOR, i, 0);
  call->bytes[i] = span * (want->dtype_bits / 8);
  if (elements > call->max_elements) call->max_elements = elements;
  if (span > call->max_elements) call->max_elements = span;
  if (elements) call->address_bits |= (uintptr_t)call->view[i].data;
  return TG_LAUNCHED;
}

/* An output that overlaps another tensor: no kernel promises to bear it. */
static inline int64_t tg_overlap(const tg_call *call) {
  for (int w = 0; w < TG_TENSORS; ++w) {
    if (!tg_tensors[w].written || !call->bytes[w]) continue;
    uintptr_t start = (uintptr_t)call->view[w].data, stop = start + (uintptr_t)call->bytes[w];
    for (int i = 0; i < TG_TENSORS; ++i) {
      uintptr_t other = (uintptr_t)call->view[i].data;
      if (i != w && other < stop && start < other + (uintptr_t)call->bytes[i])
        return TG_REFUSE(TG_ALIAS, w, i);
    }
  }
  return TG_LAUNCHED;
}

/* The classes are disjoint, so the first row that admits the shape decides. */
static inline int64_t tg_admit(const tg_call *call, int64_t *table) {
  int64_t *row = table + 1;
  for (int64_t r = 0; r < table[0]; ++r, row += TG_ROW) {
    int inside = 1;
    for (int s = 0; s < TG_SYMBOLS && inside; ++s) {
      const int64_t *span = row + 4 + 3 * s;
      int64_t n = call->symbol[s];
      inside = span[0] <= n && n <= span[1] && n % span[2] == 0;
    }
    if (!inside) continue;
    if (call->address_bits & (uintptr_t)(row[1] - 1)) return TG_REFUSE(TG_ALIGNMENT, 0, 0);
    if (row[3] && call->loose) return TG_REFUSE(TG_STRIDES, call->loose - 1, 0);
    if (call->max_elements > row[2]) return TG_REFUSE(TG_ELEMENTS, 0, 0); /* last: explain relies on it */
    __atomic_fetch_add(row, 1, __ATOMIC_RELAXED);
    return TG_LAUNCHED;
  }
  return TG_REFUSE(TG_SHAPE_CLASS, 0, 0);
}

/* args: the tensors in ABI order, then the address of a table as an integer. */
static inline int64_t tg_guard(tg_call *call, const TVMFFIAny *args, int32_t num_args) {
  if (num_args != TG_TENSORS + 1 || args[TG_TENSORS].type_index != kTVMFFIInt)
    return TG_REFUSE(TG_ARGUMENTS, 0, 0);
  for (int s = 0; s < TG_SYMBOLS; ++s) call->symbol[s] = -1;
  call->max_elements = 0;
  call->address_bits = 0;
  call->loose = 0;
  for (int i = 0; i < TG_TENSORS; ++i) {
    const DLTensor *t = tg_dltensor(&args[i]);
    if (!t) return TG_REFUSE(TG_NOT_A_TENSOR, i, 0);
    if (i == 0) call->view[0].device = t->device;
    int64_t refused = tg_read_tensor(call, i, t);
    if (refused) return refused;
  }
  int64_t refused = tg_overlap(call);
  if (refused) return refused;
  return tg_admit(call, (int64_t *)(uintptr_t)args[TG_TENSORS].v_int64);
}

#endif
