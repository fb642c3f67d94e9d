// Matrix instructions: the threads bring pointers to their registers, and the last one computes for all.
#pragma once

namespace emulated {
// Element (row, column) of a 16 x 32 matrix of bytes in the registers of a warp, four a thread.
INLINE u32 byte_of_a(const Fiber* warp, u32 row, u32 column) {
  const u32* a = (const u32*)warp[(row & 7) * 4 + (column & 15) / 4].pointers[1];
  return (a[(row >> 3) + 2 * (column >> 4)] >> 8 * (column & 3)) & 255;
}
INLINE u32 byte_of_b(const Fiber* warp, u32 row, u32 column) {
  const u32* b = (const u32*)warp[column * 4 + (row & 15) / 4].pointers[2];
  return (b[row >> 4] >> 8 * (row & 3)) & 255;
}
INLINE void all_there(const bool* present, u32 lanes, u32 expected, const char* what) {
  u32 count = 0;
  for (u32 i = 0; i < lanes; i++) count += present[i];
  if (count != expected) emulated_machine->die("%s by %u threads instead of %u", what, count, expected);
}
template <class Byte> INLINE void multiply_bytes(Fiber* warp, const bool* present, u32 lanes) {
  all_there(present, lanes, 32, "mma_16x8x32");
  for (u32 row = 0; row < 16; row++)
    for (u32 column = 0; column < 8; column++) {
      i32& c = ((i32*)warp[(row & 7) * 4 + column / 2].pointers[0])[(row >> 3) * 2 + (column & 1)];
      u32 sum = (u32)c;
      for (u32 k = 0; k < 32; k++) sum += (u32)((i32)(Byte)byte_of_a(warp, row, k) * (i32)(Byte)byte_of_b(warp, k, column));
      c = (i32)sum;
    }
}
INLINE float half_value(u32 bits) {
  u32 exponent = (bits >> 10) & 31, fraction = bits & 1023;
  float value = exponent == 0 ? __builtin_ldexpf((float)fraction, -24)
                : exponent == 31 ? (fraction ? __builtin_nanf("") : __builtin_inff())
                                 : __builtin_ldexpf((float)(1024 + fraction), (int)exponent - 25);
  return bits & 0x8000 ? -value : value;
}
static inline void multiply_halves(Fiber* warp, const bool* present, unsigned lanes) {
  all_there(present, lanes, 32, "mma_16x8x16_f16");
  for (u32 row = 0; row < 16; row++)
    for (u32 column = 0; column < 8; column++) {
      float& c = ((float*)warp[(row & 7) * 4 + column / 2].pointers[0])[(row >> 3) * 2 + (column & 1)];
      double sum = c;
      for (u32 k = 0; k < 16; k++) {
        u32 a = ((const u32*)warp[(row & 7) * 4 + (k & 7) / 2].pointers[1])[(row >> 3) + 2 * (k >> 3)];
        u32 b = ((const u32*)warp[column * 4 + (k & 7) / 2].pointers[2])[k >> 3];
        sum += (double)half_value(a >> 16 * (k & 1) & 65535) * half_value(b >> 16 * (k & 1) & 65535);
      }
      c = (float)sum;
    }
}
static inline void multiply_signed(Fiber* f, const bool* p, unsigned n) { multiply_bytes<signed char>(f, p, n); }
static inline void multiply_unsigned(Fiber* f, const bool* p, unsigned n) { multiply_bytes<unsigned char>(f, p, n); }

// Four 8 x 8 matrices of 16 bits; lane l brings the address of row l % 8 of matrix l / 8.
template <bool Transposed> static inline void load_rows(Fiber* warp, const bool* present, unsigned lanes) {
  all_there(present, lanes, 32, "load_matrix_x4");
  for (u32 lane = 0; lane < 32; lane++)
    if (warp[lane].operand % 16) emulated_machine->die("load_matrix_x4: address %#x is not a multiple of 16", warp[lane].operand);
  for (u32 lane = 0; lane < 32; lane++)
    for (u32 i = 0; i < 4; i++) {
      u32 word = 0;
      for (u32 half = 0; half < 2; half++) {
        u32 row = Transposed ? lane % 4 * 2 + half : lane / 4, column = Transposed ? lane / 4 : lane % 4 * 2 + half;
        word |= (u32)((const u16*)warp[8 * i + row].pointers[1])[column] << 16 * half;
      }
      ((u32*)warp[lane].pointers[0])[i] = word;
    }
}
static inline void store_rows(Fiber* warp, const bool* present, unsigned lanes) {
  all_there(present, lanes, 32, "store_matrices");
  for (u32 lane = 0; lane < 32; lane++)
    if (warp[lane].operand % 16) emulated_machine->die("store_matrices: address %#x is not a multiple of 16", warp[lane].operand);
  for (u32 lane = 0; lane < 32; lane++)
    for (u32 i = 0; i < 4; i++)
      ((u32*)warp[8 * i + lane / 4].pointers[1])[lane % 4] = ((const u32*)warp[lane].pointers[0])[i];
}
INLINE void bring(void* c, const void* a, const void* b) {
  Fiber* self = emulated_machine->current;
  self->pointers[0] = c, self->pointers[1] = (void*)a, self->pointers[2] = (void*)b;
}
}  // namespace emulated

INLINE void mma_16x8x32_s8(i32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  emulated::bring(c, a, b);
  emulated_machine->meet_warp(~0u, emulated::multiply_signed, "mma_16x8x32_s8");
}
INLINE void mma_16x8x32_u8(i32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  emulated::bring(c, a, b);
  emulated_machine->meet_warp(~0u, emulated::multiply_unsigned, "mma_16x8x32_u8");
}
INLINE void mma_16x8x16_f16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  emulated::bring(c, a, b);
  emulated_machine->meet_warp(~0u, emulated::multiply_halves, "mma_16x8x16_f16");
}
INLINE void load_matrix_x4(u32 (&r)[4], u32 address) {
  emulated::bring(r, emulated::shared_pointer(address), nullptr);
  emulated_machine->current->operand = address;
  emulated_machine->meet_warp(~0u, emulated::load_rows<false>, "load_matrix_x4");
}
INLINE void load_matrix_x4_transposed(u32 (&r)[4], u32 address) {
  emulated::bring(r, emulated::shared_pointer(address), nullptr);
  emulated_machine->current->operand = address;
  emulated_machine->meet_warp(~0u, emulated::load_rows<true>, "load_matrix_x4_transposed");
}
INLINE void store_matrices(u32 to, u32 a, u32 b, u32 c, u32 d) {
  emulated::from_sm_90();
  u32 words[4] = {a, b, c, d};
  emulated::bring(words, emulated::shared_pointer(to), nullptr);
  emulated_machine->current->operand = to;
  emulated_machine->meet_warp(~0u, emulated::store_rows, "store_matrices");
}

#if __CUDA_ARCH__ >= 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
namespace emulated {
// Byte (row of the 32, column of the 64) of a matrix without swizzle: cells of 8 columns by 16 rows, 128 bytes each.
struct Matrix {
  const u8* base;
  u64 along_k, along_n;
  explicit Matrix(u64 descriptor) {
    if (descriptor >> 62) emulated_machine->die("wgmma: descriptor %#llx asks for a swizzle", descriptor);
    u64 window = (u64)emulated_machine->shared & ~0x3ffffull;
    base = (const u8*)(window + ((descriptor & 0x3fff) << 4));
    along_k = ((descriptor >> 16) & 0x3fff) << 4, along_n = ((descriptor >> 32) & 0x3fff) << 4;
  }
  const u8* row16(u32 half, u32 column) const { return base + half * along_k + column / 8 * along_n + column % 8 * 16; }
};
// One product of a warpgroup, with the registers that the threads brought.
struct Product {
  i32* c[128];
  u32 a[128][4];
  u64 descriptor;
  bool add;
};
__attribute__((optimize("O3"))) static inline void multiply_wgmma(const void* data) {
  const Product& product = *(const Product*)data;
  Matrix b(product.descriptor);
  u8 columns[64][32];
  for (u32 n = 0; n < 64; n++)
    for (u32 half = 0; half < 2; half++) __builtin_memcpy(columns[n] + 16 * half, b.row16(half, n), 16);
  for (u32 row = 0; row < 64; row++) {
    u32 warp = row / 16 * 32;
    u8 bytes[32];
    for (u32 k = 0; k < 32; k += 4)
      __builtin_memcpy(bytes + k, &product.a[warp + (row & 7) * 4 + k % 16 / 4][((row >> 3) & 1) + 2 * (k / 16)], 4);
    for (u32 n = 0; n < 64; n++) {
      u32 sum = 0;
      for (u32 k = 0; k < 32; k++) sum += (u32)bytes[k] * columns[n][k];
      i32& c = product.c[warp + (row & 7) * 4 + n % 8 / 2][n / 8 * 4 + ((row >> 3) & 1) * 2 + (n & 1)];
      c = product.add ? (i32)((u32)c + sum) : (i32)sum;
    }
  }
}
static inline void queue_wgmma(Fiber* group, const bool* present, unsigned lanes) {
  all_there(present, lanes, 128, "wgmma_64x64x32_u8");
  Product product;
  product.descriptor = group[0].value, product.add = group[0].operand;
  for (u32 i = 0; i < 128; i++) {
    if (group[i].value != group[0].value || group[i].operand != group[0].operand)
      emulated_machine->die("wgmma_64x64x32_u8: threads 0 and %u of a warpgroup bring different descriptors", i);
    product.c[i] = (i32*)group[i].pointers[0];
    __builtin_memcpy(product.a[i], group[i].pointers[1], 16);
  }
  emulated_machine->later(Products, group, multiply_wgmma, &product, sizeof product);
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
INLINE void wgmma_64x64x32_u8(i32 (&c)[32], const u32 (&a)[4], u64 b, i32 add) {
  emulated::bring(c, a, nullptr);
  emulated::Fiber* self = emulated_machine->current;
  self->value = b, self->operand = add != 0;
  emulated_machine->meet_warpgroup(emulated::queue_wgmma, "wgmma_64x64x32_u8");
}
#endif
