// Reads of samples in stages by the warps that multiply. The including file defines the layout: STAGES stages of
// STAGE bytes, columns at COLUMNS, edge columns at BEFORE, rows at 0 or the same as the columns, and barriers at FULL
// and FREE.
#pragma once

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
