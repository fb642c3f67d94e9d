// Filters of some templates over a stretch of samples, states and coefficients in registers.
//
// y[k] = a y[k - 1] + b x[k - d] is kept as (u, v) = (Re y / Re b, Im y / Im b), so that the input's weight is 1 and b weighs
// the outputs: u' = Re a u + c1 v + x, v' = c2 u + Re a v + x, z += (Re b u', Im b v'), six multiply-adds in all, where
// c1 c2 = -(Im a)^2. Rounding is that of the coupled form: scaling changes no relative error.
//
// A long memory would collect the rounding of too many samples: its state is rounded once a tile. What a tile's inputs leave
// of themselves is summed from 0, and the state before the tile is turned by sixteen samples at once.
//
// A thread holds R filters of one template, G threads of a warp share it: lane = template + (32 / G) * part. The input
// lies in shared memory in four copies shifted by 0 to 3 samples, so that any delay is an aligned read of four.
#pragma once
#include "sums.cuh"

struct Filter {
  float a, c1, c2, re, im;
};
// What turns a state by a tile: three elements of a matrix, each a float and what is left of it.
struct Turn {
  float m, down, up, m_rest, down_rest, up_rest;
};

// One sample of one filter.
INLINE void step(const Filter& f, float& u, float& v, float x, float& re, float& im) {
  float p = fused(f.c1, v, x), q = fused(f.c2, u, x);
  u = fused(f.a, u, p);
  v = fused(f.a, v, q);
  re = fused(f.re, u, re);
  im = fused(f.im, v, im);
}

// What a block works on: templates that share a rate and a number of lanes, and the passes over their filters. Where templates
// are too few to fill the device, several blocks share a launch's samples, and each steps the states alone up to its own.
struct Unit {
  u32 level, lanes;
  u32 pass, passes;
  u32 rows;  // the first of its templates' rows
  u32 part;  // which part of the samples, and above 16 bits of how many
};
// Filters whose inputs lie in one window.
struct Pass {
  u32 shape;
  u32 values, states;  // where they begin, in a block's worth of numbers
  u32 reach;           // samples that the window begins before a tile: a multiple of 4
  u32 pitch;           // samples from a copy of the window to the next: a multiple of 4
  u32 chunk;           // samples of tiles that a window is for: a multiple of TILE
};
// A rate: rings of its input and of its sums.
struct Level {
  u64 input, sums;  // first element
  u32 mask, sums_mask;
};
// What a block is given, and which tiles it walks.
struct Work {
  const float* ring;
  u32 mask;
  const float* values;
  const float2* states;
  float2* next_states;
  float* window;
  int start, stop;  // tiles whose sums the block adds up: states are brought up to the first
  int complete;     // tiles that have all their samples, from the first on
  bool saves;       // whether it walks the last tile
  u32 number;       // of the first tile since the stream's start
};

// Of 8 filters and more the sums are stored as they are there: tiles are long, and there is little room for what is added to.
template <int R, int G> using Sums = typename Either<(R < 8), Lines<G>, Stored<G>>::Type;

// Loads of the window that are under way together.
constexpr int BATCH = 4;

// Fills the four copies of the window from ring place `at` (a multiple of 4) on; what lies behind its end is read in vain.
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

// A thread's filters: the coefficients, the states, and the address of each one's input of the next samples.
template <int R> struct Held {
  Filter filter[R];
  float u[R], v[R];
  u32 x[R];
};

// Four samples of one filter.
INLINE void step_four(const Filter& f, float& u, float& v, const float4& x, float* sums) {
  step(f, u, v, x.x, sums[0], sums[1]);
  step(f, u, v, x.y, sums[2], sums[3]);
  step(f, u, v, x.z, sums[4], sums[5]);
  step(f, u, v, x.w, sums[6], sums[7]);
}

template <int R> INLINE void advance(Held<R>& held, int samples) {
#pragma unroll
  for (int r = 0; r < R; r++) held.x[r] += 4 * samples;
}

// Sums of a tile over a thread's filters; `next` holds the inputs of the first D filters.
template <int R, int D> INLINE void sum_filters(Held<R>& held, float4 (&next)[D], float (&sums)[2 * TILE]) {
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

// The states after a tile, without its sums.
template <int R> INLINE void skip_tile(Held<R>& held) {
#pragma unroll
  for (int q = 0; q < TILE; q += 4)
#pragma unroll
    for (int r = 0; r < R; r++) {
      float unused[8] = {};
      step_four(held.filter[r], held.u[r], held.v[r], shared_quad(held.x[r] + 4 * q), unused);
    }
  advance<R>(held, TILE);
}

// A state that is no number is forgotten.
INLINE float settled(float state) { return fabsf(state) < __int_as_float(0x7f800000) ? state : 0.0f; }
// Once in so many tiles, counted from the stream's start.
constexpr u32 SETTLED = 64;
template <int R> INLINE void settle(Held<R>& held, u32 tile) {
  if (tile % SETTLED != 0) return;
#pragma unroll
  for (int r = 0; r < R; r++) held.u[r] = settled(held.u[r]), held.v[r] = settled(held.v[r]);
}

// The same filters from one tile to the next, from the state before the tile and what the tile's inputs left.
template <int R> INLINE void turn(Held<R>& held, const Turn (&by)[R], const float (&before)[R][2], const float (&left)[R][2]) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    float u = before[r][0], v = before[r][1];
    float p = fused(by[r].down_rest, v, fused(by[r].m_rest, u, left[r][0])), q = fused(by[r].up_rest, u, fused(by[r].m_rest, v, left[r][1]));
    held.u[r] = fused(by[r].m, u, fused(by[r].down, v, p));
    held.v[r] = fused(by[r].m, v, fused(by[r].up, u, q));
  }
}

template <int R> INLINE void load(Held<R>& held, const float* values, const float2* states, const float* window, int count) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    const float* own = values + r * count * THREADS;
    held.filter[r] = {own[0], own[THREADS], own[2 * THREADS], own[3 * THREADS], own[4 * THREADS]};
    held.x[r] = shared_address(window) + 4 * __float_as_uint(own[(count - 1) * THREADS]);
    float2 state = states[r * THREADS];
    held.u[r] = state.x, held.v[r] = state.y;
  }
}

template <int R> INLINE void save(const Held<R>& held, float2* states) {
#pragma unroll
  for (int r = 0; r < R; r++) states[r * THREADS] = make_float2(held.u[r], held.v[r]);
}

// The window's next chunk: tiles from `first` on.
INLINE void next_chunk(const Pass& pass, const Work& work, u32 origin, int first) {
  __syncthreads();
  u32 at = origin + first * TILE - pass.reach;
  fill(work.window, work.ring, work.mask, at, pass.pitch);
  __syncthreads();
}

// All filters of one pass over the tiles.
template <int R, int G, int D, bool PIPED> INLINE void filter_short(const Pass& pass, const Work& work, const Target& to) {
  int lane = threadIdx.x & 31, part = lane / (32 / G), chunk = pass.chunk / TILE;
  u64 slot = (u64)pass.states * THREADS + threadIdx.x;
  Held<R> held;
  load<R>(held, work.values + (u64)pass.values * THREADS + threadIdx.x, work.states + slot, work.window, 6);
  Sums<R, G> stored;
  float4 next[D];
  float last[2 * TILE];  // sums that are stored beside the next ones' arithmetic
  int last_at = -TILE;
#pragma unroll
  for (int i = 0; i < 2 * TILE; i++) last[i] = 0;
  for (int first = 0; first < work.stop; first += chunk) {
    int end = smaller(work.stop, first + chunk), tile = first;
    next_chunk(pass, work, to.origin, first);
#pragma unroll 1
    for (; tile < smaller(end, work.start); tile++) {
      settle<R>(held, work.number + tile);
      skip_tile<R>(held);
    }
#pragma unroll
    for (int r = 0; r < D; r++) next[r] = shared_quad(held.x[r]);
#pragma unroll 1
    for (; tile < end; tile++) {
      if (tile == work.complete) save<R>(held, work.next_states + slot);
      settle<R>(held, work.number + tile);
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

// The same for long memories.
template <int R, int G> INLINE void filter_long(const Pass& pass, const Work& work, const Target& to) {
  int lane = threadIdx.x & 31, part = lane / (32 / G), chunk = pass.chunk / TILE;
  u64 slot = (u64)pass.states * THREADS + threadIdx.x;
  const float* values = work.values + (u64)pass.values * THREADS + threadIdx.x;
  Held<R> held;
  load<R>(held, values, work.states + slot, work.window, 12);
  Sums<R, G> stored;
  Turn by[R];
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
      settle<R>(held, work.number + tile);
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
      turn<R>(held, by, before, left);
    }
    advance<R>(held, (first - end) * TILE);
  }
  if (work.saves && work.stop == work.complete) save<R>(held, work.next_states + slot);
}
