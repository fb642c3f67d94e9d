// Threads of a block, or of the blocks of a cluster, as fibers: each has a stack, and one runs at a time.
#pragma once
#include "../include/emulated.h"

namespace emulated {

constexpr unsigned MOST_THREADS = 1024, MOST_BLOCKS = 8, MOST_FIBERS = MOST_THREADS * MOST_BLOCKS;
constexpr unsigned long STACK_BYTES = 128 * 1024;
// Threads of the running blocks, block after block.
extern Fiber fibers[MOST_FIBERS];

// Maps the given number of stacks.
void make_stacks(unsigned threads);
// Runs `body` in fibers 0 to threads - 1 until all have ended or none can continue.
void run_fibers(unsigned threads, void (*body)(), void (*ended)(Fiber*));
// Abandons all fibers; called from one of them.
[[noreturn]] void abandon_fibers();
// Returns the number of fibers that have not ended; after run_fibers, those that wait forever.
unsigned waiting_fibers();
void suspend(const char* what, const void* key, unsigned long long detail);
void make_ready(Fiber* fiber);
void wake(const void* key);
void pass();

}  // namespace emulated
