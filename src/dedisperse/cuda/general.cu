// Dedispersion of any plan: output[d][t] = sum_c input[c][t + shift(d, c)], with partial sums shared between trials.
//
// A block computes a tile of trials x times. Trials with larger shifts start earlier (skew), which halves the spread
// of shifts at both ends of the band. The block walks the band in intervals of CHANNELS channels, and an interval in
// groups of channels whose relative shifts differ little between the tile's trials. In each interval:
//  1. Staging copies the samples of the tile from global memory into rows of words in shared memory (`samples`).
//  2. `build` computes each distinct sum of a group as one row of sums. The first row of a chain sums all channels of
//     the group; each further integer row starts from the previous sum and replaces the few channels that differ.
//  3. `accumulate` adds one row of each group, read at the trial's shift, to each trial's registers.
// Samples and sums are double-buffered, so that the three steps work on three consecutive intervals between two
// barriers.
//
// PACKED: a word holds two 16-bit sums, of times t and t + WORDS, so that no shift crosses a word boundary. Before 16
// bits overflow, the registers of a trial are split into low bytes and the part above them.
#include "device.cuh"

// THREADS, TILE_DMS, WORDS: shape of the block. MOST_WORDS: words of a row of samples. MOST_SUMS: words of all rows
// of sums of an interval. MOST_RECORD: words of a record. CHANNELS: channels of an interval. ELEMENT: type of a
// sample. PACKED, FLOATS: 0 or 1.
typedef ELEMENT Element;
constexpr int WARPS = THREADS / 32, TRIALS = TILE_DMS / WARPS, COLUMNS = WORDS / 32;
constexpr int STAGED = CHANNELS / WARPS, ROUNDS = MOST_WORDS / 128, RECORDS = 4, HALVES = PACKED ? 2 : 1;
constexpr int SAMPLES_BYTES = CHANNELS * MOST_WORDS * 4, SUMS_BYTES = MOST_SUMS * 4, RECORD_BYTES = MOST_RECORD * 4;
constexpr int TILE_TIMES = HALVES * WORDS;
constexpr u32 NOWHERE = 0xffffffff;
static_assert(TRIALS * WARPS == TILE_DMS && STAGED * WARPS == CHANNELS && TRIALS % 4 == 0, "the tile divides among warps");
static_assert(COLUMNS * 32 == WORDS && ROUNDS * 128 == MOST_WORDS, "rows divide among lanes");

// Header of a record. A record describes the work for one interval of a tile; all its fields are 32-bit words.
struct __align__(16) Head {
  u32 words;  // words of a row of sums; upper 16 bits: floor(2^16 / (words / 64)) + 1
  u32 groups, chains;
  u32 stride;  // words of a row of samples
};
struct __align__(16) Step {
  u32 plus, minus;  // byte offsets into `samples`
  u32 row;          // byte offset into `sums` of the row that this step completes, or NOWHERE
  i32 factor;       // integers: factor of `minus`; floats: bit 0 starts a new sum, bit 1 skips `minus`
};
struct Source {
  u32 channel;  // row of the input; past the last channel: the last row again, whose samples are unused
  i32 start;    // first sample, relative to the tile's first time: a multiple of 4
};
struct __align__(16) Trial {
  u32 row, shift;  // output row, or NOWHERE; largest shift
  i32 skew;        // times by which this trial starts before the tile
  u32 unused;
};
INLINE const Source* sources(const u8* record) { return (const Source*)(record + sizeof(Head)); }
INLINE const u8* offsets(const u8* record) { return record + sizeof(Head) + CHANNELS * sizeof(Source); }
INLINE const u32* chains(const u8* record) { return (const u32*)(offsets(record) + ((const Head*)record)->groups * TILE_DMS * 4); }
INLINE const Step* steps(const u8* record) {
  return (const Step*)((const u8*)chains(record) + (((const Head*)record)->chains + 3) / 4 * 16);
}

// Four consecutive samples as stored in global memory.
template <class T> struct Four;
template <> struct Four<u8> { typedef u32 Type; };
template <> struct Four<u16> { typedef uint2 Type; };
template <> struct Four<u32> { typedef uint4 Type; };
template <> struct Four<float> { typedef uint4 Type; };
typedef Four<Element>::Type Quad;

// Unpacks four samples into four words; packed words also take the four samples that are WORDS later.
INLINE uint4 widened(u32 low, u32 high) {
  return make_uint4(__byte_perm(low, high, 0x4400) & 0x00ff00ff, __byte_perm(low, high, 0x5511) & 0x00ff00ff,
                    __byte_perm(low, high, 0x6622) & 0x00ff00ff, __byte_perm(low, high, 0x7733) & 0x00ff00ff);
}
INLINE uint4 widened(uint2 low, uint2 high) {
  return make_uint4(__byte_perm(low.x, high.x, 0x5410), __byte_perm(low.x, high.x, 0x7632), __byte_perm(low.y, high.y, 0x5410),
                    __byte_perm(low.y, high.y, 0x7632));
}
INLINE uint4 widened(uint2 low) { return make_uint4(low.x & 0xffff, low.x >> 16, low.y & 0xffff, low.y >> 16); }
INLINE uint4 widened(uint4 low) { return low; }

INLINE u32 word(const u8* rows, u32 offset) { return *(const u32*)(rows + offset); }
INLINE u32 plus(u32 a, u32 b) {
#if FLOATS
  return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
#else
  return a + b;
#endif
}

// Applies one step of a chain to a running sum.
INLINE u32 stepped(u32 sum, const Step& step, u32 a, u32 b) {
#if FLOATS
  sum = step.factor & 1 ? 0 : sum;
  return plus(plus(sum, a), step.factor & 2 ? 0 : b);
#else
  return sum + a + (u32)step.factor * b;
#endif
}

// Builds the rows of sums of an interval. Each work item is one chain over 64 words of its rows.
INLINE void build(const u8* record, const u8* samples, u8* sums, int warp, int lane) {
  const Head head = *(const Head*)record;
  const int parts = (head.words & 0xffff) / 64, items = parts * head.chains;
  const u32* ranges = chains(record);
  const Step* all = steps(record);
  for (int item = warp; item < items; item += WARPS) {
    const int chain = item * (head.words >> 16) >> 16;  // item / parts
    const u32 range = ranges[chain], column = (u32)(item - chain * parts) * 256 + lane * 4;
    const u8 *from = samples + column, *from_high = from + 128;
    u8* to = sums + column;
    const Step* at = all + (range & 0xffff);
    u32 low = 0, high = 0;
    Step a = at[0], b = at[1];
#pragma unroll 2
    for (int pairs = ((range >> 16) - (range & 0xffff)) / 2; pairs > 0; pairs--) {
      at += 2;
      const u32 x[8] = {word(from, a.plus), word(from, a.minus), word(from_high, a.plus), word(from_high, a.minus),
                        word(from, b.plus), word(from, b.minus), word(from_high, b.plus), word(from_high, b.minus)};
      const Step next_a = at[0], next_b = at[1];
      low = stepped(low, a, x[0], x[1]), high = stepped(high, a, x[2], x[3]);
      if (a.row != NOWHERE) *(u32*)(to + a.row) = low, *(u32*)(to + a.row + 128) = high;
      low = stepped(low, b, x[4], x[5]), high = stepped(high, b, x[6], x[7]);
      if (b.row != NOWHERE) *(u32*)(to + b.row) = low, *(u32*)(to + b.row + 128) = high;
      a = next_a, b = next_b;
    }
  }
}

// Adds one row of each group, read at each trial's shift, to the trial's sums.
INLINE void accumulate(const u8* record, const u8* sums, u32 (&total)[TRIALS][COLUMNS], int warp, int lane) {
  const int groups = ((const Head*)record)->groups;
  const u8* own = offsets(record) + warp * TRIALS * 4;
  const u8* from = sums + lane * 4;
  for (int group = 0; group < groups; group += 2) {
    const bool two = group + 1 < groups;
    u32 first[TRIALS], second[TRIALS];
#pragma unroll
    for (int d = 0; d < TRIALS; d += 4) {
      const uint4 a = *(const uint4*)(own + group * TILE_DMS * 4 + d * 4);
      first[d] = a.x, first[d + 1] = a.y, first[d + 2] = a.z, first[d + 3] = a.w;
      const uint4 b = *(const uint4*)(own + (two ? group + 1 : group) * TILE_DMS * 4 + d * 4);
      second[d] = b.x, second[d + 1] = b.y, second[d + 2] = b.z, second[d + 3] = b.w;
    }
    if (two) {
#pragma unroll
      for (int d = 0; d < TRIALS; d++)
#pragma unroll
        for (int k = 0; k < COLUMNS; k++)
          total[d][k] = plus(plus(total[d][k], word(from + first[d], 128 * k)), word(from + second[d], 128 * k));
    } else {
#pragma unroll
      for (int d = 0; d < TRIALS; d++)
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) total[d][k] = plus(total[d][k], word(from + first[d], 128 * k));
    }
  }
}

// Registers for this warp's channels of one interval between the global load and the shared-memory store.
struct Staging {
  Quad low[STAGED][ROUNDS];
#if PACKED
  Quad high[STAGED][ROUNDS];
#endif
  // `input` points at the tile's first time.
  INLINE void load(const u8* record, const Element* input, i64 pitch, int warp, int lane) {
    const int words = ((const Head*)record)->stride;
#pragma unroll
    for (int c = 0; c < STAGED; c++) {
      const Source source = sources(record)[warp + c * WARPS];
      const Element* row = input + (i64)source.channel * pitch + source.start + lane * 4;
#pragma unroll
      for (int i = 0; i < ROUNDS; i++)
        if (i * 128 + lane * 4 < words) {
          low[c][i] = __ldg((const Quad*)(row + i * 128));
#if PACKED
          high[c][i] = __ldg((const Quad*)(row + i * 128 + WORDS));
#endif
        }
    }
  }
  INLINE void store(const u8* record, u8* samples, int warp, int lane) const {
    const int words = ((const Head*)record)->stride;
#pragma unroll
    for (int c = 0; c < STAGED; c++) {
      uint4* row = (uint4*)(samples + (warp + c * WARPS) * words * 4) + lane;
#pragma unroll
      for (int i = 0; i < ROUNDS; i++)
        if (i * 128 + lane * 4 < words) {
#if PACKED
          row[i * 32] = widened(low[c][i], high[c][i]);
#else
          row[i * 32] = widened(low[c][i]);
#endif
        }
    }
  }
};

// input[channel][time] begins at the first tile's first time; rows are `pitch` elements apart. The first `skip` (0 to
// 3) times precede the output. output[dm][time] gets `times` sums, plus `bias`. A sum that needs a sample at or past
// `available` (counted from the first output time) is 0. Record `i` of a tile occupies the 16-byte units from
// starts[tile * intervals + i] to the next start. `flush` intervals of packed sums fit 16 bits.
KERNEL __launch_bounds__(THREADS, BLOCKS)
    sum_shared(u32* output, i64 stride, const Element* input, i64 pitch, const uint4* records, const u32* starts, const Trial* trials,
               i32 intervals, i32 skip, i32 times, i64 available, u32 bias, i32 flush) {
  SHARED_MEMORY(shared);
  u8 *samples = shared, *sums = samples + 2 * SAMPLES_BYTES, *ring = sums + 2 * SUMS_BYTES;
  const int lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), tile = blockIdx.x;
  const i32 first_time = (i32)blockIdx.y * TILE_TIMES;
  const Trial* own = trials + tile * TILE_DMS + warp * TRIALS;
  const bool is_active = own[0].row != NOWHERE;
  const int order = (warp >> 2) & 1;
  input += first_time;
  starts += (i64)tile * intervals;

  u32 total[TRIALS][COLUMNS];
#if PACKED
  u32 above[TRIALS][COLUMNS];
#endif
#pragma unroll
  for (int d = 0; d < TRIALS; d++)
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
      total[d][k] = 0;
#if PACKED
      above[d][k] = 0;
#endif
    }

  const auto record = [&](int interval) { return ring + (interval & (RECORDS - 1)) * RECORD_BYTES; };
  // Bounds of the next record to copy; loaded one interval ahead, because every warp waits for them.
  u32 begin = __ldg(starts), end = __ldg(starts + 1);
  const auto copy_record = [&](int interval) {
    if (interval >= intervals) return;
    const u32 following = __ldg(starts + smaller(interval + 2, intervals)), to = shared_address(record(interval));
    for (u32 i = threadIdx.x; i < end - begin; i += THREADS) copy_async_16(to + i * 16, records + begin + i);
    begin = end, end = following;
  };
  Staging staging;
  copy_record(0);
  copy_record(1);
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
  staging.load(record(0), input, pitch, warp, lane);
  staging.store(record(0), samples, warp, lane);
  __syncthreads();
#if PACKED
  int held = 0;
#endif
  for (int interval = 0; interval <= intervals; interval++) {
    const bool is_next = interval + 1 < intervals;
    copy_record(interval + 2);
    copy_async_commit();
    if (is_next) staging.load(record(interval + 1), input, pitch, warp, lane);
    // Half of the warps build first (latency-bound), half accumulate first (bound by shared-memory bandwidth).
#pragma unroll 1
    for (int phase = 0; phase < 2; phase++) {
      if (phase == order) {
        if (interval == 0 || !is_active) continue;
        accumulate(record(interval - 1), sums + ((interval - 1) & 1) * SUMS_BYTES, total, warp, lane);
#if PACKED
        if (++held == flush) {
          held = 0;
#pragma unroll
          for (int d = 0; d < TRIALS; d++)
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) above[d][k] += (total[d][k] >> 8) & 0x00ff00ff, total[d][k] &= 0x00ff00ff;
        }
#endif
      } else if (interval < intervals) {
        build(record(interval), samples + (interval & 1) * SAMPLES_BYTES, sums + (interval & 1) * SUMS_BYTES, warp, lane);
      }
    }
    if (is_next) staging.store(record(interval + 1), samples + ((interval + 1) & 1) * SAMPLES_BYTES, warp, lane);
    copy_async_wait<0>();
    __syncthreads();
  }

#pragma unroll
  for (int d = 0; d < TRIALS; d++) {
    const Trial trial = own[d];
    if (trial.row == NOWHERE) continue;
    u32* row = output + (i64)trial.row * stride;
    const i64 last = smaller((i64)times, available - (i64)trial.shift);
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
      const i32 time = first_time + 32 * k + lane - skip - trial.skew;
      const auto put = [&](i32 time, u32 sum) {
        if (time >= 0 && time < times) row[time] = time < last ? sum : 0;
      };
#if PACKED
      put(time, (total[d][k] & 0xffff) + ((above[d][k] & 0xffff) << 8) + bias);
      put(time + WORDS, (total[d][k] >> 16) + (above[d][k] >> 16 << 8) + bias);
#elif FLOATS
      put(time, total[d][k]);
#else
      put(time, total[d][k] + bias);
#endif
    }
  }
}
