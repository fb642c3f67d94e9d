// Threads of a block, or of the blocks of a cluster, as fibers: each has a stack, and one runs at a time.
#pragma once
#include "../include/emulated.h"

namespace emulated {

constexpr unsigned MOST_THREADS = 1024, MOST_BLOCKS = 8, MOST_FIBERS = MOST_THREADS * MOST_BLOCKS;
constexpr unsigned long STACK_BYTES = 128 * 1024;
// Of a cluster, block after block.
extern Fiber fibers[MOST_FIBERS];

// Maps the given number of stacks.
void make_stacks(unsigned threads);
// Lets fibers 0 to threads - 1 run `body` until all have ended or none can go on.
void run_fibers(unsigned threads, void (*body)(), void (*ended)(Fiber*));
// Leaves all fibers where they are; called from one of them.
[[noreturn]] void abandon_fibers();
// Whether a fiber ended for lack of anything to do: the number of those that still wait.
unsigned waiting_fibers();
void suspend(const char* what, const void* key, unsigned long long detail);
void make_ready(Fiber* fiber);
void wake(const void* key);
void pass();

}  // namespace emulated
