// Declarations shared by the files of the emulated driver.
#pragma once
#include <limits.h>
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
  PEER_ACCESS_UNSUPPORTED = 217,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  LAUNCH_OUT_OF_RESOURCES = 701,
  PEER_ACCESS_ALREADY_ENABLED = 704,
  PEER_ACCESS_NOT_ENABLED = 705,
  HOST_MEMORY_ALREADY_REGISTERED = 712,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
};

// Serializes calls.
extern std::recursive_mutex calls;
// Whether cuInit was called.
extern bool initialized;

// --- devices and their contexts
constexpr int MOST_DEVICES = 8;
// In place of an ordinal: for calls that concern no device, and for calls that need a current context without one.
constexpr int NO_DEVICE = INT_MIN, NO_CONTEXT = INT_MIN + 1;

struct Settings {
  int major, minor;
  size_t memory_bytes;
};
// Returns the number of devices: SIDEREAL_EMULATED_DEVICES.
int device_count();
const Settings& settings(int device);
// Returns the device of the calling thread's current context, or NO_CONTEXT.
int current_device();
// Returns the device of a retained primary context, or NO_CONTEXT.
int device_of_context(const void* context);
// Returns whether kernels of a device may access the memory of another (or of itself).
bool has_access(int device, int owner);
// Returns the code that every later call for a device returns once work on it has failed, or SUCCESS.
Result failed(int device);
// Makes every later call for a device fail.
Result fail(int device, Result result);
// Returns the code with which a call for a device must fail (missing initialization or context, an earlier failure, or
// SIDEREAL_EMULATED_FAIL), or SUCCESS.
Result begin(const char* name, int device);

// --- memory
// Ends the process with a message if [address, address + bytes) is not in one allocation of the device or of the host.
void expect_device(const char* call, int device, uint64_t address, size_t bytes);
// Ends the process with a message if the pointer is an address of the device.
void expect_host(const char* call, const void* pointer);
// Describes the allocation of an address.
std::string describe_address(uint64_t address);
// Like describe_address, for an address that could not be accessed: adds the device that had no access.
std::string describe_fault(uint64_t address);
// Tests whether an address lies in the address range of a device's memory.
bool is_device_address(uint64_t address);
// Protects the memory of all devices except those to which `device` has access, and `other`.
void show_memory(int device, int other = NO_DEVICE);

// --- log of the copies to the host (SIDEREAL_EMULATED_COPIES)
// Returns whether copies to the host are logged.
bool is_noted();
// Logs a copy to the host.
void note_copy(const void* from, size_t bytes);

// --- streams: work runs at once, or when something waits for it (SIDEREAL_EMULATED_LATE)
// Returns the device of a stream, or NO_CONTEXT if the thread has no current context.
int device_of_stream(void* stream);
// Enqueues work that accesses the memory of the stream's device.
Result enqueue(void* stream, std::function<Result()> work);
Result finish(void* stream);
// Runs all work of a device.
Result finish_all(int device);

// --- faults
void catch_faults();
// Must be called by each thread that runs kernels.
void make_fault_stack();

}  // namespace emulated

// Begins a driver function for a device: takes the lock, and returns at once if the call must fail.
#define EMULATED_CALL_FOR(device)                                       \
  std::lock_guard<std::recursive_mutex> emulated_lock(emulated::calls); \
  if (emulated::Result emulated_result = emulated::begin(__func__, device)) return emulated_result
// The same for the current device, without which the call fails.
#define EMULATED_CALL EMULATED_CALL_FOR(emulated::current_device())

#define DRIVER extern "C" __attribute__((visibility("default"))) int
