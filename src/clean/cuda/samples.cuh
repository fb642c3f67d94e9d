// Packed samples, and the mask of bad cells.
#pragma once
#include "device.cuh"

#if FLOAT
typedef float Value;
#else
typedef i32 Value;
#endif

// Reads sample `channel` of a packed row.
INLINE Value value_of(const u8* row, u64 channel) {
  if constexpr (FLOAT) {
    return (Value)((const float*)row)[channel];
  } else if constexpr (BITS == 16) {
    return (Value)(SIGNED ? (i32)((const i16*)row)[channel] : (i32)((const u16*)row)[channel]);
  } else if constexpr (BITS == 8) {
    return (Value)(SIGNED ? (i32)((const i8*)row)[channel] : (i32)row[channel]);
  } else {
    constexpr u32 MOST = (1u << (BITS < 8 ? BITS : 0)) - 1;
    return (Value)((row[channel * BITS / 8] >> (channel * BITS % 8)) & MOST);
  }
}

INLINE bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000) != 0x7f800000; }

// Bit mask of bad channels per time interval; later intervals have none.
struct Mask {
  const u32* bad;
  u64 first_time;
  u32 interval_times, intervals, words;

  // Returns the mask words of a time counted from the start of the stream.
  INLINE const u32* at(u64 time) const {
    u64 interval = (time + first_time) / interval_times;
    return interval < intervals ? bad + interval * words : nullptr;
  }
};
INLINE bool is_bad(const u32* words, u32 channel) { return words && (words[channel / 32] >> (channel % 32) & 1); }

#define MASK_PARAMETERS const u32 *bad, u64 first_time, u32 interval_times, u32 intervals, u32 words
#define MASK \
  Mask { bad, first_time, interval_times, intervals, words }
