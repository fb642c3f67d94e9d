// Output forms for any plan: complex values, sums of powers, requantized integers.
#include "device.cuh"

// Channel order: maps index `index` of a recorded channel to its FFT bin.
struct Order {
  u32 channels, shift, falls;
  INLINE u32 bin(u32 index) const {
    const u32 rising = (falls ? channels - 1 - index : index) + shift;
    return rising >= channels ? rising - channels : rising;
  }
};

// Spectra in FFT order; axes: spectrum, stream of the pass, bin.
struct Spectra {
  const float2* values;
  u64 pitch;
  u32 streams;
  INLINE const float2* of(u32 spectrum, u32 stream) const { return values + ((u64)spectrum * streams + stream) * pitch; }
};

// Offset of a unit (one antenna's recorded channel) in an output row, in elements.
struct Place {
  u64 antenna_elements, place_elements, product_elements;
  u32 first_unit, coarse_channels;
  INLINE u64 of(u32 unit, u32 product) const {
    const u32 whole = first_unit + unit;
    return whole / coarse_channels * antenna_elements + whole % coarse_channels * place_elements + product * product_elements;
  }
};

#define ORDER_ARGUMENTS u32 channels, u32 shift, u32 falls
#define ORDER const Order order = {channels, shift, falls};
#define SPECTRA_ARGUMENTS const float2 *work, u64 pitch, u32 streams, u32 spectra, u32 polarizations
#define SPECTRA const Spectra from = {work, pitch, streams};
#define PLACE_ARGUMENTS \
  u64 row_elements, u64 antenna_elements, u64 place_elements, u64 product_elements, u32 first_unit, u32 coarse_channels
#define PLACE const Place place = {antenna_elements, place_elements, product_elements, first_unit, coarse_channels};

KERNEL __launch_bounds__(256)
    complex_form(SPECTRA_ARGUMENTS, ORDER_ARGUMENTS, PLACE_ARGUMENTS, float2* output) {
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  const u32 row = index / channels, channel = index % channels;
  if (row >= spectra) return;
  SPECTRA ORDER PLACE
  const u64 at = place.of(blockIdx.y / polarizations, blockIdx.y % polarizations) + channel;
  output[row * row_elements + at] = from.of(row, blockIdx.y)[order.bin(channel)];
}

// Rounds to nearest, ties to even, and clips; sets `clipped` for clipped values. NaN becomes 0 and sets `clipped`.
INLINE i32 whole(float value, float most, u32& clipped) {
  // A tie at the upper limit rounds to the even number above it and is clipped; at the lower limit it rounds to the
  // least number itself.
  clipped |= !(value >= -most - 1.5f && value < most + 0.5f);
  if (!(value == value)) return 0;
  return __float2int_rn(value > most ? most : value < -most - 1.0f ? -most - 1.0f : value);
}

// Rows of one element per thread; batching the count of saturated values keeps atomic additions few.
constexpr u32 ROWS = 16;

template <int BITS> INLINE void integers(const Spectra& from, const Order& order, const Place& place, u32 spectra,
                                         u32 polarizations, u64 row_elements, const float* gains, u32 gain_step,
                                         u64* saturated, u8* output) {
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  const u32 first = index / order.channels * ROWS, channel = index % order.channels;
  if (first >= spectra) return;
  const u32 unit = blockIdx.y / polarizations;
  const u64 element = place.of(unit, blockIdx.y % polarizations) + channel;
  const u32 coarse_place = (place.first_unit + unit) % place.coarse_channels;
  const float gain = gains[((u64)coarse_place * order.channels + channel) * gain_step];
  const float most = (float)((1 << (BITS - 1)) - 1);
  const u32 bin = order.bin(channel), end = smaller(first + ROWS, spectra);
  u32 count = 0;
  for (u32 row = first; row < end; ++row) {
    const float2 value = from.of(row, blockIdx.y)[bin];
    u32 clipped = 0;
    const u32 re = (u32)whole(value.x * gain, most, clipped), im = (u32)whole(value.y * gain, most, clipped);
    count += clipped;
    const u64 at = row * row_elements + element;
    if constexpr (BITS == 4) {
      output[at] = (u8)((re & 15) << 4 | (im & 15));
    } else {
      output[2 * at] = (u8)re;
      output[2 * at + 1] = (u8)im;
    }
  }
  if (count > 0) atomicAdd(saturated + element, (u64)count);
}

#define INTEGER_ARGUMENTS const float *gains, u32 gain_step, u64 *saturated, u8 *output
KERNEL __launch_bounds__(256) integers_8(SPECTRA_ARGUMENTS, ORDER_ARGUMENTS, PLACE_ARGUMENTS, INTEGER_ARGUMENTS) {
  SPECTRA ORDER PLACE
  integers<8>(from, order, place, spectra, polarizations, row_elements, gains, gain_step, saturated, output);
}
KERNEL __launch_bounds__(256) integers_4(SPECTRA_ARGUMENTS, ORDER_ARGUMENTS, PLACE_ARGUMENTS, INTEGER_ARGUMENTS) {
  SPECTRA ORDER PLACE
  integers<4>(from, order, place, spectra, polarizations, row_elements, gains, gain_step, saturated, output);
}

// Detected products of one channel's two polarizations (FIRST: of one polarization).
enum Kind { FIRST, POWERS, SUM, STOKES_LINEAR, STOKES_CIRCULAR, CROSS };
constexpr u32 PRODUCTS[] = {1, 2, 1, 4, 4, 4};

template <Kind KIND> INLINE void detect(float (&sums)[4], float2 x, float2 y) {
  const float xx = x.x * x.x + x.y * x.y;
  const float yy = y.x * y.x + y.y * y.y;
  const float re = x.x * y.x + x.y * y.y, im = x.y * y.x - x.x * y.y;
  if constexpr (KIND == FIRST) {
    sums[0] += xx;
  } else if constexpr (KIND == POWERS) {
    sums[0] += xx, sums[1] += yy;
  } else if constexpr (KIND == SUM) {
    sums[0] += xx + yy;
  } else if constexpr (KIND == STOKES_LINEAR) {
    sums[0] += xx + yy, sums[1] += xx - yy, sums[2] += 2.0f * re, sums[3] += 2.0f * im;
  } else if constexpr (KIND == STOKES_CIRCULAR) {
    sums[0] += xx + yy, sums[1] += 2.0f * re, sums[2] += 2.0f * im, sums[3] += xx - yy;
  } else {
    sums[0] += xx, sums[1] += yy, sums[2] += re, sums[3] += im;
  }
}

// Groups of spectra that one thread sums; groups are counted from the row in which the pass begins.
struct Groups {
  u32 row, group, in_row, begin, first_group;
  INLINE u32 start(u32 g) const { return (first_group + g) / in_row * row + (first_group + g) % in_row * group; }
  INLINE u32 end(u32 g) const { return smaller(start(g) + group, ((first_group + g) / in_row + 1) * row); }
};
#define GROUP_ARGUMENTS u32 row_spectra, u32 group_spectra, u32 groups_in_row, u32 begin, u32 first_group
#define GROUPS const Groups groups = {row_spectra, group_spectra, groups_in_row, begin, first_group};

// Sums groups of spectra. Complete groups go to `slots` (axes: group, unit of the pass, product, bin); an incomplete
// last group goes to `left` (axes: unit, product, bin). The first group continues from `carried`.
template <Kind KIND> INLINE void sum_groups(const Spectra& from, const Groups& groups, u32 spectra, u32 channels,
                                            u32 group_count, u32 first_unit, u32 units, float* slots,
                                            const float* carried, float* left) {
  constexpr u32 PARTS = PRODUCTS[KIND];
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  const u32 g = index / channels, bin = index % channels;
  if (g >= group_count) return;
  const u32 start = groups.start(g), end = groups.end(g), last = groups.begin + spectra;
  const u64 own = ((u64)(first_unit + blockIdx.y) * PARTS) * channels + bin;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  if (start < groups.begin) {
#pragma unroll
    for (u32 p = 0; p < PARTS; ++p) sums[p] = carried[own + (u64)p * channels];
  }
  const u32 stop = smaller(end, last);
#pragma unroll 4
  for (u32 spectrum = larger(start, groups.begin); spectrum < stop; ++spectrum) {
    const u32 row = spectrum - groups.begin;
    if constexpr (KIND == FIRST) {
      const float2 x = from.of(row, blockIdx.y)[bin];
      detect<KIND>(sums, x, x);
    } else {
      detect<KIND>(sums, from.of(row, 2 * blockIdx.y)[bin], from.of(row, 2 * blockIdx.y + 1)[bin]);
    }
  }
  float* to = end > last ? left + own : slots + ((u64)(g * units + blockIdx.y) * PARTS) * channels + bin;
#pragma unroll
  for (u32 p = 0; p < PARTS; ++p) to[(u64)p * channels] = sums[p];
}

#define DETECTOR(NAME, KIND)                                                                                   \
  KERNEL __launch_bounds__(256) NAME(SPECTRA_ARGUMENTS, u32 channels, GROUP_ARGUMENTS, u32 group_count,        \
                                     u32 first_unit, u32 units, float* slots, const float* carried, float* left) { \
    SPECTRA GROUPS                                                                                             \
    sum_groups<KIND>(from, groups, spectra, channels, group_count, first_unit, units, slots, carried, left);    \
  }
DETECTOR(detect_first, FIRST)
DETECTOR(detect_powers, POWERS)
DETECTOR(detect_sum, SUM)
DETECTOR(detect_stokes_linear, STOKES_LINEAR)
DETECTOR(detect_stokes_circular, STOKES_CIRCULAR)
DETECTOR(detect_cross, CROSS)

// Sum of one product over one row, by bin, adding groups in order.
struct RowSums {
  const float* slots;
  const float* earlier;
  u64 step;
  u32 groups;
  INLINE float of(u32 bin) const {
    float sum = earlier ? earlier[bin] : 0.0f;
    for (u32 g = 0; g < groups; ++g) sum += slots[g * step + bin];
    return sum;
  }
};

// Finishes rows that end in this pass: interpolates, reorders and sums their channels. An incomplete last row's sums
// go to `rows_left`; the first row continues from `rows_carried`. blockIdx.y is a unit's product; 2^lanes threads
// compute one output channel.
KERNEL __launch_bounds__(256)
    finish_rows(ORDER_ARGUMENTS, PLACE_ARGUMENTS, u32 products, u32 units, u32 rows, u32 finished_groups, u32 groups_in_row,
                u32 first_group, u32 channel_sum, u32 interpolates, u32 below, u32 lanes, const float* slots,
                const float* rows_carried, float* rows_left, float* output) {
  ORDER PLACE
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  const u32 lane = index & ((1u << lanes) - 1), outputs = channels / channel_sum;
  const u32 row = (index >> lanes) / outputs, channel = (index >> lanes) % outputs;
  const bool is_live = row < rows;
  const u32 unit = blockIdx.y / products, product = blockIdx.y % products;
  const u32 first = row == 0 ? 0 : row * groups_in_row - first_group;
  const u32 end = (row + 1) * groups_in_row - first_group;
  const bool is_whole = end <= finished_groups;
  const u64 own = (u64)first_unit * products + blockIdx.y;
  RowSums sums;
  sums.step = (u64)units * products * channels;
  sums.slots = slots + first * sums.step + (u64)blockIdx.y * channels;
  sums.earlier = row == 0 && first_group > 0 ? rows_carried + own * channels : nullptr;
  sums.groups = is_live ? smaller(end, finished_groups) - first : 0;
  float sum = 0.0f;
  if (is_live) {
    for (u32 c = lane; c < channel_sum; c += 1u << lanes) {
      const u32 bin = order.bin(channel * channel_sum + c);
      if (!is_whole) {
        rows_left[own * channels + bin] = sums.of(bin);
      } else if (interpolates && bin == 0) {
        sum += 0.5f * (sums.of(1) + sums.of(below));
      } else {
        sum += sums.of(bin);
      }
    }
  }
  if (lanes > 0) {
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  }
  if (is_live && is_whole && lane == 0) output[row * row_elements + place.of(unit, product) + channel] = sum;
}
