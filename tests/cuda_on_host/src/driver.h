// Declarations shared by the files of the emulated driver.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <mutex>
#include <string>

#include "block.h"

namespace emulated {

// Return codes of the emulated driver, with the numbers of cuda.h.
enum Result : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  LAUNCH_OUT_OF_RESOURCES = 701,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
};

// Serializes calls.
extern std::recursive_mutex calls;
// Return code of every later call, once work on the device has failed.
extern Result sticky;
// Whether this call fails because SIDEREAL_EMULATED_FAIL asks for it, or because of an earlier failure.
Result begin(const char* name);
// Whether the driver was started, for all calls but cuInit.
extern bool initialized;

struct Settings {
  int major, minor;
  size_t memory_bytes;
};
const Settings& settings();

// --- memory
// Prints and ends the process when [address, address + bytes) is not in one allocation of the device.
void expect_device(const char* call, uint64_t address, size_t bytes);
// The same when the host's pointer is one of the device's.
void expect_host(const char* call, const void* pointer);
// Describes the allocation of an address.
std::string describe_address(uint64_t address);

// --- what leaves the device (SIDEREAL_EMULATED_COPIES)
// Whether copies to the host are noted.
bool is_noted();
// Notes bytes of the device that are copied to the host.
void note_copy(const void* from, size_t bytes);

// --- streams: runs at once, or when something waits for it (SIDEREAL_EMULATED_LATE)
struct Stream;
Result enqueue(void* stream, std::function<Result()> work);
Result finish(void* stream);
Result finish_all();

// --- faults
void catch_faults();
// Called once for each thread that runs kernels.
void make_fault_stack();

}  // namespace emulated

// Begins a driver function: takes the lock, and returns at once if the call must fail.
#define EMULATED_CALL                                             \
  std::lock_guard<std::recursive_mutex> emulated_lock(emulated::calls); \
  if (emulated::Result emulated_result = emulated::begin(__func__)) return emulated_result

#define DRIVER extern "C" __attribute__((visibility("default"))) int
