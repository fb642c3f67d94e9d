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
  // of each unit (a stream, or two streams that are multiplied): the first of its elements in a row, and of its gains
  const u32* places;
  // of each element of a polarization
  const float* gains;
  // spectra of a launch and of a row, and units
  u32 spectra, row_spectra, units;
  // a unit's spectra are shared out in items of so many spectra and batches; the last item may have fewer
  u32 items, item_spectra, item_batches, last_batches;
};

// What a block does next: `start` is the first spectrum of its batch, of which the first `skipped` are done already.
struct Batch {
  u32 unit, start, skipped;
};

// Where a unit's elements begin in a row, and its gains.
struct Place {
  u32 element, gain;
};

// A line's frequencies are `line` + i LINES. In the output, frequency m stands at m with the bits of ORDER turned.
constexpr u32 LINES = POINTS / SIDE;
INLINE u32 place_of(u32 line) { return line ^ ORDER % LINES; }
INLINE constexpr u32 place_in_line(u32 i) { return (i ^ ORDER / LINES) * LINES; }

#if FORM == FORM_REQUANTIZED
// Of a float of this size the last bits are a whole number, rounded to even.
constexpr float WHOLE = 12582912.f;
constexpr i32 MOST = (1 << (BITS - 1)) - 1;

// How far a whole number, as such a float's bits, is above the least: more than 2 MOST + 1 where it is out of range, or not a number.
INLINE u32 above_least(u32 whole) { return whole - (0x4B400000u - MOST - 1); }

// A part that may be out of range; 0 for what is not a number.
INLINE u32 limited(float value) {
  const float whole = fminf(fmaxf(value, -MOST - 1.f), (float)MOST) + WHOLE;
  return value == value ? __float_as_uint(whole) : 0;
}

INLINE void write_integer(u8* to, u32 at, u32 re, u32 im) {
  if (BITS == 8)
    __stcs((u16*)to + at, (u16)__byte_perm(re, im, 0x0040));
  else
    __stcs(to + at, (u8)(re << 4 | (im & 15)));
}

// One line of a spectrum that is a row.
INLINE void write_line(const Arguments& a, const float2 (&v)[SIDE], u64 row, const Place& place, u32 line) {
  const u64 first = place.element + place_of(line);
  const float* gains = a.gains + place.gain + place_of(line);
  u8* to = a.output + (row * a.row_elements + first) * (BITS / 4);
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    const float gain = __ldg(gains + place_in_line(i));
    u32 re = __float_as_uint(fmaf(v[i].x, gain, WHOLE)), im = __float_as_uint(fmaf(v[i].y, gain, WHOLE));
    if ((above_least(re) | above_least(im)) > 2 * MOST + 1) {
      re = limited(v[i].x * gain);
      im = limited(v[i].y * gain);
      atomicAdd(a.saturated + first + place_in_line(i), 1ull);
    }
    write_integer(to, place_in_line(i), re, im);
  }
}
#elif FORM == FORM_SPECTRA
// One line of a spectrum that is a row.
INLINE void write_line(const Arguments& a, const float2 (&v)[SIDE], u64 row, const Place& place, u32 line) {
  float2* to = (float2*)a.output + row * a.row_elements + place.element + place_of(line);
#pragma unroll
  for (int i = 0; i < SIDE; i++) __stcs(to + place_in_line(i), v[i]);
}

#else
// Where a line leaves its powers: in its own values' place, every second half warp on the banks between.
INLINE u32 power_offset(u32 spectrum, u32 line) {
  const u32 half = SIDE == 16 && RADIX == 1 ? spectrum : line / 16;
  return half % 2 * (SIDE + 1);
}

// Leaves what is to be summed where the line's own values stood.
INLINE void leave_line(const float2 (&v)[SIDE], float2* own, u32 spectrum, u32 line) {
  float* powers = (float*)own + power_offset(spectrum, line);
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    if (POLARIZATIONS == 1)
      powers[i] = fmaf(v[i].x, v[i].x, v[i].y * v[i].y);
    else
      own[i] = v[i];
  }
}

constexpr int PRODUCT_COUNT = PRODUCT == PRODUCTS_POWER || PRODUCT == PRODUCTS_I ? 1 : 4;

// Adds the products of one frequency of a spectrum, `second` values behind which is that of the other polarization.
INLINE void add_products(float (&sums)[PRODUCT_COUNT], const float2* line, u32 i, u32 offset, int second) {
  if constexpr (POLARIZATIONS == 1) {
    sums[0] += ((const float*)line)[i + offset];
  } else {
    const float2 x = line[i], y = line[second + i];
    const float xx = fmaf(x.x, x.x, x.y * x.y), yy = fmaf(y.x, y.x, y.y * y.y);
    if constexpr (PRODUCT_COUNT == 1) {
      sums[0] += xx + yy;
    } else {
      const float re = fmaf(x.x, y.x, x.y * y.y), im = fmaf(x.y, y.x, -(x.x * y.y));
      if constexpr (PRODUCT == PRODUCTS_IQUV_LINEAR)
        sums[0] += xx + yy, sums[1] += xx - yy, sums[2] += 2.f * re, sums[3] += 2.f * im;
      else if constexpr (PRODUCT == PRODUCTS_IQUV_CIRCULAR)
        sums[0] += xx + yy, sums[1] += 2.f * re, sums[2] += 2.f * im, sums[3] += xx - yy;
      else
        sums[0] += xx, sums[1] += yy, sums[2] += re, sums[3] += im;
    }
  }
}

// Adds a batch's spectra to their rows, in their order. `values` holds the lines of all its spectra, RADIX rows of PITCH
// values each; a sum that a later batch goes on with waits in the output.
template <int SPECTRA, int PITCH>
INLINE void add_spectra(const Arguments& a, const Batch& batch, const Place& place, const float2* values) {
  static_assert(THREADS % LINES == 0, "a thread's frequencies share a line");
  constexpr int SECOND = SPECTRA * RADIX * PITCH;
  const u32 first = batch.start + batch.skipped, row = first / a.row_spectra, position = first - row * a.row_spectra;
  const u32 line = threadIdx.x % LINES;
  const float2* own = values + line % RADIX * PITCH + (SIDE + 1) * (line / RADIX);
  float* to = (float*)a.output + row * a.row_elements + place.element + place_of(line);
  const bool is_whole = batch.skipped == 0 && position + SPECTRA <= a.row_spectra;
#pragma unroll(SIDE * LINES / THREADS <= 4 ? SIDE * LINES / THREADS : 4)
  for (u32 i = threadIdx.x / LINES; i < SIDE; i += THREADS / LINES) {
    float* sum = to + place_in_line(i);
    float sums[PRODUCT_COUNT];
#pragma unroll
    for (int p = 0; p < PRODUCT_COUNT; p++) sums[p] = position ? sum[p * a.product_elements] : 0.f;
    if (is_whole) {
#pragma unroll
      for (int j = 0; j < SPECTRA; j++) add_products(sums, own + j * RADIX * PITCH, i, power_offset(j, line), SECOND);
    } else {
      u32 done = position;
#pragma unroll 1
      for (int j = batch.skipped; j < SPECTRA; j++) {
        add_products(sums, own + j * RADIX * PITCH, i, power_offset(j, line), SECOND);
        if (++done < a.row_spectra) continue;
#pragma unroll
        for (int p = 0; p < PRODUCT_COUNT; p++) {
          sum[p * a.product_elements] = sums[p];
          sums[p] = 0.f;
        }
        done = 0;
        sum += a.row_elements;
      }
      if (done == 0) continue;
    }
#pragma unroll
    for (int p = 0; p < PRODUCT_COUNT; p++) sum[p * a.product_elements] = sums[p];
  }
}
#endif
