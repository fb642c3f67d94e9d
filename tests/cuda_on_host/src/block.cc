#include "block.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "background.h"
#include "barriers.h"
#include "fibers.h"

namespace emulated {

Machine machine;
const unsigned char fresh = [] {
  const char* text = getenv("SIDEREAL_EMULATED_FRESH");
  return (unsigned char)(text ? strtoul(text, nullptr, 16) : 0xCB);
}();

namespace {

constexpr unsigned long WINDOW = 256 * 1024;
const Launch* current_launch;
// Shared memory of each block of a cluster.
unsigned char* windows[MOST_BLOCKS];
Uint3 places[MOST_BLOCKS];
bool trapped;

// 256 KiB below 2 GiB, and a page behind it that can't be touched.
unsigned char* make_window() {
  unsigned char* window = nullptr;
  for (unsigned long at = 0x10000000; at < 0x70000000 && !window; at += 2 * WINDOW) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void* got = mmap((void*)at, WINDOW + 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (got == (void*)at) window = (unsigned char*)got;
    else if (got != MAP_FAILED) munmap(got, WINDOW + 4096);
  }
  if (!window) die("no room for shared memory below 2 GiB");
  mprotect(window + WINDOW, 4096, PROT_NONE);
  return window;
}

void describe(FILE* to) {
  if (!current_launch) return;
  fprintf(to, "  kernel %s on device %d, block (%u, %u, %u)", current_launch->kernel->name, current_launch->device, machine.block.x, machine.block.y, machine.block.z);
  Fiber* fiber = machine.current;
  if (fiber) fprintf(to, ", thread (%u, %u, %u)", fiber->thread.x, fiber->thread.y, fiber->thread.z);
  fprintf(to, "\n");
}

[[noreturn]] void deadlock(unsigned threads) {
  fprintf(stderr, "emulated device: no thread can go on\n");
  describe(stderr);
  for (unsigned i = 0; i < threads; i++) {
    const Fiber& fiber = fibers[i];
    const Fiber& before = fibers[i ? i - 1 : 0];
    bool same = i % 32 && fiber.ended == before.ended && fiber.key == before.key && fiber.detail == before.detail;
    if (same || fiber.ended) continue;
    fprintf(stderr, "  from thread %u (warp %u, lane %u) on: waits in %s (%#llx)\n", i, i / 32, i % 32,
            fiber.waits_for ? fiber.waits_for : "nothing", fiber.detail);
  }
  abort();
}

void trap() {
  fprintf(stderr, "emulated device: __trap\n");
  describe(stderr);
  trapped = true;
  abandon_fibers();
}

void body() { current_launch->kernel->call(current_launch->arguments); }

void number_threads(unsigned blocks, Uint3 size) {
  Fiber* fiber = fibers;
  for (unsigned rank = 0; rank < blocks; rank++) {
    unsigned linear = 0;
    for (unsigned z = 0; z < size.z; z++)
      for (unsigned y = 0; y < size.y; y++)
        for (unsigned x = 0; x < size.x; x++, linear++, fiber++)
          fiber->thread = {x, y, z}, fiber->linear = linear, fiber->lane = linear % 32, fiber->rank = rank;
  }
}

// The end of what the launch asks for lies at the guard, as near as the alignment allows.
unsigned char* shared_of(unsigned rank) { return windows[rank] + WINDOW - (machine.shared_bytes + 1023) / 1024 * 1024; }

// The blocks at `places`.
void run_blocks(unsigned blocks, unsigned threads) {
  unsigned bytes = machine.shared_bytes;
  for (unsigned rank = 0; rank < blocks; rank++) {
    unsigned char* shared = shared_of(rank);
    memset(shared, fresh, (unsigned long)(windows[rank] + WINDOW - shared));
  }
  for (unsigned i = 0; i < blocks * threads; i++) fibers[i].cluster_phase = 0;
  start_barriers(blocks, threads);
  run_fibers(blocks * threads, body, leave_barriers);
  if (trapped) return;
  if (waiting_fibers()) deadlock(blocks * threads);
  end_background();
  for (unsigned rank = 0; rank < blocks; rank++)
    for (unsigned char* p = shared_of(rank) + bytes; p < windows[rank] + WINDOW; p++)
      if (*p != fresh) die("shared memory was written %ld bytes past its %u", (long)(p - shared_of(rank) - bytes), bytes);
}

}  // namespace

void die(const char* format, ...) {
  va_list words;
  va_start(words, format);
  fprintf(stderr, "emulated device: ");
  vfprintf(stderr, format, words);
  fprintf(stderr, "\n");
  va_end(words);
  describe(stderr);
  abort();
}

const Launch* running() { return current_launch; }

void enter_block(unsigned rank) {
  machine.block = places[rank];
  machine.shared = shared_of(rank);
}

bool run(const Launch& launch) {
  unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  unsigned blocks = launch.kernel->cluster > 1 ? launch.kernel->cluster : 1;
  make_stacks(blocks * threads);
  for (unsigned rank = 0; rank < blocks; rank++)
    if (!windows[rank]) windows[rank] = make_window();
  current_launch = &launch;
  machine.block_size = launch.block, machine.grid_size = launch.grid;
  machine.shared_bytes = launch.shared_bytes;
  machine.suspend = suspend, machine.wake = wake, machine.pass = pass, machine.barrier = barrier;
  machine.cluster_arrive = cluster_arrive, machine.cluster_wait = cluster_wait, machine.cluster_shared = shared_of;
  machine.meet_warp = meet_warp, machine.meet_warpgroup = meet_warpgroup, machine.late = is_late();
  machine.later = later, machine.commit = commit, machine.finish = finish_background, machine.trap = trap, machine.die = die;
  trapped = false;
  number_threads(blocks, launch.block);
  for (unsigned z = 0; z < launch.grid.z && !trapped; z++)
    for (unsigned y = 0; y < launch.grid.y && !trapped; y++)
      for (unsigned x = 0; x < launch.grid.x && !trapped; x += blocks) {
        for (unsigned rank = 0; rank < blocks; rank++) places[rank] = {x + rank, y, z};
        run_blocks(blocks, threads);
      }
  current_launch = nullptr;
  return !trapped;
}

}  // namespace emulated
