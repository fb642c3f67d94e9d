// What is made of a spectrum's values: complex numbers, sums of products, or integers of few bits.
#pragma once
#include "fft.cuh"
#include "fir.cuh"

#define FORM_SPECTRA 0
#define FORM_DETECTED 1
#define FORM_REQUANTIZED 2

// Of X and Y, the two polarizations; all but POWER need both in one block (POLARIZATIONS 2).
#define PRODUCTS_POWER 0
#define PRODUCTS_I 1
#define PRODUCTS_IQUV_LINEAR 2
#define PRODUCTS_IQUV_CIRCULAR 3
#define PRODUCTS_AABBCRCI 4

struct Arguments {
  // of stream 0, the first sample under the first window; bytes from stream to stream
  const u8* input;
  u64 stride;
  // of the first row; elements from row to row, and from product to product
  u8* output;
  u64 row_elements, product_elements;
  // of each element of a row, how many were limited; or null
  u64* saturated;
  const float* coefficients;
  const float4* factors;
  // of each unit (a stream, or two streams that are multiplied), the first of its elements in a row
  const u64* places;
  // of each element of a polarization; how many there are
  const float* gains;
  u32 gain_elements;
  // spectra of a launch and of a row; a unit's spectra are shared out in items of so many, all of them `all_items`
  u32 spectra, row_spectra, item_spectra, items, all_items;
};

// What a block does next: `start` is the first spectrum of its batch, of which the first `skipped` are done already.
struct Batch {
  u32 unit, start, skipped;
};

// A line's frequencies are `line` + i LINES. In the output, frequency m stands at m with the bits of ORDER turned.
constexpr u32 LINES = POINTS / SIDE;
INLINE u32 place_of(u32 line) { return line ^ ORDER % LINES; }
INLINE constexpr u32 place_in_line(u32 i) { return (i ^ ORDER / LINES) * LINES; }

#if FORM == FORM_REQUANTIZED
// One part of a complex integer of BITS bits. `is_limited` becomes true where it is out of range, or not a number.
INLINE u32 whole(float value, bool& is_limited) {
  constexpr float MOST = (1 << (BITS - 1)) - 1;
  is_limited |= !(value < MOST + 0.5f && value >= -MOST - 1.5f);
  // Of a float of this size the last bits are a whole number, rounded to even.
  const float sum = fminf(fmaxf(value, -MOST - 1.f), MOST) + 12582912.f;
  return value == value ? __float_as_uint(sum) : 0;
}

INLINE void write_line(const Arguments& a, const float2 (&v)[SIDE], u64 row, u64 place, u32 line) {
  place += place_of(line);
  const float* gains = a.gains + place % a.gain_elements;
  u8* to = a.output + (row * a.row_elements + place) * (BITS / 4);
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    const u32 at = place_in_line(i);
    const float gain = __ldg(gains + at);
    bool is_limited = false;
    const u32 re = whole(v[i].x * gain, is_limited), im = whole(v[i].y * gain, is_limited);
    if (BITS == 8)
      __stcs((u16*)to + at, (u16)(im << 8 | (re & 255)));
    else
      __stcs(to + at, (u8)(re << 4 | (im & 15)));
    if (is_limited) atomicAdd(a.saturated + place + at, 1ull);
  }
}

#elif FORM == FORM_SPECTRA
// One line of a spectrum that is a row.
INLINE void write_line(const Arguments& a, const float2 (&v)[SIDE], u64 row, u64 place, u32 line) {
  float2* to = (float2*)a.output + row * a.row_elements + place + place_of(line);
#pragma unroll
  for (int i = 0; i < SIDE; i++) __stcs(to + place_in_line(i), v[i]);
}

#else
// Leaves what is to be summed where the line's own values stood.
INLINE void leave_line(const float2 (&v)[SIDE], float2* own) {
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    if (POLARIZATIONS == 1)
      own[i].x = fmaf(v[i].x, v[i].x, v[i].y * v[i].y);
    else
      own[i] = v[i];
  }
}

constexpr int PRODUCT_COUNT = PRODUCTS == PRODUCTS_POWER || PRODUCTS == PRODUCTS_I ? 1 : 4;

INLINE void add_products(float (&sums)[PRODUCT_COUNT], float2 x, float2 y) {
  if constexpr (POLARIZATIONS == 1) {
    sums[0] += x.x;
  } else {
    const float xx = fmaf(x.x, x.x, x.y * x.y), yy = fmaf(y.x, y.x, y.y * y.y);
    if constexpr (PRODUCT_COUNT == 1) {
      sums[0] += xx + yy;
    } else {
      const float re = fmaf(x.x, y.x, x.y * y.y), im = fmaf(x.y, y.x, -(x.x * y.y));
      if constexpr (PRODUCTS == PRODUCTS_IQUV_LINEAR)
        sums[0] += xx + yy, sums[1] += xx - yy, sums[2] += 2.f * re, sums[3] += 2.f * im;
      else if constexpr (PRODUCTS == PRODUCTS_IQUV_CIRCULAR)
        sums[0] += xx + yy, sums[1] += 2.f * re, sums[2] += 2.f * im, sums[3] += xx - yy;
      else
        sums[0] += xx, sums[1] += yy, sums[2] += re, sums[3] += im;
    }
  }
}

// Adds a batch's spectra to their rows, in their order. `values` holds the lines of all its spectra, RADIX rows of PITCH
// values each; a sum that a later batch goes on with waits in the output.
template <int SPECTRA, int PITCH> INLINE void add_spectra(const Arguments& a, const Batch& batch, const float2* values) {
  static_assert(THREADS % LINES == 0, "a thread's frequencies share a line");
  const u32 first = batch.start + batch.skipped, row = first / a.row_spectra, position = first - row * a.row_spectra;
  const u32 line = threadIdx.x % LINES;
  const float2* own = values + line % RADIX * PITCH + (SIDE + 1) * (line / RADIX);
  const u64 place = a.places[batch.unit];
#pragma unroll 1
  for (u32 i = threadIdx.x / LINES; i < SIDE; i += THREADS / LINES) {
    float* to = (float*)a.output + row * a.row_elements + place + place_of(line) + place_in_line(i);
    float sums[PRODUCT_COUNT];
#pragma unroll
    for (int p = 0; p < PRODUCT_COUNT; p++) sums[p] = position ? to[p * a.product_elements] : 0.f;
    u32 done = position;
#pragma unroll
    for (int j = 0; j < SPECTRA; j++) {
      if (j < (int)batch.skipped) continue;
      const float2* at = own + j * RADIX * PITCH + i;
      add_products(sums, at[0], at[POLARIZATIONS == 1 ? 0 : SPECTRA * RADIX * PITCH]);
      if (++done < a.row_spectra && j + 1 < SPECTRA) continue;
#pragma unroll
      for (int p = 0; p < PRODUCT_COUNT; p++) {
        to[p * a.product_elements] = sums[p];
        sums[p] = 0.f;
      }
      if (done == a.row_spectra) done = 0, to += a.row_elements;
    }
  }
}
#endif
