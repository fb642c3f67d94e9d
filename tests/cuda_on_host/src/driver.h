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
// Returns the code with which this call must fail (missing initialization, an earlier failure, or
// SIDEREAL_EMULATED_FAIL), or SUCCESS.
Result begin(const char* name);
// Whether cuInit was called.
extern bool initialized;

struct Settings {
  int major, minor;
  size_t memory_bytes;
};
const Settings& settings();

// --- memory
// Ends the process with a message if [address, address + bytes) is not in one allocation.
void expect_device(const char* call, uint64_t address, size_t bytes);
// Ends the process with a message if the pointer is an address of the device.
void expect_host(const char* call, const void* pointer);
// Describes the allocation of an address.
std::string describe_address(uint64_t address);

// --- log of the copies to the host (SIDEREAL_EMULATED_COPIES)
// Returns whether copies to the host are logged.
bool is_noted();
// Logs a copy to the host.
void note_copy(const void* from, size_t bytes);

// --- streams: work runs at once, or when something waits for it (SIDEREAL_EMULATED_LATE)
struct Stream;
Result enqueue(void* stream, std::function<Result()> work);
Result finish(void* stream);
Result finish_all();

// --- faults
void catch_faults();
// Must be called by each thread that runs kernels.
void make_fault_stack();

}  // namespace emulated

// Begins a driver function: takes the lock, and returns at once if the call must fail.
#define EMULATED_CALL                                             \
  std::lock_guard<std::recursive_mutex> emulated_lock(emulated::calls); \
  if (emulated::Result emulated_result = emulated::begin(__func__)) return emulated_result

#define DRIVER extern "C" __attribute__((visibility("default"))) int
