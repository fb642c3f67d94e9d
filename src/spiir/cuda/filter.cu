// Applies the IIR filters of all templates at all rates in one launch and writes sums[template][sample] of each rate.
//
// Grid: one block per unit, the units with the most work first. A unit is a set of templates of one rate that use the
// same number of lanes each. A block runs its unit's passes in sequence: the first pass writes the sums, the others
// add to them. Shared memory holds four shifted copies of the input window that covers every delay of the pass.
//
// THREADS: threads of a block. SHAPES: one line SHAPE(number, filters, lanes, ahead, piped, long) for each pass
// shape.
#include "filter.cuh"

#define SHAPE(number, R, G, D, PIPED, LONG)                      \
  if (pass.shape == number) {                                    \
    if constexpr (LONG) filter_long<R, G>(pass, work, to);       \
    else filter_short<R, G, D, PIPED>(pass, work, to);           \
  }

// begin .. end: new samples at the full rate. known: first output sample, at index 0 of each output row. stride:
// output samples between the rows of consecutive templates. wide: 16-byte stores of two output samples are aligned.
KERNEL __launch_bounds__(THREADS, 1)
    filter_all(const Unit* units, const Pass* passes, const i32* rows, const float* values, const float2* states, float2* next_states,
               const Level* levels, const float* inputs, float* sums, float* output, u64 begin, u64 end, u64 known, i64 stride, u32 wide) {
  SHARED_MEMORY(shared);
  Unit unit = units[blockIdx.x];
  Level level = levels[unit.level];
  u64 up = (1ull << unit.level) - 1, from = (begin + up) >> unit.level, till = (end + up) >> unit.level;
  u64 origin = from / TILE * TILE;
  int tiles = from == till ? 0 : (int)((till - origin + TILE - 1) / TILE), parts = (int)(unit.part >> 16), part = (int)(unit.part & 0xffff);
  Work work = {inputs + level.input, level.mask, values, states, next_states, (float*)shared};
  work.start = tiles * part / parts, work.stop = tiles * (part + 1) / parts, work.saves = part + 1 == parts;
  work.complete = from == till ? 0 : (int)((till - origin) / TILE), work.number = (u32)(origin / TILE);
  // Only the block with the last segment saves states.
  if (!work.saves) work.complete = -1;
  u32 templates = 32 / unit.lanes;
  i64 row = rows[unit.rows + threadIdx.x / 32 * templates + threadIdx.x % templates];
  Target to;
  to.origin = (u32)origin, to.end = (i32)(till - origin);
  if (unit.level == 0) {
    to.row = output + 2 * row * stride, to.first = (u32)known, to.mask = 0xffffffff, to.wide = wide;
    to.begin = (i32)(larger(from, known) - origin);
  } else {
    to.row = sums + 2 * (level.sums + row * (level.sums_mask + 1ull)), to.first = 0, to.mask = level.sums_mask, to.wide = true;
    to.begin = (i32)(from - origin);
  }
  if (row < 0) to.row = nullptr;
  for (u32 index = 0; index < unit.passes; index++) {
    Pass pass = passes[unit.pass + index];
    to.add = index > 0;
    SHAPES
  }
}
