// Streams and events. Work runs when it is queued, or, with SIDEREAL_EMULATED_LATE, only when something waits for it.
#include <time.h>

#include <deque>
#include <set>

#include "background.h"
#include "driver.h"

namespace emulated {

struct Stream {
  std::deque<std::function<Result()>> work;
};

namespace {

// A mark: how many times it was recorded, and which of those have passed.
struct Event {
  Stream* stream = nullptr;
  unsigned long recorded = 0, passed = 0;
  double seconds = 0;
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

// Runs a stream's work until `until` is met, or all of it.
Result drain(Stream* stream, const std::function<bool()>& until) {
  while (!stream->work.empty() && !until()) {
    auto work = std::move(stream->work.front());
    stream->work.pop_front();
    if (Result result = work()) return sticky = result;
  }
  return SUCCESS;
}

Result reach(Event* event, unsigned long record) {
  if (event->passed >= record || !event->stream) return SUCCESS;
  return drain(event->stream, [=] { return event->passed >= record; });
}

}  // namespace

Result enqueue(void* handle, std::function<Result()> work) {
  Stream* stream = stream_at(handle);
  stream->work.push_back(std::move(work));
  return is_late() ? SUCCESS : drain(stream, [] { return false; });
}

Result finish(void* handle) {
  std::lock_guard<std::recursive_mutex> lock(calls);
  return drain(stream_at(handle), [] { return false; });
}

Result finish_all() {
  for (Stream* stream : streams)
    if (Result result = drain(stream, [] { return false; })) return result;
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
  Result result = drain(stream, [] { return false; });
  for (Event* event : events)
    if (event->stream == stream) event->stream = nullptr;
  streams.erase(stream);
  delete stream;
  return result;
}
DRIVER cuStreamSynchronize(void* handle) { EMULATED_CALL; return finish(handle); }
DRIVER cuStreamQuery(void* handle) {
  EMULATED_CALL;
  return stream_at(handle)->work.empty() ? SUCCESS : NOT_READY;
}
DRIVER cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  EMULATED_CALL;
  Event* event = event_at(event_handle);
  unsigned long record = event->recorded;
  return enqueue(handle, [=] { return events.count(event) ? reach(event, record) : SUCCESS; });
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
  // Work that waits for it was promised that it would pass.
  Result result = reach(event, event->recorded);
  events.erase(event);
  delete event;
  return result;
}
DRIVER cuEventRecord(void* handle, void* stream) {
  EMULATED_CALL;
  Event* event = event_at(handle);
  unsigned long record = ++event->recorded;
  event->stream = stream_at(stream);
  return enqueue(stream, [=] {
    if (events.count(event)) event->passed = record, event->seconds = now();
    return SUCCESS;
  });
}
DRIVER cuEventSynchronize(void* handle) {
  EMULATED_CALL;
  Event* event = event_at(handle);
  return reach(event, event->recorded);
}
DRIVER cuEventQuery(void* handle) {
  EMULATED_CALL;
  Event* event = event_at(handle);
  return event->passed >= event->recorded ? SUCCESS : NOT_READY;
}
DRIVER cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
  EMULATED_CALL;
  Event *first = event_at(from), *last = event_at(to);
  if (!first->recorded || !last->recorded) return INVALID_HANDLE;
  if (first->passed < first->recorded || last->passed < last->recorded) return NOT_READY;
  *milliseconds = (float)(1e3 * (last->seconds - first->seconds));
  return SUCCESS;
}
DRIVER cuEventElapsedTime(float* milliseconds, void* from, void* to) { return cuEventElapsedTime_v2(milliseconds, from, to); }
