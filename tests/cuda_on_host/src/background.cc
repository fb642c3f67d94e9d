#include "background.h"

#include <stdlib.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "block.h"

namespace emulated {
namespace {

struct Job {
  void (*work)(const void*);
  std::vector<char> data;
  unsigned long group;
};

struct Queue {
  std::deque<Job> jobs;
  unsigned long groups = 0;
};

std::map<std::pair<Background, const void*>, Queue> queues;

}  // namespace

bool is_late() {
  static const bool late = getenv("SIDEREAL_EMULATED_LATE") && getenv("SIDEREAL_EMULATED_LATE")[0] != '0';
  return late;
}

void later(Background kind, const void* owner, void (*work)(const void*), const void* data, size_t bytes) {
  if (!is_late()) return work(data);
  Queue& queue = queues[{kind, owner}];
  queue.jobs.push_back({work, std::vector<char>((const char*)data, (const char*)data + bytes), queue.groups});
}

void commit(Background kind, const void* owner) {
  if (is_late()) queues[{kind, owner}].groups++;
}

void finish_background(Background kind, const void* owner, unsigned left) {
  if (!is_late()) return;
  Queue& queue = queues[{kind, owner}];
  while (!queue.jobs.empty() && (left == All || queue.jobs.front().group + left < queue.groups)) {
    Job job = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    job.work(job.data.data());
  }
}

void end_background() {
  for (auto& [name, queue] : queues) {
    if (queue.jobs.empty()) continue;
    if (name.first == Stores) finish_background(Stores, name.second, All);
    if (name.first == Loads) die("the block ended before anything waited for a bulk_load");
    if (name.first == Products) die("the block ended without wgmma_wait");
  }
  queues.clear();
}

}  // namespace emulated
