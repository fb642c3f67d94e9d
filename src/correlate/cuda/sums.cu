// Tiles of 32-bit sums: adds them to 64-bit sums and reads them out baseline by baseline.
#include "device.cuh"
#include "tiles.cuh"

// EDGE: inputs along a tile; FLOATS: 0 or 1.
#if FLOATS
typedef float Narrow;
typedef float2 NarrowPair;
typedef double Wide;
typedef double2 WidePair;
typedef float4 Four;
#else
typedef i32 Narrow;
typedef int2 NarrowPair;
typedef i64 Wide;
typedef longlong2 WidePair;
typedef int4 Four;
#endif

// Computes wide = narrow or wide += narrow, four numbers per thread.
KERNEL __launch_bounds__(256) fold(const Four* narrow, WidePair* wide, u64 fours, u32 replace) {
  for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < fours; at += (u64)gridDim.x * 256) {
    const Four from = narrow[at];
    WidePair low = {0, 0}, high = {0, 0};
    if (!replace) low = wide[2 * at], high = wide[2 * at + 1];
    low.x += (Wide)from.x, low.y += (Wide)from.y, high.x += (Wide)from.z, high.y += (Wide)from.w;
    wide[2 * at] = low, wide[2 * at + 1] = high;
  }
}

// Returns a sum for reading out, with 32 or 64 bits.
INLINE NarrowPair sum_of(const NarrowPair* narrow, const WidePair*, u64 at, NarrowPair) { return narrow[at]; }
INLINE WidePair sum_of(const NarrowPair* narrow, const WidePair* wide, u64 at, WidePair) {
  WidePair sum = wide[at];
  if (narrow) {
    const NarrowPair rest = narrow[at];
    sum.x += (Wide)rest.x, sum.y += (Wide)rest.y;
  }
  return sum;
}

// Writes baselines (i, j) in the order i (i + 1) / 2 + j with all pairs of polarizations, one per thread, from
// baseline `first` of the first channel on. For an autocorrelation, XY lies above the diagonal and is the conjugate
// of YX below it.
template <class Pair>
INLINE void read_baselines(const NarrowPair* narrow, const WidePair* wide, u64 elements, Pair* output, u64 first, u64 count,
                           u32 baselines, u32 polarizations) {
  const u64 index = (u64)blockIdx.x * 256 + threadIdx.x;
  if (index >= count) return;
  const u64 channel = (first + index) / baselines, baseline = (first + index) % baselines;
  const u32 i = triangle_row(baseline), j = (u32)(baseline - (u64)i * (i + 1) / 2);
  if (narrow) narrow += channel * elements;
  if (wide) wide += channel * elements;
  if (polarizations == 1) {
    output[index] = sum_of(narrow, wide, tile_element(i, j), Pair());
    return;
  }
  const u64 upper = tile_element(2 * i, 2 * j), lower = upper + EDGE;
  Pair* to = output + 4 * index;
  const Pair yx = sum_of(narrow, wide, lower, Pair());
  Pair xy = yx;
  if (i == j) {
    xy.y = -xy.y;
  } else {
    xy = sum_of(narrow, wide, upper + 1, Pair());
  }
  to[0] = sum_of(narrow, wide, upper, Pair());
  to[1] = xy, to[2] = yx;
  to[3] = sum_of(narrow, wide, lower + 1, Pair());
}

#define ARGUMENTS(Pair)                                                                                                      \
  const NarrowPair *narrow, const WidePair *wide, u64 elements, Pair *output, u64 first, u64 count, u32 baselines, u32 polarizations
KERNEL __launch_bounds__(256) read_narrow(ARGUMENTS(NarrowPair)) {
  read_baselines(narrow, wide, elements, output, first, count, baselines, polarizations);
}
KERNEL __launch_bounds__(256) read_wide(ARGUMENTS(WidePair)) {
  read_baselines(narrow, wide, elements, output, first, count, baselines, polarizations);
}
