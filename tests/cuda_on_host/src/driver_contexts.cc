// Primary contexts, the current one of each thread, failures, and access of devices to the memory of others.
#include <stdlib.h>

#include "driver.h"

namespace emulated {
namespace {

struct Context {
  int retained = 0;
  // What calls return once work has failed.
  Result failure = SUCCESS;
  // Devices whose memory kernels of this one may access.
  bool peers[MOST_DEVICES] = {};
};

Context contexts[MOST_DEVICES];
thread_local int current = NO_CONTEXT;

bool are_peers(int device, int other) {
  static const bool refused = getenv("SIDEREAL_EMULATED_NO_PEER") && getenv("SIDEREAL_EMULATED_NO_PEER")[0] != '0';
  return !refused && device != other;
}

}  // namespace

int current_device() { return current >= 0 && contexts[current].retained ? current : NO_CONTEXT; }

int device_of_context(const void* context) {
  for (int device = 0; device < device_count(); device++)
    if (context == &contexts[device] && contexts[device].retained) return device;
  return NO_CONTEXT;
}

bool has_access(int device, int owner) { return device == owner || contexts[device].peers[owner]; }

Result failed(int device) { return contexts[device].failure; }

Result fail(int device, Result result) { return contexts[device].failure = result; }

}  // namespace emulated

using namespace emulated;

DRIVER cuDevicePrimaryCtxRetain(void** context, int device) {
  EMULATED_CALL_FOR(device);
  contexts[device].retained++;
  *context = &contexts[device];
  return SUCCESS;
}
DRIVER cuDevicePrimaryCtxRelease_v2(int device) {
  EMULATED_CALL_FOR(device);
  if (!contexts[device].retained) return INVALID_CONTEXT;
  Result result = finish_all(device);
  contexts[device].retained--;
  return result;
}
DRIVER cuCtxSetCurrent(void* context) {
  std::lock_guard<std::recursive_mutex> lock(calls);
  int device = context ? device_of_context(context) : NO_DEVICE;
  // Also if the device has failed: later calls must not run on the one that was current before.
  if (device != NO_CONTEXT) current = context ? device : NO_CONTEXT;
  EMULATED_CALL_FOR(device);
  return SUCCESS;
}
DRIVER cuCtxGetCurrent(void** context) {
  EMULATED_CALL_FOR(NO_DEVICE);
  int device = current_device();
  *context = device == NO_CONTEXT ? nullptr : &contexts[device];
  return SUCCESS;
}
DRIVER cuCtxGetDevice(int* device) { EMULATED_CALL; *device = current_device(); return SUCCESS; }

DRIVER cuDeviceCanAccessPeer(int* can, int device, int peer) {
  EMULATED_CALL_FOR(device);
  if (peer < 0 || peer >= device_count()) return INVALID_DEVICE;
  *can = are_peers(device, peer);
  return SUCCESS;
}
// Attributes by their numbers in cuda.h: rank of the performance, access, atomics, access to arrays.
DRIVER cuDeviceGetP2PAttribute(int* value, int attribute, int device, int peer) {
  EMULATED_CALL_FOR(device);
  if (peer < 0 || peer >= device_count() || peer == device) return INVALID_DEVICE;
  if (attribute < 1 || attribute > 4) return INVALID_VALUE;
  *value = attribute != 1 && are_peers(device, peer);
  return SUCCESS;
}
DRIVER cuCtxEnablePeerAccess(void* context, unsigned flags) {
  EMULATED_CALL;
  int device = current_device(), peer = device_of_context(context);
  if (flags) return INVALID_VALUE;
  if (peer == NO_CONTEXT || peer == device) return INVALID_CONTEXT;
  if (!are_peers(device, peer)) return PEER_ACCESS_UNSUPPORTED;
  if (contexts[device].peers[peer]) return PEER_ACCESS_ALREADY_ENABLED;
  contexts[device].peers[peer] = true;
  return SUCCESS;
}
DRIVER cuCtxDisablePeerAccess(void* context) {
  EMULATED_CALL;
  int device = current_device(), peer = device_of_context(context);
  if (peer == NO_CONTEXT) return INVALID_CONTEXT;
  if (peer == device || !contexts[device].peers[peer]) return PEER_ACCESS_NOT_ENABLED;
  if (Result result = finish_all(device)) return result;
  contexts[device].peers[peer] = false;
  return SUCCESS;
}
