// Copies of boxes of a tensor into shared memory; elements outside the tensor are zero.
#pragma once

struct __align__(64) TensorMap { u64 words[16]; };

namespace emulated {
// Returns the destination of byte `offset` of a box at `to`.
INLINE u8* swizzled(u32 to, u32 offset, u32 swizzle) {
  u32 address = to + offset, mask = ((1u << swizzle) - 1) << 4;
  return (u8*)shared_pointer(address ^ ((address >> 3) & mask));
}

struct TensorLoad {
  Tensor tensor;
  i32 at[5];
  u32 to;
  Barrier* barrier;
};
// Returns the tensor row at index `row` (dimensions 1 and up) of the box; null outside the tensor.
INLINE const u8* row_of(const TensorLoad& load, const u32* row) {
  const Tensor& tensor = load.tensor;
  const u8* source = tensor.base;
  for (u32 d = 1; d < tensor.rank; d++) {
    i64 place = (i64)load.at[d] + row[d];
    if (place < 0 || place >= (i64)tensor.extents[d]) return nullptr;
    source += (u64)place * tensor.strides[d - 1];
  }
  return source;
}
INLINE void load_row(const TensorLoad& load, const u8* source, u32 offset) {
  const Tensor& tensor = load.tensor;
  const u32 bytes = tensor.box[0] * tensor.element;
  for (u32 byte = 0; byte < bytes; byte += 16) {
    alignas(16) u8 chunk[16] = {};
    for (u32 i = 0; source && i < 16; i += tensor.element) {
      i64 place = (i64)load.at[0] + (byte + i) / tensor.element;
      if (place >= 0 && place < (i64)tensor.extents[0]) __builtin_memcpy(chunk + i, source + place * tensor.element, tensor.element);
    }
    __builtin_memcpy(swizzled(load.to, offset + byte, tensor.swizzle), chunk, 16);
  }
}
static inline void run_tensor_load(const void* data) {
  const TensorLoad& load = *(const TensorLoad*)data;
  const Tensor& tensor = load.tensor;
  const u32 bytes = tensor.box[0] * tensor.element;
  u32 rows = 1, row[5] = {};
  for (u32 d = 1; d < tensor.rank; d++) rows *= tensor.box[d];
  for (u32 i = 0; i < rows; i++) {
    load_row(load, row_of(load, row), i * bytes);
    for (u32 d = 1; d < tensor.rank && ++row[d] == tensor.box[d]; d++) row[d] = 0;
  }
  barrier_update(*load.barrier, 0, -(i32)(rows * bytes));
}
INLINE void tensor_load(u32 rank, u32 to, const TensorMap* map, const i32 (&at)[5], u32 address) {
  TensorLoad load;
  load.barrier = &barrier_at(address);
  if ((u64)map % 64) emulated_machine->die("tensor_load: the map at %p is not aligned to 64 bytes", map);
  __builtin_memcpy(&load.tensor, map, sizeof load.tensor);
  if (load.tensor.magic != Tensor::Magic) emulated_machine->die("tensor_load: what stands at %p is no map of a tensor", map);
  if (load.tensor.rank != rank) emulated_machine->die("tensor_load_%ud of an array of %u dimensions", rank, load.tensor.rank);
  if ((i64)at[0] * load.tensor.element % 16)
    emulated_machine->die("tensor_load: %d elements of %u bytes along a row are not a multiple of 16 bytes", at[0], load.tensor.element);
  if (to % 128) emulated_machine->die("tensor_load to %#x: not a multiple of 128", to);
  __builtin_memcpy(load.at, at, sizeof at);
  load.to = to;
  emulated_machine->later(Loads, load.barrier, run_tensor_load, &load, sizeof load);
  if (emulated_machine->late) emulated_machine->wake(load.barrier);
}
}  // namespace emulated
INLINE void tensor_prefetch(const TensorMap*) { emulated::from_sm_90(); }
INLINE void tensor_load_3d(u32 to, const TensorMap* map, i32 x, i32 y, i32 z, u32 barrier) {
  emulated::tensor_load(3, to, map, {x, y, z, 0, 0}, barrier);
}
