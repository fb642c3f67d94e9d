// From flagged blocks to events: lists the flagged blocks in order, finds the best boxcar of each start, and groups
// hits of each trial in time order.
#include "widths.cuh"

const u32 SCAN_THREADS = 1024;

// --- offsets of each trial's flagged blocks in the list of all
KERNEL __launch_bounds__(256) count(const u32* words, u32 trial_words, u32* counts, u32 dms) {
  u32 dm = blockIdx.x * 8 + threadIdx.x / 32;
  if (dm >= dms) return;
  u32 sum = 0;
  for (u32 i = threadIdx.x % 32; i < trial_words; i += 32) sum += __popc(words[(u64)dm * trial_words + i]);
  sum = __reduce_add_sync(0xffffffff, sum);
  if (threadIdx.x % 32 == 0) counts[dm] = sum;
}

INLINE u32 warp_inclusive(u32 sum) {
  u32 lane = threadIdx.x % 32;
  for (u32 lanes = 1; lanes < 32; lanes *= 2) {
    u32 other = __shfl_up_sync(0xffffffff, sum, lanes);
    if (lane >= lanes) sum += other;
  }
  return sum;
}

// Exclusive prefix sum in one thread block. `header[1]` receives the total, `header[2]` whether the noise must be
// estimated again.
KERNEL __launch_bounds__(SCAN_THREADS) scan(const u32* counts, u32* offsets, u32* header, const u32* spoilt, u32 dms) {
  __shared__ u32 warps[SCAN_THREADS / 32];
  u32 before = 0, warp = threadIdx.x / 32;
  for (u32 round = 0; round < dms; round += SCAN_THREADS) {
    u32 dm = round + threadIdx.x, own = dm < dms ? counts[dm] : 0, sum = warp_inclusive(own);
    if (threadIdx.x % 32 == 31) warps[warp] = sum;
    __syncthreads();
    u32 total = 0, offset = before;
    for (u32 other = 0; other < SCAN_THREADS / 32; other++) {
      if (other < warp) offset += warps[other];
      total += warps[other];
    }
    if (dm < dms) offsets[dm] = offset + sum - own;
    before += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) offsets[dms] = header[1] = before, header[2] = *spoilt;
}

// --- lists the flagged blocks from index `begin` on, as many as fit: trial, and block of the batch
KERNEL __launch_bounds__(256)
    list_blocks(const u32* words, u32 trial_words, u32 word_blocks, const u32* offsets, uint2* blocks, u32 begin,
                u32 room, u32 dms) {
  u32 dm = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (dm >= dms || offsets[dm] == offsets[dm + 1]) return;
  u32 next = offsets[dm];
  for (u32 round = 0; round < trial_words; round += 32) {
    u32 index = round + lane;
    u32 word = index < trial_words ? words[(u64)dm * trial_words + index] : 0;
    u32 own = __popc(word), sum = warp_inclusive(own), slot = next + sum - own;
    for (; word != 0; word &= word - 1, slot++)
      if (slot >= begin && slot - begin < room) blocks[slot - begin] = make_uint2(dm, index * word_blocks + __ffs(word) - 1);
    next += __shfl_sync(0xffffffff, sum, 31);
  }
}

// --- best boxcar of each start of a flagged block: significance and width, 0 if none exceeds the threshold
#if FLOATS
typedef double Sum;
#else
typedef i64 Sum;
#endif
// Samples of one thread.
const u32 PART = 32;
// Samples covered by a block's boxcars of a tile's widths.
const u32 REACH = BLOCK + 1792;

struct Window {
  u32 dm, j, available;
  Noise noise;
};

// Computes the sum of all samples before each one from `start` on; the origin is arbitrary.
INLINE void accumulate(Sum* sums, const Series& series, const Window& window, const Noise* own, const Noise* carried,
                       const double* given, u32 start, u32 reach) {
  u32 first = start + threadIdx.x * PART;
  bool has = threadIdx.x * PART < reach && first <= window.available;
#if FLOATS
  Repaired repaired(series, own, carried, window.dm, window.j);
  Sum sum = has ? given[first / PART] : 0.0;
#else
  __shared__ Sum half;
  Sum total = 0;
  u64 origin = (u64)window.j * series.window;
  for (u32 x = first; has && x < smaller(first + PART, window.available); x++) total += series.at(window.dm, origin + x);
  Sum sum = total;
  for (u32 lanes = 1; lanes < 32; lanes *= 2) {
    Sum other = __shfl_up_sync(0xffffffff, sum, lanes);
    if (threadIdx.x % 32 >= lanes) sum += other;
  }
  if (threadIdx.x == 31) half = sum;
  __syncthreads();
  sum += (threadIdx.x >= 32 ? half : 0) - total;
#endif
  for (u32 i = 0; has && i < PART; i++) {
    u32 x = first + i;
    sums[threadIdx.x * (PART + 1) + i] = sum;
    if (x >= window.available) continue;
#if FLOATS
    sum += (double)repaired.at(x);
#else
    sum += series.at(window.dm, origin + x);
#endif
  }
  __syncthreads();
}

KERNEL __launch_bounds__(BLOCK)
    evaluate(SERIES_PARAMETERS, const Noise* own, const Noise* carried, const Sum* totals, const uint2* blocks,
             const u32* header, double* snrs, u32* best_widths, double snr, u32 begin, u32 room, u32 entries, u32 grain,
             u32 tile_widths, u32 all_widths) {
  __shared__ Sum sums[REACH / PART * (PART + 1)];
  Series series = SERIES;
  u32 most = smaller(header[1] - begin, room);
  for (u32 slot = blockIdx.x; slot < most; slot += gridDim.x) {
    u32 blocks_of_window = window / BLOCK;
    Window now{blocks[slot].x, blocks[slot].y / blocks_of_window, 0, {}};
    now.available = series.available(now.dm, now.j);
    now.noise = series.noise(own, carried, now.dm, now.j);
    u32 first = blocks[slot].y % blocks_of_window * BLOCK, start = first + threadIdx.x;
    const Sum* all = totals + ((u64)now.dm * windows + now.j) * entries;
    accumulate(sums, series, now, own, carried, (const double*)all, first, REACH);
    Sum before = sums[threadIdx.x + threadIdx.x / PART];
    double best = 0.0;
    u32 best_width = 0;
    u32 widths = start < window && now.noise.sigma != 0.0 ? all_widths : 0;
    for (u32 index = 0; index < widths; index++) {
      u32 width = width_of(index);
      if (start % stride_of(width) != 0 || start + width > now.available) continue;
      u32 end = threadIdx.x + width;
      Sum sum = index < tile_widths ? sums[end + end / PART] - before : all[(start + width) / grain] - all[start / grain];
      Threshold threshold(now.noise, snr, width);
      if (!((double)sum >= threshold.least)) continue;
      double found = ((double)sum - threshold.expected) / threshold.deviation;
      if (best_width == 0 || found > best) best = found, best_width = width;
    }
    snrs[slot * BLOCK + threadIdx.x] = best;
    best_widths[slot * BLOCK + threadIdx.x] = best_width;
    __syncthreads();
  }
}

// --- groups the hits of a trial into events
struct Hit {
  u64 time;
  double snr;
  u32 width, unused;
};
// Layout shared with the host.
struct Event {
  u64 time;
  u32 dm, width;
  float snr;
  u32 unused;
};

// Returns whether the best hit explains a hit within it (`Hit::explains` of the host).
INLINE bool explains(const Hit& best, const Hit& inner) {
  double above = inner.snr - 4.0;
  if (above <= 0.0) return true;
  return above * above * (double)best.width <= 3.0 * best.snr * best.snr * (double)inner.width;
}

// Groups hits into events, one thread per trial: a hit belongs to the event whose best hit it starts within or soon
// after. `bests` holds the best hit of each trial and one within it that it does not explain; width 0 means none.
// `header[0]` counts events; the buffer fits all events that the blocks can end.
KERNEL __launch_bounds__(64)
    sweep(const uint2* blocks, const double* snrs, const u32* best_widths, const u32* offsets, const Hit* bests,
          Hit* next_bests, Event* events, u32* header, u64 first, u32 begin, u32 room, u32 is_last, u32 dms) {
  u32 dm = blockIdx.x * 64 + threadIdx.x;
  if (dm >= dms) return;
  u32 from = larger(offsets[dm], begin), to = smaller(offsets[dm + 1], begin + room);
  Hit best = bests[2 * dm], inner = bests[2 * dm + 1];
  auto emit_one = [&](const Hit& hit) {
    if (hit.width != 0) events[atomicAdd(header, 1u)] = Event{hit.time, dm, hit.width, (float)hit.snr, 0};
  };
  auto emit = [&]() {
    emit_one(best);
    emit_one(inner);
    inner.width = 0;
  };
  for (u32 slot = from; slot < to; slot++) {
    u64 start = first + (u64)blocks[slot - begin].y * BLOCK;
    // Unrolling would spill registers.
#pragma unroll 1
    for (u32 i = 0; i < BLOCK; i++) {
      u32 width = best_widths[(slot - begin) * BLOCK + i];
      if (width == 0) continue;
      Hit hit{start + i, snrs[(slot - begin) * BLOCK + i], width, 0};
      if (best.width != 0 && hit.time <= best.time + best.width + larger(best.width, 3u)) {
        Hit other = hit;
        if (hit.snr > best.snr) {
          other = best;
          best = hit;
          if (inner.width != 0 && explains(best, inner)) inner.width = 0;
        }
        if (!explains(best, other) && (inner.width == 0 || other.snr > inner.snr)) inner = other;
      } else {
        emit();
        best = hit;
      }
    }
  }
  if (is_last) {
    emit();
    best.width = 0;
  }
  next_bests[2 * dm] = best;
  next_bests[2 * dm + 1] = inner;
}
