// Validity masks: sets invalid samples to zero and counts the valid ones of each baseline.
#include "device.cuh"
#include "tiles.cuh"

// SAMPLE: bytes of a sample: 1, 2 or 8.

// Sets samples to zero if their bits in `word` are clear. The lanes of a warp share the 64 times from `row` on, of
// which only the first `times` exist.
INLINE void clear(u8* row, u64 word, i32 times, int lane) {
  for (int time = lane; time < smaller(times, 64); time += 32) {
    if (word >> time & 1) continue;
#if SAMPLE == 1
    row[time] = 0;
#elif SAMPLE == 2
    ((u16*)row)[time] = 0;
#else
    ((u64*)row)[time] = 0;
#endif
  }
}

// One warp per channel and antenna: reads 32 mask words at once and counts the valid samples.
KERNEL __launch_bounds__(256) apply_mask(u8* spectra, i64 channel_stride, i64 input_stride, u32 channels, u32 antennas,
                                         u32 polarizations, i64 times, const u64* valid, u64* counts) {
  const u64 index = (u64)blockIdx.x * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (index >= (u64)channels * antennas) return;
  const i64 words = (times + 63) / 64;
  const u64* mask = valid + index * words;
  u8* row = spectra + index / antennas * channel_stride + index % antennas * polarizations * input_stride;
  u64 count = 0;
  for (i64 first = 0; first < words; first += 32) {
    const i64 own = first + lane, left = times - 64 * own;
    const u64 all = left >= 64 ? ~0ull : left > 0 ? (1ull << left) - 1 : 0;
    const u64 word = own < words ? mask[own] & all : 0;
    count += __popcll(word);
    for (u32 some = __ballot_sync(~0u, word != all); some; some &= some - 1) {
      const int other = __ffs((int)some) - 1;
      const u64 theirs = __shfl_sync(~0u, word, other);
      const i64 time = 64 * (first + other);
      for (u32 p = 0; p < polarizations; p++)
        clear(row + p * input_stride + time * SAMPLE, theirs, (i32)smaller(times - time, (i64)64), lane);
    }
  }
  for (int step = 16; step; step /= 2) count += __shfl_xor_sync(~0u, count, step);
  if (lane == 0) counts[index] = count;
}

// Counts the valid samples of each baseline (i, j), in tiles of 32 x 32 antennas; each warp computes ROWS rows of 32.
// `counts` holds the valid samples of single antennas. They determine the result if no row or no column of a tile has
// invalid samples.
KERNEL __launch_bounds__(256) count_baselines(const u64* valid, const u64* counts, u32 antennas, i64 times, u32 tiles, u64* sums,
                                              u32 add) {
  constexpr int TILE = 32, WORDS = 16, ROWS = 4;
  __shared__ u64 masks[2][TILE][WORDS + 1];
  const u32 tile = blockIdx.x % tiles;
  const u64 channel = blockIdx.x / tiles;
  const u32 row = triangle_row(tile), column = tile - row * (row + 1) / 2;
  const u32 lane = threadIdx.x % 32, y = threadIdx.x / 32, j = column * TILE + lane;
  const i64 words = (times + 63) / 64;
  valid += channel * antennas * words, counts += channel * antennas;
  const u64 b = j < antennas ? counts[j] : times;
  u64 count[ROWS];
  bool whole_rows = true;
#pragma unroll
  for (int k = 0; k < ROWS; k++) {
    const u32 i = row * TILE + y + 8 * k;
    const u64 a = i < antennas ? counts[i] : times;
    whole_rows = whole_rows && a == (u64)times;
    count[k] = smaller(a, b);
  }
  const int all_rows = __syncthreads_and(whole_rows), all_columns = __syncthreads_and(b == (u64)times);
  if (!all_rows && !all_columns) {
    for (int k = 0; k < ROWS; k++) count[k] = 0;
    for (i64 first = 0; first < words; first += WORDS) {
      for (u32 index = threadIdx.x; index < 2 * TILE * WORDS; index += 256) {
        const u32 side = index / (TILE * WORDS), line = index / WORDS % TILE;
        const u32 antenna = (side ? column : row) * TILE + line;
        const i64 word = first + index % WORDS;
        u64 mask = antenna < antennas && word < words ? valid[antenna * words + word] : 0;
        if (word == words - 1 && times % 64) mask &= (1ull << times % 64) - 1;
        masks[side][line][index % WORDS] = mask;
      }
      __syncthreads();
#pragma unroll
      for (int word = 0; word < WORDS; word++) {
        const u64 own = masks[1][lane][word];
#pragma unroll
        for (int k = 0; k < ROWS; k++) count[k] += __popcll(masks[0][y + 8 * k][word] & own);
      }
      __syncthreads();
    }
  }
  sums += channel * ((u64)antennas * (antennas + 1) / 2);
#pragma unroll
  for (int k = 0; k < ROWS; k++) {
    const u32 i = row * TILE + y + 8 * k;
    if (i >= antennas || j > i) continue;
    u64* to = sums + (u64)i * (i + 1) / 2 + j;
    *to = add ? *to + count[k] : count[k];
  }
}
