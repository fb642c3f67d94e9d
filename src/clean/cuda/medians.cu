// Running median of each channel over its latest good samples, for filling bad cells.
#include "samples.cuh"

// Times between samples that enter the median; samples in the median; new samples after which it is updated.
const u32 SPACING = 16;
const u32 SAMPLES = 64;
const u32 REFRESH = 16;

// Maps floats to unsigned numbers of the same order.
INLINE u32 key_of(float x) {
  u32 bits = __float_as_uint(x);
  return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

// Returns the lower median of a channel's samples.
INLINE float middle_of(const float* values, u32 count, u32 channels) {
  u32 middle = (count - 1) / 2;
  for (u32 i = 0; i < count; i++) {
    u32 key = key_of(values[(u64)i * channels]), below = 0, equal = 0;
    for (u32 k = 0; k < count; k++) {
      u32 other = key_of(values[(u64)k * channels]);
      below += other < key;
      equal += other == key;
    }
    if (below <= middle && middle < below + equal) return values[(u64)i * channels];
  }
  return 0.0f;
}

// State of a channel.
struct Channel {
  // Number of samples; from 128 on, a number of 128 to 191 with the same ring index.
  u32 seen;
  u32 fresh;
  // NaN before the first one.
  float median;
  u32 unused;
};

// One thread per channel. `fills` receives the replacement of each bad cell, NaN before the channel's first good
// sample. `values` holds rings of the latest samples: axes sample, channel.
KERNEL __launch_bounds__(64) medians(const u8* input, u64 row_bytes, u32 channels, u32 times, u64 time,
                                     MASK_PARAMETERS, Channel* state, float* values, float* fills) {
  u32 index = blockIdx.x * 64 + threadIdx.x;
  if (index >= channels) return;
  Mask mask = MASK;
  Channel channel = state[index];
  for (u32 row = 0; row < times; row++) {
    bool bad_now = is_bad(mask.at(time + row), index);
    if ((time + row) % SPACING == 0 && !bad_now) {
      float sample = (float)value_of(input + row * row_bytes, index);
      if (is_finite(sample)) {
        values[(u64)(channel.seen % SAMPLES) * channels + index] = sample;
        channel.seen = channel.seen == 191 ? 128 : channel.seen + 1;
        channel.fresh++;
      }
    }
    if (!bad_now) continue;
    bool is_new = channel.fresh > 0 && channel.seen <= SAMPLES;
    if (is_new || channel.fresh >= REFRESH) {
      channel.median = middle_of(values + index, smaller(channel.seen, SAMPLES), channels);
      channel.fresh = 0;
    }
    fills[(u64)row * channels + index] = channel.median;
  }
  state[index] = channel;
}

KERNEL __launch_bounds__(64) forget(Channel* state, u32 channels) {
  u32 index = blockIdx.x * 64 + threadIdx.x;
  if (index < channels) state[index] = Channel{0, 0, __uint_as_float(0x7fc00000), 0};
}
