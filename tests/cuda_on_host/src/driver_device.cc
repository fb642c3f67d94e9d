// The devices, their answers and their failures.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "driver.h"

namespace emulated {

std::recursive_mutex calls;
bool initialized;

namespace {

// Returns the value for a device in a variable of values separated by commas, the last of which repeats; null if unset.
const char* listed(const char* variable, int device) {
  const char* text = getenv(variable);
  for (int i = 0; text && i < device && strchr(text, ','); i++) text = strchr(text, ',') + 1;
  return text;
}

}  // namespace

int device_count() {
  static const int count = [] {
    const char* text = getenv("SIDEREAL_EMULATED_DEVICES");
    char* end = nullptr;
    long number = text ? strtol(text, &end, 10) : 1;
    if (number < 1 || number > MOST_DEVICES || (text && *end)) die("SIDEREAL_EMULATED_DEVICES is %s, not 1 to %d", text, MOST_DEVICES);
    return (int)number;
  }();
  return count;
}

const Settings& settings(int device) {
  static const std::vector<Settings> found = [] {
    std::vector<Settings> all;
    for (int i = 0; i < device_count(); i++) {
      Settings settings{9, 0, 4096ull << 20};
      if (const char* text = listed("SIDEREAL_EMULATED_CAPABILITY", i)) sscanf(text, "%d.%d", &settings.major, &settings.minor);
      if (const char* text = listed("SIDEREAL_EMULATED_MEMORY_MIB", i)) settings.memory_bytes = strtoull(text, nullptr, 10) << 20;
      all.push_back(settings);
    }
    return all;
  }();
  return found[(size_t)device];
}

namespace {

// SIDEREAL_EMULATED_FAIL=name:call, name:call:code or name:call:code:device.
struct Failure {
  std::string name;
  long call = 0;
  int code = LAUNCH_FAILED;
  int device = NO_DEVICE;  // only calls for this one are counted and fail
};

const Failure& failure() {
  static const Failure found = [] {
    Failure failure;
    const char* text = getenv("SIDEREAL_EMULATED_FAIL");
    char name[128] = "";
    if (text && sscanf(text, "%127[^:]:%ld:%d:%d", name, &failure.call, &failure.code, &failure.device) >= 2) failure.name = name;
    return failure;
  }();
  return found;
}

bool is_named(const char* call, const std::string& name) {
  return name == call || (name + "_v2") == call;
}

void on_fault(int signal, siginfo_t* info, void*) {
  // A fault while one is told: there is nothing more to say.
  static volatile sig_atomic_t is_telling;
  if (is_telling) {
    ::signal(SIGABRT, SIG_DFL);
    abort();
  }
  is_telling = 1;
  uint64_t address = (uint64_t)info->si_addr;
  bool is_access = signal == SIGSEGV || signal == SIGBUS;
  // Transforms and the host fault in a device's memory too.
  if (running() || (is_access && is_device_address(address))) {
    const char* what = signal == SIGFPE ? "division by zero"
                       : signal == SIGILL ? "misaligned address, or an operation that has no meaning"
                       : is_stack_guard(info->si_addr) ? "stack of a thread overflowed"
                                                       : "illegal address";
    if (is_access) die("%s %p: %s", what, info->si_addr, describe_fault(address).c_str());
    die("%s", what);
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

// Faults are told on a stack of their own: a fiber's may be full, and the one that Rust gives its threads is too small.
void make_fault_stack() {
  thread_local std::vector<char> memory;
  if (!memory.empty()) return;
  memory.resize(256 << 10);
  stack_t stack = {};
  stack.ss_sp = memory.data(), stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

void catch_faults() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigaction(signal, &action, nullptr);
}

Result begin(const char* name, int device) {
  static long calls_of_it;
  if (!initialized && strcmp(name, "cuInit")) return NOT_INITIALIZED;
  if (device == NO_CONTEXT) return INVALID_CONTEXT;
  bool has_device = device != NO_DEVICE;
  if (has_device && (device < 0 || device >= device_count())) return INVALID_DEVICE;
  if (has_device && failed(device)) return failed(device);
  if (!failure().call || !is_named(name, failure().name)) return SUCCESS;
  if (failure().device != NO_DEVICE && failure().device != device) return SUCCESS;
  if (++calls_of_it < failure().call) return SUCCESS;
  Result result = (Result)failure().code;
  // Faults of kernels spoil the context.
  bool is_fault = result >= 700 && result < 720 && result != PEER_ACCESS_ALREADY_ENABLED && result != PEER_ACCESS_NOT_ENABLED;
  return has_device && is_fault ? fail(device, result) : result;
}

}  // namespace emulated

using namespace emulated;

DRIVER cuInit(unsigned flags) {
  EMULATED_CALL_FOR(NO_DEVICE);
  if (flags) return INVALID_VALUE;
  if (!initialized) catch_faults();
  initialized = true;
  return SUCCESS;
}
DRIVER cuDriverGetVersion(int* version) { *version = 13000; return SUCCESS; }
DRIVER cuDeviceGetCount(int* count) { EMULATED_CALL_FOR(NO_DEVICE); *count = device_count(); return SUCCESS; }
DRIVER cuDeviceGet(int* device, int ordinal) {
  EMULATED_CALL_FOR(ordinal);
  *device = ordinal;
  return SUCCESS;
}
DRIVER cuDeviceGetName(char* name, int room, int device) {
  EMULATED_CALL_FOR(device);
  snprintf(name, (size_t)room, "Emulated sm_%d%d", settings(device).major, settings(device).minor);
  return SUCCESS;
}
DRIVER cuDeviceTotalMem_v2(size_t* bytes, int device) {
  EMULATED_CALL_FOR(device);
  *bytes = settings(device).memory_bytes;
  return SUCCESS;
}
DRIVER cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  EMULATED_CALL_FOR(device);
  memset(uuid, 0xE, 16);
  uuid[15] = (unsigned char)(0xE + device);
  return SUCCESS;
}
DRIVER cuDeviceGetPCIBusId(char* text, int room, int device) {
  EMULATED_CALL_FOR(device);
  snprintf(text, (size_t)room, "0000:00:%02x.0", device);
  return SUCCESS;
}

// The attributes that mean something, by their numbers in cuda.h; all others are 1.
DRIVER cuDeviceGetAttribute(int* value, int attribute, int device) {
  EMULATED_CALL_FOR(device);
  switch (attribute) {
    case 1: *value = 1024; break;                              // threads of a block
    case 2: case 3: *value = 1024; break;                      // a block's width and height
    case 4: *value = 64; break;                                // and depth
    case 5: *value = 2147483647; break;                        // a grid's width
    case 6: case 7: *value = 65535; break;                     // its height and depth
    case 8: *value = 48 * 1024; break;                         // shared memory of a block without asking
    case 9: *value = 64 * 1024; break;                         // constant memory
    case 10: *value = 32; break;                               // threads of a warp
    case 12: *value = 65536; break;                            // registers of a block
    case 13: case 36: *value = 1000000; break;                 // clocks, in kHz
    case 16: *value = 4; break;                                // multiprocessors
    case 33: case 50: *value = 0; break;                       // PCI bus and domain
    case 34: *value = device; break;                           // PCI device
    case 37: *value = 1024; break;                             // bits of the memory's bus
    case 38: *value = 1 << 20; break;                          // bytes of level-2 cache
    case 39: *value = 2048; break;                             // threads of a multiprocessor
    case 75: *value = settings(device).major; break;
    case 76: *value = settings(device).minor; break;
    case 81: *value = (int)MOST_SHARED + 1024; break;          // shared memory of a multiprocessor
    case 82: *value = 65536; break;                            // its registers
    case 97: *value = (int)MOST_SHARED; break;                 // shared memory of a block that asks
    case 106: *value = 32; break;                              // blocks of a multiprocessor
    case 111: *value = 1024; break;                            // shared memory that the system takes of each block
    default: *value = 1;
  }
  return SUCCESS;
}

static const struct { int code; const char *name, *text; } answers[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};
DRIVER cuGetErrorName(int code, const char** name) {
  for (const auto& answer : answers)
    if (answer.code == code) return *name = answer.name, SUCCESS;
  return *name = nullptr, INVALID_VALUE;
}
DRIVER cuGetErrorString(int code, const char** text) {
  for (const auto& answer : answers)
    if (answer.code == code) return *text = answer.text, SUCCESS;
  return *text = nullptr, INVALID_VALUE;
}
