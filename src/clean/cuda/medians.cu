// Each channel's median over its latest good samples, wherever one of its cells is bad.
#include "samples.cuh"

// Times from one sample that counts to the next, samples that count, new ones after which the median is taken again.
const u32 SPACING = 16;
const u32 SAMPLES = 64;
const u32 REFRESH = 16;

// Unsigned numbers that are ordered as floats are.
INLINE u32 key_of(float x) {
  u32 bits = __float_as_uint(x);
  return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

// The lower middle one of a channel's samples.
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

// What a channel has seen.
struct Channel {
  // All samples up to the first 128; beyond, one of 128 to 191 with the same place in the ring.
  u32 seen;
  u32 fresh;
  // Not a number before there is one.
  float median;
  u32 unused;
};

// A thread for each channel. `fills` gets what stands in for each bad cell: not a number before the channel has had a
// good sample. `values` are rings of the latest samples: axes sample, channel.
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
