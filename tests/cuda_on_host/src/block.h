// Runs the blocks of a launch on the calling thread, one after another, or those of a cluster together.
#pragma once
#include "../include/emulated.h"

namespace emulated {

struct Launch {
  const Kernel* kernel;
  Uint3 grid, block;
  unsigned shared_bytes;
  void** arguments;
};

// Fill byte of fresh memory: 0xCB, or that of SIDEREAL_EMULATED_FRESH.
extern const unsigned char fresh;
// State of the running block that all kernels see.
extern Machine machine;
// Prints the position of the emulated device, and ends the process.
[[noreturn]] void die(const char* format, ...);
// False when a kernel trapped.
bool run(const Launch& launch);
// Selects the block of the cluster that kernels see.
void enter_block(unsigned rank);
// The running launch, if any, and the index of the thread in its block.
const Launch* running();
// Tests whether an address lies in the guard page of a thread's stack.
bool is_stack_guard(const void* address);
constexpr unsigned MOST_SHARED = 227 * 1024;

}  // namespace emulated
