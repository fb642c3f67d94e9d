// Streams and events. Work runs when it is queued, or, with SIDEREAL_EMULATED_LATE, only when something waits for it.
#include <time.h>

#include <deque>
#include <memory>
#include <set>

#include "background.h"
#include "driver.h"

namespace emulated {

struct Stream {
  std::deque<std::function<Result()>> work;
};

namespace {

// One record of an event, which those that wait for it keep: the event may be recorded again elsewhere, or be gone.
struct Mark {
  Stream* stream;
  bool passed = false;
  double seconds = 0;
};

struct Event {
  std::shared_ptr<Mark> last;
};

Stream default_stream;
std::set<Stream*> streams{&default_stream};
std::set<Event*> events;

Stream* stream_at(void* handle) {
  if (!handle || handle == (void*)1 || handle == (void*)2) return &default_stream;
  if (!streams.count((Stream*)handle)) die("%p is not a stream", handle);
  return (Stream*)handle;
}

Event* event_at(void* handle) {
  if (!events.count((Event*)handle)) die("%p is not an event", handle);
  return (Event*)handle;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Runs the first of a stream's work.
Result step(Stream* stream) {
  auto work = std::move(stream->work.front());
  stream->work.pop_front();
  if (Result result = work()) return sticky = result;
  return SUCCESS;
}

Result drain(Stream* stream) {
  while (!stream->work.empty())
    if (Result result = step(stream)) return result;
  return SUCCESS;
}

// Runs a mark's stream as far as the mark; an event that was never recorded has passed.
Result reach(const std::shared_ptr<Mark>& mark) {
  while (mark && !mark->passed) {
    if (mark->stream->work.empty()) die("an event's mark is in no stream");
    if (Result result = step(mark->stream)) return result;
  }
  return SUCCESS;
}

}  // namespace

Result enqueue(void* handle, std::function<Result()> work) {
  Stream* stream = stream_at(handle);
  stream->work.push_back(std::move(work));
  return is_late() ? SUCCESS : drain(stream);
}

Result finish(void* handle) {
  std::lock_guard<std::recursive_mutex> lock(calls);
  return drain(stream_at(handle));
}

Result finish_all() {
  for (Stream* stream : streams)
    if (Result result = drain(stream)) return result;
  return SUCCESS;
}

}  // namespace emulated

using namespace emulated;

DRIVER cuStreamCreate(void** handle, unsigned) {
  EMULATED_CALL;
  Stream* stream = new Stream;
  streams.insert(stream);
  *handle = stream;
  return SUCCESS;
}
DRIVER cuStreamCreateWithPriority(void** handle, unsigned flags, int) { return cuStreamCreate(handle, flags); }
DRIVER cuStreamDestroy_v2(void* handle) {
  EMULATED_CALL;
  Stream* stream = stream_at(handle);
  Result result = drain(stream);
  streams.erase(stream);
  delete stream;
  return result;
}
DRIVER cuStreamSynchronize(void* handle) { EMULATED_CALL; return finish(handle); }
// Who asks again and again gets further each time.
DRIVER cuStreamQuery(void* handle) {
  EMULATED_CALL;
  Stream* stream = stream_at(handle);
  if (stream->work.empty()) return SUCCESS;
  Result result = step(stream);
  return result ? result : NOT_READY;
}
DRIVER cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  EMULATED_CALL;
  return enqueue(handle, [mark = event_at(event_handle)->last] { return reach(mark); });
}
DRIVER cuCtxSynchronize() { EMULATED_CALL; return finish_all(); }

DRIVER cuEventCreate(void** handle, unsigned) {
  EMULATED_CALL;
  Event* event = new Event;
  events.insert(event);
  *handle = event;
  return SUCCESS;
}
DRIVER cuEventDestroy_v2(void* handle) {
  EMULATED_CALL;
  Event* event = event_at(handle);
  events.erase(event);
  delete event;
  return SUCCESS;
}
DRIVER cuEventRecord(void* handle, void* stream) {
  EMULATED_CALL;
  auto mark = std::make_shared<Mark>(Mark{stream_at(stream)});
  event_at(handle)->last = mark;
  return enqueue(stream, [mark] {
    mark->passed = true, mark->seconds = now();
    return SUCCESS;
  });
}
DRIVER cuEventSynchronize(void* handle) {
  EMULATED_CALL;
  return reach(event_at(handle)->last);
}
DRIVER cuEventQuery(void* handle) {
  EMULATED_CALL;
  auto mark = event_at(handle)->last;
  if (!mark || mark->passed) return SUCCESS;
  Result result = step(mark->stream);
  return result ? result : NOT_READY;
}
DRIVER cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
  EMULATED_CALL;
  auto first = event_at(from)->last, last = event_at(to)->last;
  if (!first || !last) return INVALID_HANDLE;
  if (!first->passed || !last->passed) return NOT_READY;
  *milliseconds = (float)(1e3 * (last->seconds - first->seconds));
  return SUCCESS;
}
DRIVER cuEventElapsedTime(float* milliseconds, void* from, void* to) { return cuEventElapsedTime_v2(milliseconds, from, to); }
