// One antenna's rows of a filter bank's: antennas summed, recorded channels in order, copies joined.
#include "device.cuh"

// Where the numbers of a row lie; axes of a filter bank's row: copy, antenna, product, place, channel.
struct Row {
  const float* values;
  u64 line;
  u32 products, antennas, copies, channels;

  // The sum over antennas, in their order, of a channel of the copy that it belongs to.
  INLINE float sum(u32 product, u32 place, u32 channel) const {
    const u64 at = (u64)place * channels + channel, step = line * products;
    const float* from = values + channel % copies * antennas * step + product * line + at;
    float sum = from[0];
    for (u32 antenna = 1; antenna < antennas; ++antenna) sum += from[antenna * step];
    return sum;
  }
};

// `places` holds the filter bank's place of each recorded channel. Where `zero` is a channel, it becomes the mean of
// `above` and `below`. A thread's element lies along x, rows along y.
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
