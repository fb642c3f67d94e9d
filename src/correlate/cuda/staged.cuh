// Loads of rows from the stages by the consumer warps and, with EDGE_COLUMNS, the products of the edge block of inputs
// with itself. One otherwise idle warp computes these products, and the column sums of imaginary parts as products
// with rows of ones. The including file defines the layout: STAGES stages of STAGE bytes; in each stage columns at
// COLUMNS, edge columns at BEFORE, and rows at 0 (or the columns themselves); barriers at FULL and FREE.
#pragma once

// 16 x 16 accumulators of the edge block's products with itself, used in one job per channel; the elements are laid out
// as in Products.
struct Corner {
  bool wanted;
  i32 re[2][4] = {}, im[2][4] = {};

  INLINE explicit Corner(const TileIndex& job) : wanted(job.row == 0 && job.column == 0) {}
  // Multiplies 128 bytes of time of the edge block.
  INLINE void multiply(u32 slot) {
    if (!wanted) return;
    const u32 lane = threadIdx.x & 31, mine = lane & 15;
#pragma unroll
    for (u32 step = 0; step < 4; step++) {
      u32 a[4];   // as the right operand, words 0 and 2 are eight columns, 1 and 3 the next eight
      load_matrix_x4(a, slot + mine * 128 + ((2 * step + (lane >> 4)) ^ (mine & 7)) * 16);
      // Ones at the imaginary parts.
      const u32 one = SHIFT ? 0x01010101 : 0x01000100, ones[4] = {SHIFT ? 0 : one, SHIFT ? 0 : one, one, one};
      u32 b[4];
#pragma unroll
      for (u32 i = 0; i < 4; i++) b[i] = turned(a, i);
#pragma unroll
      for (u32 j = 0; j < 2; j++) {
        const u32 columns[2] = {a[j], a[2 + j]};
        mma_16x8x32_s8(re[j], a, columns), mma_16x8x32_s8(im[j], b, columns), mma_16x8x32_s8(im[j], ones, columns);
      }
    }
  }
  INLINE void store(const Work& work, const TileIndex& job) const {
    const u32 lane = threadIdx.x & 31, rows = work.inputs - (work.blocks - 1) * EDGE;
    unsigned char* const tile = (unsigned char*)work.sums + (u64)((job.channel + 1) * work.tiles - 1) * TILE;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
      const u32 j = i / 2, k = i % 2 * 2, to = lane / 4 + 8 * (i % 2);
      const int4 sums = make_int4(re[j][k] >> SHIFT, im[j][k] >> SHIFT, re[j][k + 1] >> SHIFT, im[j][k + 1] >> SHIFT);
      if (wanted && to < rows) put((int4*)(tile + to * PITCH + 8 * j * 8) + (lane & 3), sums, work.add);
    }
  }
};

// Multiplies the edge block with itself, on a warp that has no other work.
INLINE void multiply_corner(const Work& work, unsigned char* shared, u32 base) {
  Stages at = {0, 0};
  for_each_job(work, shared, LAYOUT.queue, [&](const PublishedJob& published) {
    const TileIndex job = published();
    Corner corner(job);
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      barrier_wait(base + FULL + at.slot * 8, at.parity);
      corner.multiply(base + at.slot * STAGE + BEFORE);
      warp_arrive(base + FREE + at.slot * 8);
      at.advance();
    }
    corner.store(work, job);
  });
}

// Loads 64 bytes of time of this warp's rows from the stage at `from`.
INLINE void load(u32 (&a)[2][4], const Lane& lane, u32 from, u32 half) {
#pragma unroll
  for (u32 k = 0; k < 2; k++) load_matrix_x4(a[k], from + lane.row + (((4 * half + 2 * k) | lane.half) ^ lane.swap) * 16);
}
