// Streams and events. Work runs when it is queued, or, with SIDEREAL_EMULATED_LATE, only when something waits for it.
#include <time.h>

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "background.h"
#include "driver.h"

namespace emulated {

struct Stream {
  int device;
  std::deque<std::function<Result()>> work;
};

namespace {

// One record of an event, which those that wait for it keep: the event may be recorded again elsewhere, or be gone.
struct Mark {
  Stream* stream;
  int device;
  bool passed = false;
  double seconds = 0;
};

struct Event {
  int device;
  std::shared_ptr<Mark> last;
};

std::map<int, Stream> default_streams;
std::set<Stream*> streams;
std::set<Event*> events;

bool is_default(void* handle) { return !handle || handle == (void*)1 || handle == (void*)2; }

Stream* default_stream(int device) { return &default_streams.try_emplace(device, Stream{device, {}}).first->second; }

Stream* stream_at(void* handle) {
  if (is_default(handle)) return default_stream(current_device());
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
void step(Stream* stream) {
  auto work = std::move(stream->work.front());
  stream->work.pop_front();
  show_memory(stream->device);
  if (Result result = work()) fail(stream->device, result);
}

// Work of a device that has failed never runs.
Result drain(Stream* stream) {
  while (!failed(stream->device) && !stream->work.empty()) step(stream);
  return failed(stream->device);
}

bool is_passed(const std::shared_ptr<Mark>& mark) { return !mark || mark->passed || failed(mark->device); }

// Runs a mark's stream as far as the mark. An event that was never recorded has passed, and so have all of a device that
// has failed: other devices go on.
void reach(const std::shared_ptr<Mark>& mark) {
  while (!is_passed(mark)) {
    if (mark->stream->work.empty()) die("an event's mark is in no stream");
    step(mark->stream);
  }
}

// Returns the device of an event, or NO_CONTEXT if the thread has no current context.
int device_of_event(void* handle) { return current_device() == NO_CONTEXT ? NO_CONTEXT : event_at(handle)->device; }

}  // namespace

int device_of_stream(void* stream) { return current_device() == NO_CONTEXT ? NO_CONTEXT : stream_at(stream)->device; }

Result enqueue(void* handle, std::function<Result()> work) {
  Stream* stream = stream_at(handle);
  stream->work.push_back(std::move(work));
  return is_late() ? SUCCESS : drain(stream);
}

Result finish(void* handle) {
  std::lock_guard<std::recursive_mutex> lock(calls);
  return drain(stream_at(handle));
}

Result finish_all(int device) {
  drain(default_stream(device));
  for (Stream* stream : streams)
    if (stream->device == device) drain(stream);
  return failed(device);
}

}  // namespace emulated

using namespace emulated;

DRIVER cuStreamCreate(void** handle, unsigned) {
  EMULATED_CALL;
  Stream* stream = new Stream{current_device(), {}};
  streams.insert(stream);
  *handle = stream;
  return SUCCESS;
}
DRIVER cuStreamCreateWithPriority(void** handle, unsigned flags, int) { return cuStreamCreate(handle, flags); }
DRIVER cuStreamDestroy_v2(void* handle) {
  EMULATED_CALL_FOR(device_of_stream(handle));
  Stream* stream = stream_at(handle);
  Result result = drain(stream);
  streams.erase(stream);
  delete stream;
  return result;
}
DRIVER cuStreamSynchronize(void* handle) { EMULATED_CALL_FOR(device_of_stream(handle)); return finish(handle); }
// Who asks again and again gets further each time.
DRIVER cuStreamQuery(void* handle) {
  EMULATED_CALL_FOR(device_of_stream(handle));
  Stream* stream = stream_at(handle);
  if (stream->work.empty()) return SUCCESS;
  step(stream);
  return failed(stream->device) ? failed(stream->device) : NOT_READY;
}
// The event may be of another device.
DRIVER cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  EMULATED_CALL_FOR(device_of_stream(handle));
  return enqueue(handle, [mark = event_at(event_handle)->last] {
    reach(mark);
    return SUCCESS;
  });
}
DRIVER cuCtxSynchronize() { EMULATED_CALL; return finish_all(current_device()); }

DRIVER cuEventCreate(void** handle, unsigned) {
  EMULATED_CALL;
  Event* event = new Event{current_device(), {}};
  events.insert(event);
  *handle = event;
  return SUCCESS;
}
DRIVER cuEventDestroy_v2(void* handle) {
  EMULATED_CALL_FOR(device_of_event(handle));
  Event* event = event_at(handle);
  events.erase(event);
  delete event;
  return SUCCESS;
}
DRIVER cuEventRecord(void* handle, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  int device = device_of_stream(stream);
  if (event_at(handle)->device != device) return INVALID_HANDLE;
  auto mark = std::make_shared<Mark>(Mark{stream_at(stream), device});
  event_at(handle)->last = mark;
  return enqueue(stream, [mark] {
    mark->passed = true, mark->seconds = now();
    return SUCCESS;
  });
}
DRIVER cuEventSynchronize(void* handle) {
  EMULATED_CALL_FOR(device_of_event(handle));
  reach(event_at(handle)->last);
  return failed(device_of_event(handle));
}
DRIVER cuEventQuery(void* handle) {
  EMULATED_CALL_FOR(device_of_event(handle));
  auto mark = event_at(handle)->last;
  if (is_passed(mark)) return SUCCESS;
  step(mark->stream);
  return failed(mark->device) ? failed(mark->device) : NOT_READY;
}
DRIVER cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
  EMULATED_CALL_FOR(device_of_event(to));
  if (event_at(from)->device != event_at(to)->device) return INVALID_HANDLE;
  auto first = event_at(from)->last, last = event_at(to)->last;
  if (!first || !last) return INVALID_HANDLE;
  if (!first->passed || !last->passed) return NOT_READY;
  *milliseconds = (float)(1e3 * (last->seconds - first->seconds));
  return SUCCESS;
}
DRIVER cuEventElapsedTime(float* milliseconds, void* from, void* to) { return cuEventElapsedTime_v2(milliseconds, from, to); }

// For the emulated cuFFT: runs work that accesses the memory of a device, after the earlier work of a stream.
DRIVER emulated_run_in(int device, void* stream, void (*work)(void*), void* data) {
  std::unique_lock<std::recursive_mutex> lock(calls);
  if (Result result = begin(__func__, device_of_stream(stream))) return result;
  if (current_device() != device || device_of_stream(stream) != device) return INVALID_DEVICE;
  if (Result result = finish(stream)) return result;
  show_memory(device);
  // The memory of an only device is never protected, so that transforms of several threads can run at a time.
  if (device_count() == 1) lock.unlock();
  work(data);
  return SUCCESS;
}
