// Fills gaps in rows of floats: stores the latest rows in a ring buffer, computes a robust level of each element over
// them, and writes that level into the gaps. Threads run along the elements (x) and the rows (y).
#include "device.cuh"

#define ELEMENT blockIdx.x * 256 + threadIdx.x

// Reduces a ring index that is less than twice the ring's length.
INLINE u64 place_of(u32 count, u32 samples) { return count < samples ? count : count - samples; }

// Appends rows, at most the ring's length, to the ring of latest rows.
KERNEL __launch_bounds__(256)
    observe_rows(const float* rows, u32 elements, u32 times, u32 next, u32 samples, float* ring) {
  const u32 element = ELEMENT;
  if (element >= elements) return;
  for (u32 row = blockIdx.y; row < times; row += gridDim.y) {
    ring[place_of(next + row, samples) * elements + element] = rows[(u64)row * elements + element];
  }
}

KERNEL __launch_bounds__(256) fill_rows(float* rows, u32 elements, u32 times, const float* level) {
  const u32 element = ELEMENT;
  if (element >= elements) return;
  const float value = level[element];
  for (u32 row = blockIdx.y; row < times; row += gridDim.y) rows[(u64)row * elements + element] = value;
}

const u32 GROUPS = 16;
const u32 ELEMENTS = 32;

// Limit in deviations from the median beyond which groups are rejected, and the standard deviation of Gaussian noise
// over its median absolute deviation.
const double LIMIT = 6.0;
const double PER_MEDIAN_DISTANCE = 1.4826;

// One value per group of rows and element, and whether it exists.
struct Groups {
  double values[GROUPS][ELEMENTS];
  bool is_there[GROUPS][ELEMENTS];
  double middle[2][ELEMENTS];
};

// Returns the median over an element's groups of the threads' values: the mean of the middle two if even, 0 if there
// is none. All threads of the block must call it.
INLINE double median(Groups& all, double value, bool is_there, u32 group, u32 lane) {
  all.values[group][lane] = value;
  all.is_there[group][lane] = is_there;
  if (group < 2) all.middle[group][lane] = 0.0;
  __syncthreads();
  u32 rank = 0, count = 0;
#pragma unroll
  for (u32 other = 0; other < GROUPS; ++other) {
    const bool counts = all.is_there[other][lane];
    const double one = all.values[other][lane];
    count += counts;
    rank += counts && (one < value || (one == value && other < group));
  }
  const u32 half = count / 2;
  if (is_there && rank == half) all.middle[1][lane] = value;
  if (is_there && rank + 1 == half) all.middle[0][lane] = value;
  __syncthreads();
  const double upper = all.middle[1][lane], lower = all.middle[0][lane];
  __syncthreads();
  return count % 2 == 0 ? 0.5 * (lower + upper) : upper;
}

// Computes each element's level over the `count` latest rows of a ring, the first of them at index `first`. The rows
// form groups; the level is the average of the groups' means of finite values that lie near their median, or 0 if no
// value is finite. All sums run in row order. Each warp of the block has one group of rows.
KERNEL __launch_bounds__(512) take_level(const float* ring, u32 elements, u32 samples, u32 first, u32 count, float* level) {
  __shared__ Groups all;
  const u32 lane = threadIdx.x % ELEMENTS, group = threadIdx.x / ELEMENTS;
  const u32 element = blockIdx.x * ELEMENTS + lane, groups = smaller(GROUPS, count);
  double sum = 0.0;
  u32 finite = 0;
  if (element < elements && group < groups) {
    const u32 end = parts((group + 1) * count, groups);
#pragma unroll 8
    for (u32 row = parts(group * count, groups); row < end; ++row) {
      const float value = ring[place_of(first + row, samples) * elements + element];
      const bool is_finite = (__float_as_uint(value) & 0x7f800000) != 0x7f800000;
      sum += is_finite ? (double)value : 0.0;
      finite += is_finite;
    }
  }
  const bool is_there = finite > 0;
  const double mean = is_there ? sum / (double)finite : 0.0;
  const double middle = median(all, mean, is_there, group, lane);
  const double away = mean < middle ? middle - mean : mean - middle;
  const double limit = LIMIT * PER_MEDIAN_DISTANCE * median(all, away, is_there, group, lane);
  all.values[group][lane] = mean;
  all.is_there[group][lane] = is_there && away <= limit;
  __syncthreads();
  if (group > 0 || element >= elements) return;
  double total = 0.0;
  u32 near = 0;
  for (u32 other = 0; other < groups; ++other) {
    const bool counts = all.is_there[other][lane];
    total += counts ? all.values[other][lane] : 0.0;
    near += counts;
  }
  level[element] = (float)(near == 0 ? middle : total / (double)near);
}
