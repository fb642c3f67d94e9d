// Reduction of sums over the lanes of a template, and their stores to the rows of sums.
#pragma once
#include "device.cuh"

// Samples of a tile. States are saved at tile boundaries.
constexpr int TILE = 16;

// Reduce-scatter over the G lanes of a template: takes COUNT floats and leaves each lane the first COUNT / G (at
// least one).
template <int COUNT, int MASK, int LEAST> INLINE void share(float* sums, int lane) {
  if constexpr (MASK >= LEAST) {
    if constexpr (COUNT > 1) {
      bool upper = lane & MASK;
#pragma unroll
      for (int i = 0; i < COUNT / 2; i++) {
        float sent = upper ? sums[i] : sums[i + COUNT / 2], kept = upper ? sums[i + COUNT / 2] : sums[i];
        sums[i] = kept + __shfl_xor_sync(0xffffffff, sent, MASK);
      }
      share<COUNT / 2, MASK / 2, LEAST>(sums, lane);
    } else {
      sums[0] += __shfl_xor_sync(0xffffffff, sums[0], MASK);
      share<1, MASK / 2, LEAST>(sums, lane);
    }
  }
}

// Destination of a template's sums.
struct Target {
  float* row;   // null: discard
  u32 first;    // sample number (low bits) at index 0 of the row
  u32 mask;     // index mask of the ring, all ones for the output
  i32 begin, end;  // range of samples to store, relative to the first tile
  u32 origin;   // first sample of the first tile
  bool wide, add;
};

// Stores a lane's share of the tile that begins at sample `first`.
template <int G> INLINE void put(const Target& to, const float* sums, int first, int part) {
  constexpr int HELD = 2 * TILE / G;
  int at = part * HELD;
  int k = first + at / 2;
  u32 place = (to.origin + k - to.first) & to.mask;
  // A pair may begin one sample before the row: its index is then -1.
  float* row = to.row + 2 * (i64)(i32)place;
  bool is_first = k >= to.begin && k < to.end && to.row;
  if constexpr (HELD == 1) {
    row += at & 1;
    float sum = sums[0];
    if (is_first) *row = to.add ? sum + *row : sum;
  } else if constexpr (HELD == 2) {
    float2 sum = make_float2(sums[0], sums[1]);
    if (is_first) {
      if (to.add) {
        float2 old = *(float2*)row;
        sum.x += old.x, sum.y += old.y;
      }
      *(float2*)row = sum;
    }
  } else {
    if (to.wide && !to.add && first >= to.begin && first + TILE <= to.end) {
#pragma unroll
      for (int i = 0; i < HELD; i += 4)
        if (to.row) *(float4*)(row + i) = make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
      return;
    }
#pragma unroll
    for (int i = 0; i < HELD; i += 2) {
      float2 sum = make_float2(sums[i], sums[i + 1]);
      bool wanted = to.row && k + i / 2 >= to.begin && k + i / 2 < to.end;
      float2* each = (float2*)(row + i);
      if (wanted && to.add) sum.x += each->x, sum.y += each->y;
      if (wanted) *each = sum;
    }
  }
}

template <bool FIRST, class A, class B> struct Either {
  using Type = A;
};
template <class A, class B> struct Either<false, A, B> {
  using Type = B;
};

// Stores a lane's sums of a tile directly; sums to add to are loaded at that time.
template <int G> struct Stored {
  INLINE void expect(const Target&, int, int) {}
  INLINE void send(const Target& to, float* sums, int first, int lane, int part) {
    share<2 * TILE, 16, 32 / G>(sums, lane);
    put<G>(to, sums, first, part);
  }
};

// Stores whole tiles in whole 32-byte sectors. `expect` prefetches the sums to add to before the tile's arithmetic.
template <int G> struct Lines {
  static constexpr int HELD = 2 * TILE / G, WIDTH = HELD < 4 ? HELD : 4, STRIDE = WIDTH * G, PAIR = WIDTH < 2 ? 1 : 2;
  float old[HELD];

  // Address of a lane's first sum in the tile.
  INLINE float* place(const Target& to, int first, int part) {
    u32 at = (to.origin + first - to.first) & to.mask;
    return to.row + 2 * (i64)(i32)at + part * WIDTH;
  }
  INLINE bool is_whole(const Target& to, int first) { return to.wide && first >= to.begin && first + TILE <= to.end; }
  INLINE bool is_wanted(const Target& to, int sample) { return to.row && sample >= to.begin && sample < to.end; }

  INLINE void expect(const Target& to, int first, int part) {
    if (!to.add) return;
    const float* row = place(to, first, part);
    int sample = first + part * WIDTH / 2;
    if constexpr (WIDTH == 4)
      if (is_whole(to, first)) {
#pragma unroll
        for (int i = 0; i < HELD; i += 4) {
          float4 quad = to.row ? *(const float4*)(row + i / 4 * STRIDE) : make_float4(0, 0, 0, 0);
          old[i] = quad.x, old[i + 1] = quad.y, old[i + 2] = quad.z, old[i + 3] = quad.w;
        }
        return;
      }
#pragma unroll
    for (int i = 0; i < HELD; i += PAIR) {
      int at = i / WIDTH * STRIDE + i % WIDTH;
      if (!is_wanted(to, sample + at / 2)) continue;
      if constexpr (PAIR == 1) {
        old[i] = row[at];
      } else {
        float2 pair = *(const float2*)(row + at);
        old[i] = pair.x, old[i + 1] = pair.y;
      }
    }
  }

  INLINE void send(const Target& to, float* sums, int first, int lane, int part) {
    float mixed[2 * TILE];
#pragma unroll
    for (int i = 0; i < 2 * TILE; i++) mixed[i] = sums[i % HELD / WIDTH * STRIDE + i / HELD * WIDTH + i % WIDTH];
    share<2 * TILE, 16, 32 / G>(mixed, lane);
    if (to.add)
#pragma unroll
      for (int i = 0; i < HELD; i++) mixed[i] += old[i];
    float* row = place(to, first, part);
    int sample = first + part * WIDTH / 2;
    if constexpr (WIDTH == 4)
      if (is_whole(to, first)) {
#pragma unroll
        for (int i = 0; i < HELD; i += 4)
          if (to.row) *(float4*)(row + i / 4 * STRIDE) = make_float4(mixed[i], mixed[i + 1], mixed[i + 2], mixed[i + 3]);
        return;
      }
#pragma unroll
    for (int i = 0; i < HELD; i += PAIR) {
      int at = i / WIDTH * STRIDE + i % WIDTH;
      if (!is_wanted(to, sample + at / 2)) continue;
      if constexpr (PAIR == 1) row[at] = mixed[i];
      else *(float2*)(row + at) = make_float2(mixed[i], mixed[i + 1]);
    }
  }
};
