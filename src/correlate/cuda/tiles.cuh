// The order of a channel's sums: tile (I, J), J <= I, is number I (I + 1) / 2 + J; a tile holds EDGE rows of EDGE sums.
#pragma once

// The row of element `index` of a triangle whose rows hold 1, 2, 3 .. elements.
INLINE u32 triangle_row(u64 index) {
  u64 row = (u64)((sqrtf(8.0f * (float)index + 1.0f) - 1.0f) * 0.5f);
  while (row * (row + 1) / 2 > index) --row;
  while ((row + 1) * (row + 2) / 2 <= index) ++row;
  return (u32)row;
}

#ifdef EDGE
// Where the sum of inputs a and b, a >= b, stands in a channel's tiles.
INLINE u64 tile_element(u32 a, u32 b) {
  const u64 i = a / EDGE, j = b / EDGE;
  return ((i * (i + 1) / 2 + j) * EDGE + a % EDGE) * EDGE + b % EDGE;
}
#endif
