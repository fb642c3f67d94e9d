// Memory: every allocation ends at a page that can't be touched, and freed ones are never used again. While work of one
// device runs, the memory of devices that it may not access can't be touched either.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <map>

#include "driver.h"

namespace emulated {
namespace {

constexpr uint64_t PAGE = 4096, ARENA_BYTES = 1ull << 42;
// The rest of larger ones is left zero, unless copies are noted.
constexpr size_t MOST_FILLED = 64u << 20;
struct Allocation {
  size_t asked, pages;
  uint64_t begin;
};
struct HostAllocation {
  size_t bytes;
  int device;  // current when it was made; every device may copy from and to it
};
// Memory of a device, in address space of its own.
struct Arena {
  uint64_t begin = 0, used = 0;
  size_t used_bytes = 0;
  bool is_shown = true;
};
std::map<uint64_t, Allocation> allocations;
std::map<uint64_t, HostAllocation> host_allocations;
Arena arenas[MOST_DEVICES];
// Device whose memory is shown.
int shown = NO_DEVICE;

uint64_t up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

void make_arena(Arena& arena) {
  if (arena.begin) return;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  uint64_t wanted = 0x200000000000 + (uint64_t)(&arena - arenas) * ARENA_BYTES;
  void* got = mmap((void*)wanted, ARENA_BYTES, PROT_NONE, flags, -1, 0);
  if (got == MAP_FAILED) die("no address space for the device's memory");
  arena.begin = (uint64_t)got;
}

// Returns the device in whose arena an address lies, or NO_DEVICE.
int owner_of(uint64_t address) {
  for (int device = 0; device < device_count(); device++)
    if (arenas[device].begin && address - arenas[device].begin < ARENA_BYTES) return device;
  return NO_DEVICE;
}

// Returns the allocation that contains an address, or the end.
template <class All, class Bytes> auto find_in(const All& all, uint64_t address, Bytes bytes) {
  auto next = all.upper_bound(address);
  return next != all.begin() && address - (--next)->first < bytes(next->second) ? next : all.end();
}
auto find_allocation(uint64_t address) {
  return find_in(allocations, address, [](const Allocation& allocation) { return allocation.asked; });
}
auto find_host(uint64_t address) {
  return find_in(host_allocations, address, [](const HostAllocation& allocation) { return allocation.bytes; });
}

void check_canary(uint64_t address, const Allocation& allocation) {
  uint64_t end = allocation.begin + allocation.pages;
  for (uint64_t p = address + allocation.asked; p < end; p++)
    if (*(unsigned char*)p != fresh)
      die("%zu bytes at %#lx: something wrote %lu bytes past their end", allocation.asked, address, p - address - allocation.asked);
  uint64_t begin = address - allocation.begin > PAGE ? address - PAGE : allocation.begin;
  for (uint64_t p = begin; p < address; p++)
    if (*(unsigned char*)p != fresh)
      die("%zu bytes at %#lx: something wrote %lu bytes before them", allocation.asked, address, address - p);
}

}  // namespace

void expect_device(const char* call, int device, uint64_t address, size_t bytes) {
  if (!bytes) return;
  auto found = find_allocation(address);
  if (found != allocations.end() && address + bytes <= found->first + found->second.asked) {
    int owner = owner_of(address);
    if (owner == device) return;
    die("%s: work of device %d with memory of device %d: %zu bytes %s", call, device, owner, bytes, describe_address(address).c_str());
  }
  auto host = find_host(address);
  if (host != host_allocations.end() && address + bytes <= host->first + host->second.bytes) return;
  die("%s: %zu bytes at %#lx are not in one allocation of the device (%s)", call, bytes, address, describe_address(address).c_str());
}

void expect_host(const char* call, const void* pointer) {
  if (is_device_address((uint64_t)pointer)) die("%s: %p is an address of the device, not of the host", call, pointer);
}

bool is_device_address(uint64_t address) { return owner_of(address) != NO_DEVICE; }

std::string describe_address(uint64_t address) {
  char text[200];
  int owner = owner_of(address);
  if (owner != NO_DEVICE) {
    auto next = allocations.upper_bound(address);
    if (next != allocations.end() && next->first - address <= PAGE)
      snprintf(text, sizeof text, "%lu bytes before an allocation of %zu bytes on device %d", next->first - address, next->second.asked, owner);
    else if (next != allocations.begin() && (--next, address - next->first < next->second.asked + 16 * PAGE))
      snprintf(text, sizeof text, "at byte %lu of an allocation of %zu bytes on device %d", address - next->first, next->second.asked, owner);
    else
      snprintf(text, sizeof text, "memory of device %d that is freed, or was never allocated", owner);
  } else if (address < (1u << 31) && address >= 0x10000000) {
    snprintf(text, sizeof text, "shared memory: byte %ld of %u", (long)(address - (uint64_t)machine.shared), machine.shared_bytes);
  } else {
    snprintf(text, sizeof text, "not the device's memory");
  }
  return text;
}

std::string describe_fault(uint64_t address) {
  std::string text = describe_address(address);
  int owner = owner_of(address);
  if (owner != NO_DEVICE && !arenas[owner].is_shown) text += ", to which device " + std::to_string(shown) + " has no access";
  return text;
}

void show_memory(int device, int other) {
  shown = device;
  for (int owner = 0; owner < device_count(); owner++) {
    Arena& arena = arenas[owner];
    bool is_wanted = owner == other || has_access(device, owner);
    if (arena.is_shown == is_wanted) continue;
    arena.is_shown = is_wanted;
    if (!arena.begin) continue;
    if (!is_wanted) {
      mprotect((void*)arena.begin, arena.used, PROT_NONE);
      continue;
    }
    // Not the pages between allocations, and not freed ones.
    auto end = allocations.lower_bound(arena.begin + ARENA_BYTES);
    for (auto next = allocations.lower_bound(arena.begin); next != end; ++next)
      mprotect((void*)next->second.begin, next->second.pages, PROT_READ | PROT_WRITE);
  }
}

}  // namespace emulated

using namespace emulated;

DRIVER cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  EMULATED_CALL;
  if (!address || !bytes) return INVALID_VALUE;
  int device = current_device();
  Arena& arena = arenas[device];
  size_t most = settings(device).memory_bytes;
  if (bytes > most || arena.used_bytes + bytes > most) return OUT_OF_MEMORY;
  make_arena(arena);
  show_memory(device);
  uint64_t pages = up(bytes, PAGE);
  if (arena.used + pages + 2 * PAGE > ARENA_BYTES) die("the emulated device's addresses are used up");
  uint64_t begin = arena.begin + arena.used + PAGE;
  if (mprotect((void*)begin, pages, PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
  arena.used += pages + PAGE;
  bool all = is_noted() || pages < MOST_FILLED;
  memset((void*)begin, fresh, all ? pages : MOST_FILLED);
  if (!all) memset((void*)(begin + pages - PAGE), fresh, PAGE);
  *address = begin + pages - up(bytes, 256);
  allocations[*address] = {bytes, pages, begin};
  arena.used_bytes += bytes;
  return SUCCESS;
}

// Memory is freed from any context, as the addresses of all devices differ.
DRIVER cuMemFree_v2(uint64_t address) {
  EMULATED_CALL;
  if (!address) return SUCCESS;
  auto found = allocations.find(address);
  if (found == allocations.end()) die("cuMemFree: %#lx is not allocated (%s)", address, describe_address(address).c_str());
  int owner = owner_of(address);
  if (Result result = finish_all(owner)) return result;
  Allocation allocation = found->second;
  show_memory(owner);
  check_canary(address, allocation);
  madvise((void*)allocation.begin, allocation.pages, MADV_DONTNEED);
  mprotect((void*)allocation.begin, allocation.pages, PROT_NONE);
  arenas[owner].used_bytes -= allocation.asked;
  allocations.erase(found);
  return SUCCESS;
}

// The attributes of an address that the library asks for, by their numbers in cuda.h. They need no context.
DRIVER cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  EMULATED_CALL_FOR(owner_of(address));
  if (!value) return INVALID_VALUE;
  auto device = find_allocation(address);
  auto host = find_host(address);
  bool is_device = device != allocations.end();
  if (!is_device && host == host_allocations.end()) return INVALID_VALUE;
  switch (attribute) {
    case 2: *(unsigned*)value = is_device ? 2 : 1; break;                                    // kind of memory
    case 8: *(unsigned*)value = 0; break;                                                    // managed
    case 9: *(int*)value = is_device ? owner_of(address) : host->second.device; break;       // device
    case 11: *(uint64_t*)value = is_device ? device->first : host->first; break;             // start of the allocation
    case 12: *(size_t*)value = is_device ? device->second.asked : host->second.bytes; break; // its bytes
    default: return NOT_SUPPORTED;
  }
  return SUCCESS;
}

DRIVER cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  EMULATED_CALL;
  int device = current_device();
  *total = settings(device).memory_bytes;
  *free_bytes = *total - arenas[device].used_bytes;
  return SUCCESS;
}

// Runs the work of all devices, any of which may use the host's memory; returns the failure of the current one.
static Result finish_everywhere() {
  for (int device = 0; device < device_count(); device++) finish_all(device);
  return failed(current_device());
}

DRIVER cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  EMULATED_CALL;
  if (!pointer || !bytes) return INVALID_VALUE;
  uint64_t pages = up(bytes, PAGE) + PAGE;
  char* got = (char*)mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return OUT_OF_MEMORY;
  mprotect(got + pages - PAGE, PAGE, PROT_NONE);
  *pointer = got;
  host_allocations[(uint64_t)got] = {bytes, current_device()};
  return SUCCESS;
}
DRIVER cuMemAllocHost_v2(void** pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

DRIVER cuMemFreeHost(void* pointer) {
  EMULATED_CALL;
  if (Result result = finish_everywhere()) return result;
  auto found = host_allocations.find((uint64_t)pointer);
  if (found == host_allocations.end()) die("cuMemFreeHost: %p is not allocated", pointer);
  munmap(pointer, up(found->second.bytes, PAGE) + PAGE);
  host_allocations.erase(found);
  return SUCCESS;
}
DRIVER cuMemHostGetDevicePointer_v2(uint64_t* address, void* pointer, unsigned) {
  EMULATED_CALL;
  *address = (uint64_t)pointer;
  return SUCCESS;
}
DRIVER cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
  EMULATED_CALL;
  uint64_t begin = (uint64_t)pointer;
  if (!pointer || !bytes) return INVALID_VALUE;
  auto next = host_allocations.lower_bound(begin);
  bool reaches_next = next != host_allocations.end() && next->first - begin < bytes;
  if (reaches_next || find_host(begin) != host_allocations.end()) return HOST_MEMORY_ALREADY_REGISTERED;
  host_allocations[begin] = {bytes, current_device()};
  return SUCCESS;
}
DRIVER cuMemHostUnregister(void* pointer) {
  EMULATED_CALL;
  if (Result result = finish_everywhere()) return result;
  if (!host_allocations.erase((uint64_t)pointer)) die("cuMemHostUnregister: %p is not registered", pointer);
  return SUCCESS;
}
