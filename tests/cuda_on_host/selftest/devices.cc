// Tests what several emulated devices do to each other, or lets one of them fail: devices FOLDER [FAULT].
#include <complex>
#include <memory>
#include <set>
#include <thread>

#include "device.h"

typedef std::complex<float> Single;

extern "C" {
int cuDeviceGet(int*, int);
int cuDeviceGetCount(int*);
int cuDeviceGetName(char*, int, int);
int cuDeviceGetUuid_v2(unsigned char*, int);
int cuDeviceGetPCIBusId(char*, int, int);
int cuDeviceTotalMem_v2(size_t*, int);
int cuDeviceCanAccessPeer(int*, int, int);
int cuDeviceGetP2PAttribute(int*, int, int, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxGetCurrent(void**);
int cuCtxGetDevice(int*);
int cuCtxEnablePeerAccess(void*, unsigned);
int cuCtxDisablePeerAccess(void*);
int cuMemGetInfo_v2(size_t*, size_t*);
int cuMemHostAlloc(void**, size_t, unsigned);
int cuMemFreeHost(void*);
int cuMemHostRegister_v2(void*, size_t, unsigned);
int cuMemHostUnregister(void*);
int cuMemcpyHtoDAsync_v2(uint64_t, const void*, size_t, void*);
int cuMemcpyDtoHAsync_v2(void*, uint64_t, size_t, void*);
int cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, void*);
int cuMemcpyPeer(uint64_t, void*, uint64_t, void*, size_t);
int cuMemcpyPeerAsync(uint64_t, void*, uint64_t, void*, size_t, void*);
int cuMemcpy3DPeerAsync(const void*, void*);
int cuMemsetD8Async(uint64_t, unsigned char, size_t, void*);
int cuStreamDestroy_v2(void*);
int cuEventElapsedTime_v2(float*, void*, void*);
int cufftPlan1d(int*, int, int, int);
int cufftSetStream(int, void*);
int cufftExecC2C(int, Single*, Single*, int);
}

constexpr int OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, PEER_ACCESS_UNSUPPORTED = 217,
              INVALID_HANDLE = 400, PEER_ACCESS_ALREADY_ENABLED = 704, PEER_ACCESS_NOT_ENABLED = 705, ALREADY_REGISTERED = 712,
              LAUNCH_FAILED = 719, FFT_INVALID_DEVICE = 11, C2C = 0x29, FORWARD = -1;
constexpr size_t MEBIBYTE = 1 << 20;

static int count() {
  int devices = 0;
  cuInit(0), cuDeviceGetCount(&devices);
  return devices;
}
static size_t free_bytes() {
  size_t free = 0, total = 0;
  cuMemGetInfo_v2(&free, &total);
  return free;
}
static int device_of(uint64_t address) {
  int device = -1;
  cuPointerGetAttribute(&device, 9, address);
  return device;
}
static uint32_t word_at(uint64_t address) { return download<uint32_t>(address, 1)[0]; }

static void properties() {
  std::set<std::string> buses, uuids;
  for (int i = 0; i < count(); i++) {
    int device = -1, major = 0, minor = 0, bus_device = -1;
    char bus[32], name[32], expected[32], uuid[16];
    cuDeviceGet(&device, i), cuDeviceGetAttribute(&major, 75, i), cuDeviceGetAttribute(&minor, 76, i), cuDeviceGetAttribute(&bus_device, 34, i);
    cuDeviceGetPCIBusId(bus, sizeof bus, i), cuDeviceGetUuid_v2((unsigned char*)uuid, i), cuDeviceGetName(name, sizeof name, i);
    buses.insert(bus), uuids.insert(std::string(uuid, 16));
    snprintf(expected, sizeof expected, "Emulated sm_%d%d", major, minor);
    expect(device == i && bus_device == i && std::string(name) == expected, "a device has its number and its name");
  }
  expect((int)buses.size() == count() && (int)uuids.size() == count(), "PCI addresses and UUIDs differ");
  int device = 0;
  char text[32];
  expect(cuDeviceGet(&device, count()) == INVALID_DEVICE && cuDeviceGetName(text, 32, -1) == INVALID_DEVICE, "other devices are refused");
}

// Without a current context, calls that need one are refused, on each thread for itself.
static void contexts(Device& device) {
  void *stream, *event, *current = &current, *unknown = &current;
  cuStreamCreate(&stream, 1), cuEventCreate(&event, 0);
  std::thread([&] {
    uint64_t address = 0;
    int ordinal;
    void* made;
    uint32_t value = 0;
    size_t bytes;
    expect(cuCtxGetCurrent(&current) == 0 && !current && cuCtxGetDevice(&ordinal) == INVALID_CONTEXT, "a new thread has no context");
    bool refused = cuMemAlloc_v2(&address, 8) == INVALID_CONTEXT && cuStreamCreate(&made, 1) == INVALID_CONTEXT;
    refused &= cuEventCreate(&made, 0) == INVALID_CONTEXT && cuCtxSynchronize() == INVALID_CONTEXT && cuMemGetInfo_v2(&bytes, &bytes) == INVALID_CONTEXT;
    refused &= cuStreamSynchronize(stream) == INVALID_CONTEXT && cuEventRecord(event, stream) == INVALID_CONTEXT && cuEventQuery(event) == INVALID_CONTEXT;
    refused &= cuMemcpyHtoD_v2(address, &value, 4) == INVALID_CONTEXT && cuMemHostAlloc(&made, 8, 0) == INVALID_CONTEXT;
    refused &= cuModuleGetFunction(&made, device.module, "twice") == INVALID_CONTEXT && cuCtxEnablePeerAccess(device.context, 0) == INVALID_CONTEXT;
    expect(refused, "calls without a context are refused");
    expect(cuCtxSetCurrent(unknown) == INVALID_CONTEXT, "an unknown context is refused");
    expect(device.bind() == 0 && cuMemAlloc_v2(&address, 8) == 0 && cuMemFree_v2(address) == 0, "a context is usable from another thread");
    expect(cuCtxSetCurrent(nullptr) == 0 && cuCtxGetDevice(&ordinal) == INVALID_CONTEXT, "a context is given up");
  }).join();
  expect(cuCtxGetCurrent(&current) == 0 && current == device.context, "other threads keep theirs");
}

// No device is a peer of its own.
static void itself(Device& device) {
  int can = -1;
  expect(cuDeviceCanAccessPeer(&can, 0, 0) == 0 && can == 0 && cuDeviceGetP2PAttribute(&can, 2, 0, 0) == INVALID_DEVICE, "a device is not its own peer");
  expect(cuCtxEnablePeerAccess(device.context, 0) == INVALID_CONTEXT, "access to itself is refused");
  uint64_t from = upload(std::vector<uint32_t>{5}), to = upload(std::vector<uint32_t>{0});
  expect(cuMemcpyPeer(to, device.context, from, device.context, 4) == 0 && word_at(to) == 5, "a peer copy may stay on its device");
}

static void host_memory() {
  std::vector<char> memory(1 << 16);
  expect(cuMemHostRegister_v2(&memory[4096], 8192, 1) == 0, "memory is registered");
  expect(cuMemHostRegister_v2(&memory[8192], 4096, 1) == ALREADY_REGISTERED, "memory is registered once");
  expect(cuMemHostRegister_v2(&memory[0], 4097, 1) == ALREADY_REGISTERED, "also where only the end is registered");
  expect(cuMemHostUnregister(&memory[4096]) == 0, "memory is unregistered");
}

static void memory(Device& first, Device& second) {
  first.bind();
  size_t free_of_first = free_bytes();
  second.bind();
  size_t free_of_second = free_bytes();
  uint64_t address = 0;
  cuMemAlloc_v2(&address, 3 * MEBIBYTE);
  expect(free_bytes() == free_of_second - 3 * MEBIBYTE && device_of(address) == 1, "memory is the current device's");
  first.bind();
  expect(free_bytes() == free_of_first, "other devices keep their memory");
  expect(cuMemFree_v2(address) == 0 && free_bytes() == free_of_first, "memory is freed from another context");
  second.bind();
  expect(free_bytes() == free_of_second, "its device has it again");
  void* pinned = nullptr;
  first.bind(), cuMemHostAlloc(&pinned, 64, 0), second.bind();
  uint64_t there = upload(std::vector<uint32_t>{9});
  void* stream;
  cuStreamCreate(&stream, 1);
  expect(cuMemcpyDtoHAsync_v2(pinned, there, 4, stream) == 0 && cuStreamSynchronize(stream) == 0 && *(uint32_t*)pinned == 9, "all devices copy to page-locked memory");
  expect(device_of((uint64_t)pinned) == 0 && cuMemFreeHost(pinned) == 0, "page-locked memory has the device that it was made on");
}

static void handles(Device& first, Device& second) {
  void *stream, *other_stream, *event, *other_event;
  second.bind(), cuStreamCreate(&other_stream, 1), cuEventCreate(&other_event, 0);
  first.bind(), cuStreamCreate(&stream, 1), cuEventCreate(&event, 0);
  uint64_t x = upload(std::vector<uint32_t>{3});
  expect(first.launch_in(other_stream, "twice", 1, 1, 0, x) == INVALID_HANDLE, "a launch in another device's stream is refused");
  expect(second.launch("twice", 1, 1, 0, x) == INVALID_HANDLE, "a launch of another device's kernel is refused");
  second.bind();
  expect(first.launch_in(stream, "twice", 1, 1, 0, x) == INVALID_HANDLE, "a launch under another device's context is refused");
  first.bind();
  expect(cuEventRecord(other_event, stream) == INVALID_HANDLE && cuEventRecord(event, other_stream) == INVALID_HANDLE, "an event is recorded on its device only");
  expect(cuEventRecord(event, stream) == 0 && cuEventRecord(other_event, other_stream) == 0, "events of both devices are recorded");
  float milliseconds;
  expect(cuEventSynchronize(other_event) == 0 && cuEventSynchronize(event) == 0, "events are waited for under any context");
  expect(cuEventElapsedTime_v2(&milliseconds, event, other_event) == INVALID_HANDLE, "no time between events of two devices");
  expect(cuStreamSynchronize(other_stream) == 0 && cuStreamDestroy_v2(other_stream) == 0, "streams are waited for and destroyed under any context");
}

// Work of one device after work of the other, which its stream waits for, and copies between them.
static void order(Device& first, Device& second) {
  void *stream, *other_stream, *doubled, *copied;
  second.bind(), cuStreamCreate(&other_stream, 1), cuEventCreate(&copied, 0);
  uint64_t y = upload(std::vector<uint32_t>{0});
  first.bind(), cuStreamCreate(&stream, 1), cuEventCreate(&doubled, 0);
  uint64_t x = upload(std::vector<uint32_t>{3});
  bool good = true;
  for (uint32_t expected : {7u, 15u, 31u}) {
    first.bind(), first.launch_in(stream, "twice", 1, 1, 0, x), cuEventRecord(doubled, stream);
    second.bind(), cuStreamWaitEvent(other_stream, doubled, 0);
    good &= cuMemcpyPeerAsync(y, second.context, x, first.context, 4, other_stream) == 0;
    second.launch_in(other_stream, "one_more", 1, 1, 0, y), cuEventRecord(copied, other_stream);
    first.bind(), cuStreamWaitEvent(stream, copied, 0);
    good &= cuMemcpyPeerAsync(x, first.context, y, second.context, 4, stream) == 0 && cuStreamSynchronize(stream) == 0;
    good &= word_at(x) == expected;
  }
  expect(good, "devices wait for each other's events and copies");
  expect(cuMemcpyPeerAsync(y, second.context, x, &good, 4, stream) == INVALID_CONTEXT, "a copy needs the contexts of both");
}

// The driver's description of a copy of boxes, as cuda.h lays it out.
struct End {
  size_t x, y, z, lod;
  unsigned kind;
  void* host;
  uint64_t device;
  void *array, *context;
  size_t pitch, height;
};
struct Boxes {
  End from, to;
  size_t bytes, rows, layers;
};
static End end_of(Device& device, uint64_t address, size_t pitch, size_t height) {
  return {0, 0, 0, 0, 2, nullptr, address, nullptr, device.context, pitch, height};
}

// Rows of 8 bytes are copied from rows of 12 bytes to rows of 16 bytes of the other device.
static void boxes(Device& first, Device& second) {
  void *stream, *other_stream, *doubled;
  second.bind(), cuStreamCreate(&other_stream, 1);
  uint64_t y = upload(std::vector<uint32_t>(32, 7));
  first.bind(), cuStreamCreate(&stream, 1), cuEventCreate(&doubled, 0);
  std::vector<uint32_t> words(18), expected(32, 7);
  for (uint32_t i = 0; i < 18; i++) words[i] = i;
  uint64_t x = upload(words);
  first.launch_in(stream, "one_more", 1, 1, 0, x), cuEventRecord(doubled, stream);
  Boxes all{end_of(first, x, 12, 3), end_of(second, y, 16, 4), 8, 2, 2};
  all.from.y = 1, all.from.x = 4, all.to.x = 8;
  for (int layer = 0; layer < 2; layer++)
    for (int row = 0; row < 2; row++)
      for (int word = 0; word < 2; word++) expected[16 * layer + 4 * row + 2 + word] = words[9 * layer + 3 * (row + 1) + 1 + word];
  second.bind(), cuStreamWaitEvent(other_stream, doubled, 0);
  expect(cuMemcpy3DPeerAsync(&all, other_stream) == 0 && cuStreamSynchronize(other_stream) == 0, "boxes are copied between devices");
  expect(download<uint32_t>(y, 32) == expected, "and nothing else");
  Boxes odd = all;
  odd.to.pitch = 4;
  expect(cuMemcpy3DPeerAsync(&odd, other_stream) == 1, "rows that overlap are refused");
  odd = all, odd.from.context = &odd;
  expect(cuMemcpy3DPeerAsync(&odd, other_stream) == INVALID_CONTEXT, "and a copy without a context");
}

static void synchronized(Device& first, Device& second) {
  void* stream;
  first.bind(), cuStreamCreate(&stream, 1);
  uint32_t* pinned;
  cuMemHostAlloc((void**)&pinned, 4, 0);
  *pinned = 0;
  uint64_t x = upload(std::vector<uint32_t>{3});
  first.launch_in(stream, "twice", 1, 1, 0, x), cuMemcpyDtoHAsync_v2(pinned, x, 4, stream);
  second.bind(), cuCtxSynchronize();
  const char* late = getenv("SIDEREAL_EMULATED_LATE");
  expect(*pinned == (late ? 0 : 6), "a device waits for its own streams only");
  first.bind(), cuCtxSynchronize();
  expect(*pinned == 6, "the other waits for its own");
}

static void access(Device& first, Device& second) {
  int can = 0, supported = 0;
  cuDeviceCanAccessPeer(&can, 0, 1), cuDeviceGetP2PAttribute(&supported, 2, 0, 1);
  second.bind();
  uint64_t x = upload(std::vector<float>(100, 2));
  first.bind();
  uint64_t y = upload(std::vector<float>(100, 1));
  expect(cuCtxDisablePeerAccess(second.context) == PEER_ACCESS_NOT_ENABLED, "access that was not enabled is not disabled");
  if (getenv("SIDEREAL_EMULATED_NO_PEER")) {
    expect(!can && !supported && cuCtxEnablePeerAccess(second.context, 0) == PEER_ACCESS_UNSUPPORTED, "no device has access to another");
    return;
  }
  expect(can && supported, "a device can access the other's memory");
  expect(cuCtxEnablePeerAccess(second.context, 1) == 1, "flags are refused");
  expect(cuCtxEnablePeerAccess(second.context, 0) == 0 && cuCtxEnablePeerAccess(second.context, 0) == PEER_ACCESS_ALREADY_ENABLED, "access is enabled once");
  bool good = first.launch("saxpy", 1, 128, 0, 3.0f, x, y, 100u) == 0;
  for (float value : download<float>(y, 100)) good &= value == 7;
  expect(good, "a kernel reads the other's memory");
  // The other device has no access, and its work comes in between.
  second.bind(), second.launch("saxpy", 1, 128, 0, 1.0f, x, x, 100u);
  expect(download<float>(x, 100)[99] == 4, "the other device reads its own");
  first.bind();
  expect(cuCtxDisablePeerAccess(second.context) == 0 && cuCtxEnablePeerAccess(second.context, 0) == 0, "access is disabled and enabled again");
  cuCtxDisablePeerAccess(second.context);
}

static void transforms(Device& first, Device& second) {
  int plan = 0, other_plan = 0;
  first.bind(), cufftPlan1d(&plan, 8, C2C, 1);
  uint64_t x = upload(std::vector<Single>(8, 1));
  second.bind(), cufftPlan1d(&other_plan, 8, C2C, 1);
  uint64_t y = upload(std::vector<Single>(8, 2));
  void *stream, *other_stream;
  cuStreamCreate(&other_stream, 1), cufftSetStream(other_plan, other_stream);
  expect(cufftExecC2C(plan, (Single*)y, (Single*)y, FORWARD) == FFT_INVALID_DEVICE, "a plan runs on its device only");
  bool good = cufftExecC2C(other_plan, (Single*)y, (Single*)y, FORWARD) == 0 && download<Single>(y, 1)[0] == Single(16);
  first.bind(), cuStreamCreate(&stream, 1), cufftSetStream(plan, other_stream);
  expect(cufftExecC2C(plan, (Single*)x, (Single*)x, FORWARD) == FFT_INVALID_DEVICE, "and in a stream of its device");
  cufftSetStream(plan, stream);
  good &= cufftExecC2C(plan, (Single*)x, (Single*)x, FORWARD) == 0 && download<Single>(x, 1)[0] == Single(8);
  expect(good, "transforms run on both devices");
}

// Two threads drive a device each.
static void threads(Device& first, Device& second) {
  bool good[2] = {};
  auto drive = [&](Device& device, bool& same) {
    device.bind();
    void* stream;
    cuStreamCreate(&stream, 1);
    uint64_t x = upload(std::vector<uint32_t>{0});
    for (int i = 0; i < 200; i++) device.launch_in(stream, "one_more", 1, 1, 0, x);
    same = cuStreamSynchronize(stream) == 0 && word_at(x) == 200;
  };
  std::thread one([&] { drive(first, good[0]); }), two([&] { drive(second, good[1]); });
  one.join(), two.join();
  expect(good[0] && good[1], "two threads drive a device each");
}

// With cuLaunchKernel:2:719:1, the second launch on device 1 fails, and only that device.
static void lost(Device& first, Device& second) {
  bool good = true;
  void *stream, *other_stream, *event, *other_event;
  second.bind(), cuStreamCreate(&other_stream, 1), cuEventCreate(&other_event, 0);
  uint64_t y = upload(std::vector<uint32_t>{3});
  first.bind(), cuStreamCreate(&stream, 1), cuEventCreate(&event, 0);
  uint64_t x = upload(std::vector<uint32_t>{3});
  for (int i = 0; i < 4; i++) good &= first.launch_in(stream, "one_more", 1, 1, 0, x) == 0;
  second.bind();
  good &= second.launch_in(other_stream, "twice", 1, 1, 0, y) == 0 && cuEventRecord(other_event, other_stream) == 0;
  expect(good, "launches on the other device are not counted");
  expect(second.launch_in(other_stream, "twice", 1, 1, 0, y) == LAUNCH_FAILED && cuCtxSynchronize() == LAUNCH_FAILED, "the device fails");
  uint64_t more = 0;
  expect(second.bind() == LAUNCH_FAILED && cuMemAlloc_v2(&more, 4) == LAUNCH_FAILED, "and all that is asked of it");
  first.bind();
  expect(cuStreamSynchronize(other_stream) == LAUNCH_FAILED && cuEventQuery(other_event) == LAUNCH_FAILED, "also under the other's context");
  expect(cuMemcpyPeerAsync(x, first.context, y, second.context, 4, stream) == LAUNCH_FAILED, "and copies from it");
  Boxes rows{end_of(second, y, 4, 1), end_of(first, x, 4, 1), 4, 1, 1};
  expect(cuMemcpy3DPeerAsync(&rows, stream) == LAUNCH_FAILED, "of rows too");
  expect(cuStreamWaitEvent(stream, other_event, 0) == 0, "its events are not waited for");
  expect(first.launch_in(stream, "twice", 1, 1, 0, x) == 0 && cuStreamSynchronize(stream) == 0 && word_at(x) == 14, "the other device goes on");
  expect(cuMemFree_v2(x) == 0 && cuMemAlloc_v2(&x, 4) == 0, "and has its memory");
}

// Ends in a message, or returns.
static int fault(Device& first, Device& second, const std::string& name) {
  void* stream;
  second.bind();
  uint64_t y = upload(std::vector<uint32_t>(64));
  first.bind(), cuStreamCreate(&stream, 1);
  uint64_t x = upload(std::vector<uint32_t>(64));
  uint32_t value = 0;
  if (name == "no_access") return first.launch("twice", 1, 1, 0, y) + cuCtxSynchronize();
  if (name == "access_ended") {
    cuCtxEnablePeerAccess(second.context, 0), first.launch("twice", 1, 1, 0, y), cuCtxDisablePeerAccess(second.context);
    return first.launch("twice", 1, 1, 0, y) + cuCtxSynchronize();
  }
  if (name == "copy_in") return cuMemcpyHtoDAsync_v2(y, &value, 4, stream);
  if (name == "copy_out") return cuMemcpyDtoH_v2(&value, y, 4);
  if (name == "copy_across") return cuMemcpyDtoDAsync_v2(x, y, 4, stream);
  if (name == "fill") return cuMemsetD8Async(y, 0, 4, stream);
  if (name == "forgotten_wait") {
    // The copy must wait for an event after the kernels.
    void* other_stream;
    second.bind(), cuStreamCreate(&other_stream, 1), first.bind();
    first.launch_in(stream, "one_more", 1, 1, 0, x);
    cuMemcpyPeerAsync(y, second.context, x, first.context, 4, other_stream), cuStreamSynchronize(other_stream);
    second.bind();
    return printf("copied %u\n", word_at(y));
  }
  if (name == "other_owner") return cuMemcpyPeerAsync(x, second.context, y, first.context, 4, stream);
  if (name == "other_rows") {
    Boxes all{end_of(second, x, 8, 2), end_of(first, y, 8, 2), 4, 2, 1};
    return cuMemcpy3DPeerAsync(&all, stream);
  }
  if (name == "freed") {
    // The copy is in a stream of another device than the freed memory's.
    cuMemcpyPeerAsync(x, first.context, y, second.context, 4, stream), cuMemFree_v2(y);
    return cuStreamSynchronize(stream);
  }
  if (name == "transform") {
    int plan = 0;
    cufftPlan1d(&plan, 8, C2C, 1);
    return cufftExecC2C(plan, (Single*)y, (Single*)y, FORWARD);
  }
  if (name == "full") {
    uint64_t more = 0, rest = 0;
    expect(cuMemAlloc_v2(&more, 2 * MEBIBYTE) == 0, "memory of the first device is left");
    second.bind();
    expect(cuMemAlloc_v2(&rest, 2 * MEBIBYTE) == OUT_OF_MEMORY, "the second is full");
    size_t bytes = 0;
    expect(cuDeviceTotalMem_v2(&bytes, 1) == 0 && bytes == MEBIBYTE, "a device has its own size");
  }
  if (name == "kinds") {
    void* module;
    expect(first.is_hopper && !second.is_hopper, "devices have their own capability");
    second.bind();
    expect(cuModuleLoadData(&module, first.image.data()) == NO_BINARY_FOR_GPU, "the second refuses the first's kernels");
    expect(second.launch("one_more", 1, 1, 0, y) == 0 && word_at(y) == 1, "and runs its own");
  }
  if (name == "lost") lost(first, second);
  return failures != 0;
}

int main(int arguments, char** words) {
  Device first(words[1], 0);
  properties(), contexts(first), itself(first), host_memory();
  if (count() > 1) {
    Device second(words[1], 1);
    if (arguments > 2) return fault(first, second, words[2]);
    memory(first, second), handles(first, second), order(first, second), boxes(first, second), synchronized(first, second), access(first, second);
    transforms(first, second), threads(first, second);
  }
  first.bind();
  expect(cuDevicePrimaryCtxRelease_v2(0) == 0 && cuCtxSynchronize() == INVALID_CONTEXT, "a released context is refused");
  expect(cuDevicePrimaryCtxRelease_v2(0) == INVALID_CONTEXT, "and is released once");
  printf("%d failures\n", failures);
  return failures != 0;
}
