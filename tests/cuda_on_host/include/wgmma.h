// Hopper's matrix instructions: 128 threads pass registers and a descriptor, and the last thread to arrive computes
// for all.
#pragma once

#if __CUDA_ARCH__ >= 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
namespace emulated {
// Right-hand operand (n columns of 32 bytes) that a descriptor addresses: core matrices of 8 columns by 16 bytes at the
// given strides or, with a swizzle, groups of 8 rows of 128, 64 or 32 bytes with permuted chunks of 16 bytes.
struct Matrix {
  const u8* base;
  u64 along_k, along_n, row_bytes, mask;
  explicit Matrix(u64 descriptor) {
    u64 window = (u64)emulated_machine->shared & ~0x3ffffull;
    base = (const u8*)(window + ((descriptor & 0x3fff) << 4));
    along_k = ((descriptor >> 16) & 0x3fff) << 4, along_n = ((descriptor >> 32) & 0x3fff) << 4;
    u32 layout = (u32)(descriptor >> 62);
    if (descriptor >> 49 & 7) emulated_machine->die("wgmma: descriptor %#llx has an offset of its base", descriptor);
    row_bytes = layout ? 256 >> layout : 16;
    mask = layout ? row_bytes - 16 : 0;
    if (layout) along_k = 16;
  }
  const u8* row16(u32 half, u32 column) const {
    u64 address = (u64)base + half * along_k + column / 8 * along_n + column % 8 * row_bytes;
    return (const u8*)(address ^ ((address >> 3) & mask));
  }
};
// Arguments of one product of a warpgroup: the registers of its threads, and the descriptor.
struct Product {
  i32* c[128];
  u32 a[128][4];
  u64 descriptor;
  bool add;
};
// Widens bytes to 16-bit numbers, which the host multiplies and adds in pairs.
template <class Byte> INLINE void widen(i16 (&to)[32], const u8* bytes) {
  for (u32 k = 0; k < 32; k++) to[k] = (Byte)bytes[k];
}
template <u32 N, class Byte> __attribute__((optimize("O3"))) static inline void multiply_wgmma(const void* data) {
  const Product& product = *(const Product*)data;
  Matrix b(product.descriptor);
  i16 columns[N][32], left[32];
  u8 bytes[32];
  for (u32 n = 0; n < N; n++) {
    for (u32 half = 0; half < 2; half++) __builtin_memcpy(bytes + 16 * half, b.row16(half, n), 16);
    widen<Byte>(columns[n], bytes);
  }
  for (u32 row = 0; row < 64; row++) {
    u32 warp = row / 16 * 32;
    for (u32 k = 0; k < 32; k += 4)
      __builtin_memcpy(bytes + k, &product.a[warp + (row & 7) * 4 + k % 16 / 4][((row >> 3) & 1) + 2 * (k / 16)], 4);
    widen<Byte>(left, bytes);
    for (u32 n = 0; n < N; n++) {
      i32 sum = 0;
      for (u32 k = 0; k < 32; k++) sum += (i32)left[k] * columns[n][k];
      i32& c = product.c[warp + (row & 7) * 4 + n % 8 / 2][n / 8 * 4 + ((row >> 3) & 1) * 2 + (n & 1)];
      c = product.add ? (i32)((u32)c + (u32)sum) : sum;
    }
  }
}
template <u32 N, class Byte> static inline void queue_wgmma(Fiber* group, const bool* present, unsigned lanes) {
  all_there(present, lanes, 128, "wgmma");
  Product product;
  product.descriptor = group[0].value, product.add = group[0].operand;
  for (u32 i = 0; i < 128; i++) {
    if (group[i].value != group[0].value || group[i].operand != group[0].operand)
      emulated_machine->die("wgmma: threads 0 and %u of a warpgroup bring different descriptors", i);
    product.c[i] = (i32*)group[i].pointers[0];
    __builtin_memcpy(product.a[i], group[i].pointers[1], 16);
  }
  emulated_machine->later(Products, group, multiply_wgmma<N, Byte>, &product, sizeof product);
}
template <u32 N, class Byte> INLINE void wgmma(i32* c, const u32 (&a)[4], u64 b, i32 add) {
  bring(c, a, nullptr);
  Fiber* self = emulated_machine->current;
  self->value = b, self->operand = add != 0;
  emulated_machine->meet_warpgroup(queue_wgmma<N, Byte>, "wgmma");
}
template <unsigned Left> static inline void finish_wgmma(Fiber* group, const bool*, unsigned) {
  emulated_machine->finish(Products, group, Left);
}
static inline void commit_wgmma(Fiber* group, const bool*, unsigned) { emulated_machine->commit(Products, group); }
}  // namespace emulated
INLINE void wgmma_fence() {}
INLINE void wgmma_commit() {
  if (emulated_machine->late) emulated_machine->meet_warpgroup(emulated::commit_wgmma, "wgmma_commit");
}
template <int Left> INLINE void wgmma_wait() {
  if (emulated_machine->late) emulated_machine->meet_warpgroup(emulated::finish_wgmma<Left>, "wgmma_wait");
}
INLINE void wgmma_64x64x32_u8(i32 (&c)[32], const u32 (&a)[4], u64 b, i32 add) { emulated::wgmma<64, u8>(c, a, b, add); }
INLINE u64 wgmma_swizzled(u32 address) {
  if (address % 1024 > 96 || address % 32) emulated_machine->die("wgmma_swizzled: address %#x", address);
  return (u64)((address & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
template <int N, int M> INLINE void wgmma_s8(i32 (&c)[M], const u32 (&a)[4], u64 b, i32 add) {
  static_assert(N == 8 || (N % 16 == 0 && N <= 144), "columns of a product");
  static_assert(2 * M >= N, "accumulators");
  emulated::wgmma<N, i8>(c, a, b, add);
}
template <int Registers> INLINE void registers_fewer() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "registers of a thread");
}
template <int Registers> INLINE void registers_more() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "registers of a thread");
}
#endif
