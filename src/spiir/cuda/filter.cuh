// IIR filters of a unit of templates over a range of samples, with states and coefficients in registers.
//
// y[k] = a y[k - 1] + b x[k - d] is stored as (u, v) = (Re y / Re b, Im y / Im b). The input then has weight 1 and b
// weights the outputs: u' = Re a u + c1 v + x, v' = c2 u + Re a v + x, z += (Re b u', Im b v'), with
// c1 c2 = -(Im a)^2. That is six multiply-adds. The rounding error is that of the coupled form, because scaling
// changes no relative error.
//
// A filter with a long memory would accumulate the rounding of too many samples, so its state is rounded once per
// tile: the response to the tile's inputs is summed from 0, and the state before the tile is advanced by sixteen
// samples at once.
//
// A thread holds R filters of one template, and G threads of a warp share a template:
// lane = template + (32 / G) * part. Shared memory holds four copies of the input, shifted by 0 to 3 samples, so that
// any delay is an aligned read of four samples.
#pragma once
#include "sums.cuh"

struct Filter {
  float a, c1, c2, re, im;
};
// Matrix that advances a state by a tile: three distinct elements, each a float and its rounding residual.
struct TileMatrix {
  float m, down, up, m_rest, down_rest, up_rest;
};

// Advances one filter by one sample.
INLINE void step(const Filter& f, float& u, float& v, float x, float& re, float& im) {
  float p = fused(f.c1, v, x), q = fused(f.c2, u, x);
  u = fused(f.a, u, p);
  v = fused(f.a, v, q);
  re = fused(f.re, u, re);
  im = fused(f.im, v, im);
}

// Work of a block: templates that share a rate and a number of lanes, and the passes over their filters. If the
// templates are too few to fill the device, several blocks split a launch's samples; each runs the recursion without
// sums up to its segment.
struct Unit {
  u32 level, lanes;
  u32 pass, passes;
  u32 rows;  // index of the first entry of its templates in `rows`
  u32 part;  // segment index in the low 16 bits, number of segments in the high 16
};
// Filters whose inputs lie in one window.
struct Pass {
  u32 shape;
  u32 values, states;  // offsets, in units of THREADS elements
  u32 reach;           // samples from the window's start to the tile, a multiple of 4
  u32 pitch;           // samples between copies of the window, a multiple of 4
  u32 chunk;           // samples of tiles that one window serves, a multiple of TILE
};
// Ring buffers of one rate: its input and its sums.
struct Level {
  u64 input, sums;  // offset of the first element
  u32 mask, sums_mask;
};
// Data pointers of a block and its range of tiles.
struct Work {
  const float* ring;
  u32 mask;
  const float* values;
  const float2* states;
  float2* next_states;
  float* window;
  int start, stop;  // tiles whose sums the block computes; states alone advance to the first
  int complete;     // number of tiles that have all their samples
  bool saves;       // whether the block runs the last tile and saves the states
  u32 number;       // index of the first tile since the stream's start
};

// From 8 filters per thread on, sums are stored without a prefetch of the old sums: the tile's arithmetic is long and
// registers are scarce.
template <int R, int G> using Sums = typename Either<(R < 8), Lines<G>, Stored<G>>::Type;

// Loads of the window in flight per thread.
constexpr int BATCH = 4;

// Fills the four copies of the window from ring index `at` (a multiple of 4) on. Reads past its end load values that
// no filter uses.
INLINE void fill(float* window, const float* ring, u32 mask, u32 at, u32 pitch) {
#pragma unroll 1
  for (u32 first = threadIdx.x * 4; first < pitch; first += THREADS * 4 * BATCH) {
    float4 a[BATCH], b[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      u32 i = at + first + k * THREADS * 4;
      a[k] = *(const float4*)(ring + (i & mask)), b[k] = *(const float4*)(ring + ((i + 4) & mask));
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      u32 i = first + k * THREADS * 4;
      if (i >= pitch) continue;
      *(float4*)(window + i) = a[k];
      *(float4*)(window + pitch + i) = make_float4(a[k].y, a[k].z, a[k].w, b[k].x);
      *(float4*)(window + 2 * pitch + i) = make_float4(a[k].z, a[k].w, b[k].x, b[k].y);
      *(float4*)(window + 3 * pitch + i) = make_float4(a[k].w, b[k].x, b[k].y, b[k].z);
    }
  }
}

// Filters of a thread: coefficients, states, and the shared-memory address of each one's next input.
template <int R> struct ThreadFilters {
  Filter filter[R];
  float u[R], v[R];
  u32 x[R];
};

// Advances one filter by four samples.
INLINE void step_four(const Filter& f, float& u, float& v, const float4& x, float* sums) {
  step(f, u, v, x.x, sums[0], sums[1]);
  step(f, u, v, x.y, sums[2], sums[3]);
  step(f, u, v, x.z, sums[4], sums[5]);
  step(f, u, v, x.w, sums[6], sums[7]);
}

template <int R> INLINE void advance(ThreadFilters<R>& held, int samples) {
#pragma unroll
  for (int r = 0; r < R; r++) held.x[r] += 4 * samples;
}

// Sums a tile over a thread's filters. `next` holds the prefetched inputs of the first D filters.
template <int R, int D> INLINE void sum_filters(ThreadFilters<R>& held, float4 (&next)[D], float (&sums)[2 * TILE]) {
#pragma unroll
  for (int i = 0; i < 2 * TILE; i++) sums[i] = 0;
#pragma unroll
  for (int q = 0; q < TILE; q += 4)
#pragma unroll
    for (int r = 0; r < R; r++) {
      float4 now;
      if (r < D) {
        now = next[r < D ? r : 0];
        next[r < D ? r : 0] = shared_quad(held.x[r] + 4 * q + 16);
      } else {
        now = shared_quad(held.x[r] + 4 * q);
      }
      step_four(held.filter[r], held.u[r], held.v[r], now, sums + 2 * q);
    }
  advance<R>(held, TILE);
}

// Advances the states by a tile without computing sums.
template <int R> INLINE void skip_tile(ThreadFilters<R>& held) {
#pragma unroll
  for (int q = 0; q < TILE; q += 4)
#pragma unroll
    for (int r = 0; r < R; r++) {
      float unused[8] = {};
      step_four(held.filter[r], held.u[r], held.v[r], shared_quad(held.x[r] + 4 * q), unused);
    }
  advance<R>(held, TILE);
}

// Replaces an infinite or NaN state by 0, so that bad input does not persist.
INLINE float settled(float state) { return fabsf(state) < __int_as_float(0x7f800000) ? state : 0.0f; }
// Interval of that check in tiles, counted from the stream's start so that any split of the stream gives the same
// bits.
constexpr u32 SETTLED = 64;
template <int R> INLINE void clear_nonfinite(ThreadFilters<R>& held, u32 tile) {
  if (tile % SETTLED != 0) return;
#pragma unroll
  for (int r = 0; r < R; r++) held.u[r] = settled(held.u[r]), held.v[r] = settled(held.v[r]);
}

// Advances the filters by a tile, from the state before the tile and the response to the tile's inputs alone
// (`left`).
template <int R> INLINE void advance_tile(ThreadFilters<R>& held, const TileMatrix (&by)[R], const float (&before)[R][2], const float (&left)[R][2]) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    float u = before[r][0], v = before[r][1];
    float p = fused(by[r].down_rest, v, fused(by[r].m_rest, u, left[r][0])), q = fused(by[r].up_rest, u, fused(by[r].m_rest, v, left[r][1]));
    held.u[r] = fused(by[r].m, u, fused(by[r].down, v, p));
    held.v[r] = fused(by[r].m, v, fused(by[r].up, u, q));
  }
}

template <int R> INLINE void load(ThreadFilters<R>& held, const float* values, const float2* states, const float* window, int count) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    const float* own = values + r * count * THREADS;
    held.filter[r] = {own[0], own[THREADS], own[2 * THREADS], own[3 * THREADS], own[4 * THREADS]};
    held.x[r] = shared_address(window) + 4 * __float_as_uint(own[(count - 1) * THREADS]);
    float2 state = states[r * THREADS];
    held.u[r] = state.x, held.v[r] = state.y;
  }
}

template <int R> INLINE void save(const ThreadFilters<R>& held, float2* states) {
#pragma unroll
  for (int r = 0; r < R; r++) states[r * THREADS] = make_float2(held.u[r], held.v[r]);
}

// Loads the window for the chunk of tiles from `first` on.
INLINE void next_chunk(const Pass& pass, const Work& work, u32 origin, int first) {
  __syncthreads();
  u32 at = origin + first * TILE - pass.reach;
  fill(work.window, work.ring, work.mask, at, pass.pitch);
  __syncthreads();
}

// Runs one pass of short-memory filters over the tiles.
template <int R, int G, int D, bool PIPED> INLINE void filter_short(const Pass& pass, const Work& work, const Target& to) {
  int lane = threadIdx.x & 31, part = lane / (32 / G), chunk = pass.chunk / TILE;
  u64 slot = (u64)pass.states * THREADS + threadIdx.x;
  ThreadFilters<R> held;
  load<R>(held, work.values + (u64)pass.values * THREADS + threadIdx.x, work.states + slot, work.window, 6);
  Sums<R, G> stored;
  float4 next[D];
  float last[2 * TILE];  // sums of the previous tile, stored while the next tile is computed
  int last_at = -TILE;
#pragma unroll
  for (int i = 0; i < 2 * TILE; i++) last[i] = 0;
  for (int first = 0; first < work.stop; first += chunk) {
    int end = smaller(work.stop, first + chunk), tile = first;
    next_chunk(pass, work, to.origin, first);
#pragma unroll 1
    for (; tile < smaller(end, work.start); tile++) {
      clear_nonfinite<R>(held, work.number + tile);
      skip_tile<R>(held);
    }
#pragma unroll
    for (int r = 0; r < D; r++) next[r] = shared_quad(held.x[r]);
#pragma unroll 1
    for (; tile < end; tile++) {
      if (tile == work.complete) save<R>(held, work.next_states + slot);
      clear_nonfinite<R>(held, work.number + tile);
      float sums[2 * TILE];
      if (PIPED) stored.send(to, last, last_at, lane, part);
      stored.expect(to, tile * TILE, part);
      sum_filters<R, D>(held, next, sums);
      if (!PIPED) stored.send(to, sums, tile * TILE, lane, part);
#pragma unroll
      for (int i = 0; i < 2 * TILE; i++) last[i] = sums[i];
      last_at = tile * TILE;
    }
    advance<R>(held, (first - end) * TILE);
  }
  if (work.saves && work.stop == work.complete) save<R>(held, work.next_states + slot);
  if (PIPED) stored.send(to, last, last_at, lane, part);
}

// Runs one pass of long-memory filters over the tiles.
template <int R, int G> INLINE void filter_long(const Pass& pass, const Work& work, const Target& to) {
  int lane = threadIdx.x & 31, part = lane / (32 / G), chunk = pass.chunk / TILE;
  u64 slot = (u64)pass.states * THREADS + threadIdx.x;
  const float* values = work.values + (u64)pass.values * THREADS + threadIdx.x;
  ThreadFilters<R> held;
  load<R>(held, values, work.states + slot, work.window, 12);
  Sums<R, G> stored;
  TileMatrix by[R];
#pragma unroll
  for (int r = 0; r < R; r++) {
    const float* own = values + (r * 12 + 5) * THREADS;
    by[r] = {own[0], own[THREADS], own[2 * THREADS], own[3 * THREADS], own[4 * THREADS], own[5 * THREADS]};
  }
  for (int first = 0; first < work.stop; first += chunk) {
    int end = smaller(work.stop, first + chunk);
    next_chunk(pass, work, to.origin, first);
#pragma unroll 1
    for (int tile = first; tile < end; tile++) {
      if (tile == work.complete) save<R>(held, work.next_states + slot);
      clear_nonfinite<R>(held, work.number + tile);
      float before[R][2], left[R][2];
#pragma unroll
      for (int r = 0; r < R; r++) before[r][0] = held.u[r], before[r][1] = held.v[r], left[r][0] = left[r][1] = 0;
      if (tile >= work.start) stored.expect(to, tile * TILE, part);
      float sums[2 * TILE];
#pragma unroll
      for (int i = 0; i < 2 * TILE; i++) sums[i] = 0;
#pragma unroll
      for (int q = 0; q < TILE; q += 4)
#pragma unroll
        for (int r = 0; r < R; r++) {
          float4 x = shared_quad(held.x[r] + 4 * q);
          float unused[8] = {};
          step_four(held.filter[r], held.u[r], held.v[r], x, sums + 2 * q);
          step_four(held.filter[r], left[r][0], left[r][1], x, unused);
        }
      advance<R>(held, TILE);
      if (tile >= work.start) stored.send(to, sums, tile * TILE, lane, part);
      advance_tile<R>(held, by, before, left);
    }
    advance<R>(held, (first - end) * TILE);
  }
  if (work.saves && work.stop == work.complete) save<R>(held, work.next_states + slot);
}
