// Matrix instructions: each thread passes pointers to its registers, and the last thread to arrive computes for all.
#pragma once

namespace emulated {
// Returns element (row, column) of a 16 x 32 matrix of bytes in the registers of a warp, four registers per thread.
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
// Rounds to the nearest f16, ties to even.
static inline u32 half_of(float value) {
  u32 sign = same_bits<u32>(value) >> 16 & 0x8000;
  float size = __builtin_fabsf(value);
  if (value != value) return 0x7fff;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | (u32)__builtin_nearbyintf(size * 0x1p24f);
  int exponent = __builtin_ilogbf(size);
  u32 fraction = (u32)__builtin_nearbyintf(__builtin_ldexpf(size, 10 - exponent));
  return sign | (((u32)(exponent + 15) << 10) + fraction - 1024);
}
// Tensor cores read the upper 19 bits of a float.
INLINE float tf32_value(u32 bits) { return same_bits<float>(bits & 0xffffe000u); }
static inline void multiply_tf32(Fiber* warp, const bool* present, unsigned lanes) {
  all_there(present, lanes, 32, "mma_16x8x8_tf32");
  for (u32 row = 0; row < 16; row++)
    for (u32 column = 0; column < 8; column++) {
      float& c = ((float*)warp[(row & 7) * 4 + column / 2].pointers[0])[(row >> 3) * 2 + (column & 1)];
      double sum = c;
      for (u32 k = 0; k < 8; k++) {
        u32 a = ((const u32*)warp[(row & 7) * 4 + (k & 3)].pointers[1])[(row >> 3) + 2 * (k >> 2)];
        u32 b = ((const u32*)warp[column * 4 + (k & 3)].pointers[2])[k >> 2];
        sum += (double)tf32_value(a) * tf32_value(b);
      }
      c = (float)sum;
    }
}
static inline void multiply_signed(Fiber* f, const bool* p, unsigned n) { multiply_bytes<signed char>(f, p, n); }
static inline void multiply_unsigned(Fiber* f, const bool* p, unsigned n) { multiply_bytes<unsigned char>(f, p, n); }

// Loads four 8 x 8 matrices of 16 bits; lane l passes the address of row l % 8 of matrix l / 8.
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

INLINE u32 round_halves(float low, float high) { return emulated::half_of(low) | emulated::half_of(high) << 16; }
INLINE u32 round_tf32(float value) {
  u32 bits = emulated::same_bits<u32>(value);
  return value != value ? 0x7fffffff : (bits + 0x1000) & 0xffffe000;
}
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
INLINE void mma_16x8x8_tf32(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  emulated::bring(c, a, b);
  emulated_machine->meet_warp(~0u, emulated::multiply_tf32, "mma_16x8x8_tf32");
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
