// Layout of a channel's sums: tile (I, J), J <= I, has index I (I + 1) / 2 + J and holds EDGE rows of EDGE sums.
#pragma once

// Returns the row of element `index` in a triangle whose rows hold 1, 2, 3, ... elements.
INLINE u32 triangle_row(u64 index) {
  u64 row = (u64)((sqrtf(8.0f * (float)index + 1.0f) - 1.0f) * 0.5f);
  while (row * (row + 1) / 2 > index) --row;
  while ((row + 1) * (row + 2) / 2 <= index) ++row;
  return (u32)row;
}

#ifdef EDGE
// Returns the index of the sum of inputs a >= b among the sums of a channel.
INLINE u64 tile_element(u32 a, u32 b) {
  const u64 i = a / EDGE, j = b / EDGE;
  return ((i * (i + 1) / 2 + j) * EDGE + a % EDGE) * EDGE + b % EDGE;
}
#endif
