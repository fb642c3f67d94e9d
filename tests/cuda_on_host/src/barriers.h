// Barriers at which the threads of a block wait for each other.
#pragma once
#include "../include/emulated.h"

namespace emulated {

// Resets all barriers, for `blocks` blocks of `threads` threads.
void start_barriers(unsigned blocks, unsigned threads);
void barrier(unsigned id, unsigned threads, bool wait);
void cluster_arrive();
void cluster_wait();
void meet_warp(unsigned mask, Work work, const char* what);
void meet_warpgroup(Work work, const char* what);
// Removes an ended thread from the barriers.
void leave_barriers(Fiber* fiber);

}  // namespace emulated
