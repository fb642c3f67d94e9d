// How warps multiply bytes that stand in stages: STAGES of STAGE bytes, columns at COLUMNS with the EXTRA ones at BEFORE, rows at 0 or
// the same, and barriers at FULL and FREE, all as the file that includes this lays them out.
#pragma once

// The last block's products with itself, by a warp that does nothing else.
INLINE void multiply_corner(const Work& work, unsigned char* shared, u32 base) {
  Stages at = {0, 0};
  for_each_job(work, shared, LAYOUT.tickets, [&](const Told& told) {
    const Place job = told();
    Corner corner(job);
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      barrier_wait(base + FULL + at.slot * 8, at.parity);
      corner.multiply(base + at.slot * STAGE + BEFORE);
      __syncwarp();
      if ((threadIdx.x & 31) == 0) barrier_arrive(base + FREE + at.slot * 8);
      at.advance();
    }
    corner.store(work, job);
  });
}

// 64 bytes of time of this warp's rows, of a stage that is at `from`.
INLINE void load(u32 (&a)[2][4], const Lane& lane, u32 from, u32 half) {
#pragma unroll
  for (u32 k = 0; k < 2; k++) load_matrix_x4(a[k], from + lane.row + (((4 * half + 2 * k) | lane.half) ^ lane.swap) * 16);
}

// Products of 64 bytes of time: of rows `a` and their a' `b`, with columns that are at `from`.
INLINE void issue(Products& of, const Task& task, const u32 (&a)[2][4], const u32 (&b)[2][4], u64 from) {
  with_columns(task, [&](auto n_) {
    constexpr u32 N = decltype(n_)::value;
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
      wgmma_s8<N>(of.re, a[k], from + 2 * k, 1);
      wgmma_s8<N>(of.im, b[k], from + 2 * k, 1);
    }
    wgmma_commit();
  });
}
// The products before those that were issued last have read these, which may hold something else from here on.
INLINE void release_registers(u32 (&a)[2][4], u32 (&b)[2][4]) {
  wgmma_wait<1>();
#pragma unroll
  for (u32 k = 0; k < 2; k++)
#pragma unroll
    for (u32 q = 0; q < 4; q++) keep(a[k][q]), keep(b[k][q]);
}

// Products of a job's rows in this warpgroup with its columns, all stages, where BESIDE takes registers for sums: turns of a stage,
// and rows are copied when they are multiplied, so that those of the next stage need no more registers than these.
INLINE void multiply_beside(Products& of, const Lane& lane, Stages& at, u32 halves, const Task& task) {
  u32 raw[2][2][4] = {}, a[2][2][4] = {}, b[2][2][4] = {};
  auto full = [&](const Stages& slot) { barrier_wait(lane.base + FULL + slot.slot * 8, slot.parity); };
  auto release = [&](u32 slot) { if (lane.lane == 0) barrier_arrive(lane.base + FREE + slot * 8); };
  // 0, which the compiler does not know: without it a copy is none, and a product's rows change while it reads them.
  const u32 rows = lane.base + (task.same ? COLUMNS : 0), none = halves >> 31;
  u32 old = 0, half = 0;
  full(at);
#pragma unroll
  for (u32 i = 0; i < 2; i++) load(raw[i], lane, rows + at.slot * STAGE, i);
  // `set` is the half of a stage.
  auto step = [&](auto set_) {
    constexpr u32 set = decltype(set_)::value;
#pragma unroll
    for (u32 k = 0; k < 2; k++)
#pragma unroll
      for (u32 q = 0; q < 4; q++) {
        a[set][k][q] = raw[set][k][q] ^ none, b[set][k][q] = turned(raw[set][k], q);
        keep(a[set][k][q]), keep(b[set][k][q]);
      }
    const u64 from = wgmma_swizzled(lane.base + at.slot * STAGE + BEFORE) + task.column * 8 + set * 4;
    issue(of, task, a[set], b[set], from);
    release_registers(a[set ^ 1], b[set ^ 1]);
    const Stages next = at.next();
    if (set == 0) {
      if (half) release(old);
      old = at.slot;
    }
    if (half + 2 < halves) {
      if (set == 0) full(next);
      load(raw[set], lane, rows + next.slot * STAGE, set);
    }
    if (set) at = next;
    return ++half < halves;
  };
  while (step(Constant<0>{}) && step(Constant<1>{})) {}
  wgmma_wait<0>();
  release(old);
  if (half & 1) at.advance();
}
