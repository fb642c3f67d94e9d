// Converts the rows of a filter bank: sums antennas, orders recorded channels, interleaves the channels of copies.
#include "device.cuh"

// Layout of a filter-bank row; axes: copy, antenna, product, recorded channel, channel.
struct Row {
  const float* values;
  u64 line;
  u32 products, antennas, copies, channels;

  // Returns the sum over antennas, in order, of one channel, read from the copy that computes it.
  INLINE float sum(u32 product, u32 place, u32 channel) const {
    const u64 at = (u64)place * channels + channel, step = line * products;
    const float* from = values + channel % copies * antennas * step + product * line + at;
    float sum = from[0];
    for (u32 antenna = 1; antenna < antennas; ++antenna) sum += from[antenna * step];
    return sum;
  }
};

// `places` maps each recorded channel to its index in the filter bank's row. Channel `zero`, if it exists, becomes
// the mean of `above` and `below`. Elements run along x, rows along y.
KERNEL __launch_bounds__(256)
    join_rows(const float* values, u32 rows, u32 copies, u32 antennas, u32 products, u32 coarse_channels, u32 channels,
              const u32* places, u32 zero, u32 above, u32 below, float* output) {
  const u32 line = coarse_channels * channels, elements = products * line;
  const u32 element = blockIdx.x * 256 + threadIdx.x;
  if (element >= elements) return;
  const u32 product = element / line, channel = element % channels;
  const u32 place = places[element % line / channels];
  const u64 row_elements = (u64)copies * antennas * elements;
  for (u32 index = blockIdx.y; index < rows; index += gridDim.y) {
    const Row row = {values + index * row_elements, line, products, antennas, copies, channels};
    const float value = channel == zero ? 0.5f * (row.sum(product, place, above) + row.sum(product, place, below))
                                        : row.sum(product, place, channel);
    output[(u64)index * elements + element] = value;
  }
}
