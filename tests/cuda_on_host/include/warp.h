// Collective operations of the threads of a warp or of a block.
#pragma once

static inline void __syncthreads() { emulated_machine->barrier(0, 0, true); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) { emulated_machine->pass(); }
static inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
static inline int clock() { return (int)clock64(); }

namespace emulated {
typedef unsigned long long Word;

// Executes `work` once all threads of the mask have arrived with their value and operand.
static inline Word together(unsigned mask, Word value, unsigned operand, Work work, const char* what) {
  Machine* machine = emulated_machine;
  Fiber* self = machine->current;
  self->value = value, self->operand = operand;
  machine->meet_warp(mask, work, what);
  return self->result;
}

// Runs a shuffle. Each operand holds the lane, offset or mask in its low half, and the segment width in its high half.
static inline void take(Fiber* first, const bool* present, unsigned lanes, unsigned (*source)(unsigned lane, unsigned by, unsigned begin, unsigned end)) {
  for (unsigned lane = 0; lane < lanes; lane++) {
    if (!present[lane]) continue;
    unsigned width = first[lane].operand >> 16, by = first[lane].operand & 65535, begin = lane & ~(width - 1);
    unsigned from = source(lane, by, begin, begin + width);
    first[lane].result = from < lanes && present[from] ? first[from].value : 0xCBCBCBCBCBCBCBCBull;
  }
}
static inline void work_shuffle(Fiber* f, const bool* p, unsigned n) {
  take(f, p, n, [](unsigned, unsigned by, unsigned begin, unsigned end) { return begin + (by & (end - begin - 1)); });
}
static inline void work_shuffle_up(Fiber* f, const bool* p, unsigned n) {
  take(f, p, n, [](unsigned lane, unsigned by, unsigned begin, unsigned) { return lane >= begin + by ? lane - by : lane; });
}
static inline void work_shuffle_down(Fiber* f, const bool* p, unsigned n) {
  take(f, p, n, [](unsigned lane, unsigned by, unsigned, unsigned end) { return lane + by < end ? lane + by : lane; });
}
static inline void work_shuffle_xor(Fiber* f, const bool* p, unsigned n) {
  take(f, p, n, [](unsigned lane, unsigned by, unsigned, unsigned end) { return (lane ^ by) < end ? lane ^ by : lane; });
}
static inline void work_ballot(Fiber* f, const bool* p, unsigned n) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < n; lane++) votes |= p[lane] && f[lane].value ? 1u << lane : 0;
  for (unsigned lane = 0; lane < n; lane++) f[lane].result = votes;
}
static inline void work_all(Fiber* f, const bool* p, unsigned n) {
  bool all = true;
  for (unsigned lane = 0; lane < n; lane++) all &= !p[lane] || f[lane].value;
  for (unsigned lane = 0; lane < n; lane++) f[lane].result = all;
}
static inline void work_match(Fiber* f, const bool* p, unsigned n) {
  for (unsigned lane = 0; lane < n; lane++) {
    unsigned same = 0;
    for (unsigned other = 0; other < n; other++) same |= p[other] && f[other].value == f[lane].value ? 1u << other : 0;
    f[lane].result = same;
  }
}
template <class T, T (*Operation)(T, T)> static inline void work_reduce(Fiber* f, const bool* p, unsigned n) {
  bool any = false;
  T sum = 0;
  for (unsigned lane = 0; lane < n; lane++) {
    if (!p[lane]) continue;
    sum = any ? Operation(sum, (T)f[lane].value) : (T)f[lane].value;
    any = true;
  }
  for (unsigned lane = 0; lane < n; lane++) f[lane].result = (Word)sum;
}
template <class T> static inline T plus(T a, T b) { return (T)((unsigned)a + (unsigned)b); }
template <class T> static inline T least(T a, T b) { return a < b ? a : b; }
template <class T> static inline T most(T a, T b) { return a > b ? a : b; }
template <class T> static inline T bits_and(T a, T b) { return a & b; }
template <class T> static inline T bits_or(T a, T b) { return a | b; }
template <class T> static inline T bits_xor(T a, T b) { return a ^ b; }

template <class T> static inline T shuffle(unsigned mask, T value, unsigned by, int width, Work work, const char* what) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  Word word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  word = together(mask, word, (by & 65535) | ((unsigned)width << 16), work, what);
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}
static inline void work_nothing(Fiber*, const bool*, unsigned) {}
}  // namespace emulated

static inline void __syncwarp(unsigned mask = ~0u) { emulated::together(mask, 0, 0, emulated::work_nothing, "__syncwarp"); }
#define EMULATED_SHUFFLES(T)                                                                                             \
  static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {                                        \
    return emulated::shuffle<T>(mask, value, (unsigned)lane, width, emulated::work_shuffle, "__shfl_sync");              \
  }                                                                                                                      \
  static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {                                  \
    return emulated::shuffle<T>(mask, value, by, width, emulated::work_shuffle_up, "__shfl_up_sync");                    \
  }                                                                                                                      \
  static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {                                \
    return emulated::shuffle<T>(mask, value, by, width, emulated::work_shuffle_down, "__shfl_down_sync");                \
  }                                                                                                                      \
  static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {                                      \
    return emulated::shuffle<T>(mask, value, (unsigned)by, width, emulated::work_shuffle_xor, "__shfl_xor_sync");        \
  }
EMULATED_SHUFFLES(int)
EMULATED_SHUFFLES(unsigned)
EMULATED_SHUFFLES(long)
EMULATED_SHUFFLES(unsigned long)
EMULATED_SHUFFLES(long long)
EMULATED_SHUFFLES(unsigned long long)
EMULATED_SHUFFLES(float)
EMULATED_SHUFFLES(double)
#undef EMULATED_SHUFFLES

static inline unsigned __ballot_sync(unsigned mask, int vote) {
  return (unsigned)emulated::together(mask, vote != 0, 0, emulated::work_ballot, "__ballot_sync");
}
static inline int __any_sync(unsigned mask, int vote) {
  return emulated::together(mask, vote != 0, 0, emulated::work_ballot, "__any_sync") != 0;
}
static inline int __all_sync(unsigned mask, int vote) {
  return (int)emulated::together(mask, vote != 0, 0, emulated::work_all, "__all_sync");
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value) {
  emulated::Word word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  return (unsigned)emulated::together(mask, word, 0, emulated::work_match, "__match_any_sync");
}
#define EMULATED_REDUCTION(name, T, operation)                                                                                \
  static inline T __reduce_##name##_sync(unsigned mask, T value) {                                                            \
    return (T)emulated::together(mask, (emulated::Word)value, 0, emulated::work_reduce<T, emulated::operation<T>>,            \
                                 "__reduce_" #name "_sync");                                                                  \
  }
EMULATED_REDUCTION(add, int, plus)
EMULATED_REDUCTION(add, unsigned, plus)
EMULATED_REDUCTION(min, int, least)
EMULATED_REDUCTION(min, unsigned, least)
EMULATED_REDUCTION(max, int, most)
EMULATED_REDUCTION(max, unsigned, most)
EMULATED_REDUCTION(and, unsigned, bits_and)
EMULATED_REDUCTION(or, unsigned, bits_or)
EMULATED_REDUCTION(xor, unsigned, bits_xor)
#undef EMULATED_REDUCTION

// Votes of the block's threads: the number of votes, whether there is any, and whether all vote.
static inline int __syncthreads_count(int vote) {
  static int votes[2], turn;
  __syncthreads();
  if (emulated_machine->current->linear == 0) votes[0] = 0;
  __syncthreads();
  votes[0] += vote != 0;
  __syncthreads();
  (void)turn;
  return votes[0];
}
static inline int __syncthreads_or(int vote) { return __syncthreads_count(vote) > 0; }
static inline int __syncthreads_and(int vote) { return __syncthreads_count(!vote) == 0; }
