#include "barriers.h"

#include <string.h>

#include "block.h"
#include "fibers.h"

namespace emulated {
namespace {

struct NamedBarrier {
  unsigned expected, arrived;
};

// Threads with consecutive numbers that execute an instruction together: those that have come, by mask and work.
struct Meeting {
  Work work;
  unsigned mask, arrived;
};

struct Warp {
  unsigned alive, meetings;
  Meeting meeting[32];
};

struct Group {
  Work work;
  unsigned arrived;
};

struct Block {
  unsigned alive_threads;
  NamedBarrier barriers[16];
};

// The cluster's barrier: the phase that it is in, and threads that have arrived.
struct ClusterBarrier {
  unsigned phase, arrived;
};

unsigned block_threads, cluster_threads, cluster_alive;
Block blocks[MOST_BLOCKS];
ClusterBarrier cluster;
Warp warps[MOST_FIBERS / 32];
Group groups[MOST_FIBERS / 128];

unsigned number(const Fiber* fiber) { return (unsigned)(fiber - fibers); }

void open_cluster() {
  cluster.phase++, cluster.arrived = 0;
  wake(&cluster);
}

void open(NamedBarrier& barrier) {
  barrier.arrived = barrier.expected = 0;
  wake(&barrier);
}

// Executes a meeting's work when all of its lanes that still live have come; true if so.
bool complete(unsigned warp_index, unsigned index) {
  Warp& warp = warps[warp_index];
  Meeting meeting = warp.meeting[index];
  if (meeting.arrived != (meeting.mask & warp.alive)) return false;
  warp.meeting[index] = warp.meeting[--warp.meetings];
  bool present[32];
  for (unsigned lane = 0; lane < 32; lane++) present[lane] = meeting.arrived >> lane & 1;
  Fiber* first = fibers + warp_index * 32;
  meeting.work(first, present, 32);
  for (unsigned lane = 0; lane < 32; lane++)
    if (present[lane] && &first[lane] != machine.current) make_ready(&first[lane]);
  return true;
}

}  // namespace

void start_barriers(unsigned count, unsigned threads) {
  if (count > 1 && threads % 128) die("blocks of a cluster have %u threads: not a multiple of 128", threads);
  block_threads = threads, cluster_threads = cluster_alive = count * threads;
  memset(blocks, 0, sizeof blocks);
  memset(groups, 0, sizeof groups);
  cluster = {0, 0};
  for (unsigned i = 0; i < count; i++) blocks[i].alive_threads = threads;
  for (unsigned i = 0; i < (cluster_threads + 31) / 32; i++) {
    unsigned lanes = cluster_threads - i * 32;
    warps[i].alive = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    warps[i].meetings = 0;
  }
}

void cluster_arrive() {
  Fiber* self = machine.current;
  if (self->cluster_phase != cluster.phase) die("cluster_arrive: the thread has not waited since it arrived");
  self->cluster_phase++;
  if (++cluster.arrived == cluster_alive) open_cluster();
}

void cluster_wait() {
  Fiber* self = machine.current;
  if (self->cluster_phase == 0) die("cluster_wait: the thread has not arrived");
  while (cluster.phase != self->cluster_phase) suspend("cluster_wait", &cluster, self->cluster_phase);
}

void barrier(unsigned id, unsigned threads, bool wait) {
  if (id > 15) die("barrier %u: there are 0 to 15", id);
  bool whole = threads == 0;
  if (whole) threads = block_threads;
  if (!whole && threads % 32) die("barrier %u of %u threads: not a multiple of 32", id, threads);
  Block& block = blocks[machine.current->rank];
  NamedBarrier& barrier = block.barriers[id];
  if (barrier.arrived && barrier.expected != threads)
    die("barrier %u: some threads ask for %u threads and others for %u", id, barrier.expected, threads);
  barrier.expected = threads, barrier.arrived++;
  unsigned gone = whole ? block_threads - block.alive_threads : 0;
  if (barrier.arrived + gone == threads) return open(barrier);
  if (wait) suspend(id == 0 ? "__syncthreads" : "named barrier", &barrier, id);
}

void meet_warp(unsigned mask, Work work, const char* what) {
  Fiber* self = machine.current;
  unsigned warp_index = number(self) / 32, bit = 1u << self->lane, index = 0;
  if (!(mask & bit)) die("%s: lane %u is not in its own mask %#x", what, self->lane, mask);
  Warp& warp = warps[warp_index];
  while (index < warp.meetings && (warp.meeting[index].mask != mask || warp.meeting[index].work != work)) index++;
  if (index == warp.meetings) warp.meeting[warp.meetings++] = {work, mask, 0};
  warp.meeting[index].arrived |= bit;
  if (!complete(warp_index, index)) suspend(what, &warp, mask);
}

void meet_warpgroup(Work work, const char* what) {
  Fiber* self = machine.current;
  unsigned first = number(self) / 128 * 128;
  if (self->linear / 128 * 128 + 128 > block_threads) die("%s: the block has no whole warpgroup for thread %u", what, self->linear);
  Group& group = groups[first / 128];
  if (group.arrived && group.work != work) die("%s: other threads of the warpgroup execute something else", what);
  group.work = work;
  if (++group.arrived < 128) return suspend(what, &group, first);
  group.arrived = 0;
  bool present[128];
  memset(present, 1, sizeof present);
  work(fibers + first, present, 128);
  for (unsigned i = 0; i < 128; i++)
    if (&fibers[first + i] != self) make_ready(&fibers[first + i]);
}

void leave_barriers(Fiber* fiber) {
  Block& block = blocks[fiber->rank];
  block.alive_threads--, cluster_alive--;
  unsigned warp_index = number(fiber) / 32;
  Warp& warp = warps[warp_index];
  warp.alive &= ~(1u << fiber->lane);
  for (unsigned index = warp.meetings; index-- > 0;) complete(warp_index, index);
  NamedBarrier& all = block.barriers[0];
  if (all.arrived && all.expected == block_threads && all.arrived == block.alive_threads) open(all);
  if (cluster.arrived && cluster.arrived == cluster_alive) open_cluster();
}

}  // namespace emulated
