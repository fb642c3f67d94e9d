// Runs the blocks of a launch on the calling thread: one after another, and those of a cluster together.
#pragma once
#include "../include/emulated.h"

namespace emulated {

struct Launch {
  const Kernel* kernel;
  int device;
  Uint3 grid, block;
  unsigned shared_bytes;
  void** arguments;
};

// Byte with which new memory is filled: 0xCB, or SIDEREAL_EMULATED_FRESH.
extern const unsigned char fresh;
// State of the running block that all kernels see.
extern Machine machine;
// Prints the message and the running kernel, block and thread, and ends the process.
[[noreturn]] void die(const char* format, ...);
// Runs a launch; returns false if the kernel trapped.
bool run(const Launch& launch);
// Makes block `rank` of the cluster the current one.
void enter_block(unsigned rank);
// Returns the running launch, or null.
const Launch* running();
// Tests whether an address lies in the guard page of a thread's stack.
bool is_stack_guard(const void* address);
constexpr unsigned MOST_SHARED = 227 * 1024;

}  // namespace emulated
