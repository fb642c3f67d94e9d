// Memory: every allocation ends at a page that can't be touched, and freed ones are never used again.
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
std::map<uint64_t, Allocation> allocations;
std::map<uint64_t, size_t> host_allocations;
uint64_t arena, used_of_arena;
size_t used_bytes;

uint64_t up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

void make_arena() {
  if (arena) return;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* got = mmap((void*)0x200000000000, ARENA_BYTES, PROT_NONE, flags, -1, 0);
  if (got == MAP_FAILED) die("no address space for the device's memory");
  arena = (uint64_t)got;
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

void expect_device(const char* call, uint64_t address, size_t bytes) {
  if (!bytes) return;
  auto next = allocations.upper_bound(address);
  if (next != allocations.begin()) {
    --next;
    if (address + bytes <= next->first + next->second.asked) return;
  }
  auto host = host_allocations.upper_bound(address);
  if (host != host_allocations.begin() && address + bytes <= (--host)->first + host->second) return;
  die("%s: %zu bytes at %#lx are not in one allocation of the device (%s)", call, bytes, address, describe_address(address).c_str());
}

void expect_host(const char* call, const void* pointer) {
  uint64_t address = (uint64_t)pointer;
  if (arena && address - arena < ARENA_BYTES) die("%s: %p is an address of the device, not of the host", call, pointer);
}

std::string describe_address(uint64_t address) {
  char text[200];
  if (arena && address - arena < ARENA_BYTES) {
    auto next = allocations.upper_bound(address);
    if (next != allocations.end() && next->first - address <= PAGE)
      snprintf(text, sizeof text, "%lu bytes before an allocation of %zu bytes", next->first - address, next->second.asked);
    else if (next != allocations.begin() && (--next, address - next->first < next->second.asked + 16 * PAGE))
      snprintf(text, sizeof text, "at byte %lu of an allocation of %zu bytes", address - next->first, next->second.asked);
    else
      snprintf(text, sizeof text, "memory of the device that is freed, or was never allocated");
  } else if (address < (1u << 31) && address >= 0x10000000) {
    snprintf(text, sizeof text, "shared memory: byte %ld of %u", (long)(address - (uint64_t)machine.shared), machine.shared_bytes);
  } else {
    snprintf(text, sizeof text, "not the device's memory");
  }
  return text;
}

}  // namespace emulated

using namespace emulated;

DRIVER cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  EMULATED_CALL;
  if (!address || !bytes) return INVALID_VALUE;
  if (bytes > settings().memory_bytes || used_bytes + bytes > settings().memory_bytes) return OUT_OF_MEMORY;
  make_arena();
  uint64_t pages = up(bytes, PAGE);
  if (used_of_arena + pages + 2 * PAGE > ARENA_BYTES) die("the emulated device's addresses are used up");
  uint64_t begin = arena + used_of_arena + PAGE;
  if (mprotect((void*)begin, pages, PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
  used_of_arena += pages + PAGE;
  bool all = is_noted() || pages < MOST_FILLED;
  memset((void*)begin, fresh, all ? pages : MOST_FILLED);
  if (!all) memset((void*)(begin + pages - PAGE), fresh, PAGE);
  *address = begin + pages - up(bytes, 256);
  allocations[*address] = {bytes, pages, begin};
  used_bytes += bytes;
  return SUCCESS;
}

DRIVER cuMemFree_v2(uint64_t address) {
  EMULATED_CALL;
  if (!address) return SUCCESS;
  if (Result result = finish_all()) return result;
  auto found = allocations.find(address);
  if (found == allocations.end()) die("cuMemFree: %#lx is not allocated (%s)", address, describe_address(address).c_str());
  Allocation allocation = found->second;
  check_canary(address, allocation);
  madvise((void*)allocation.begin, allocation.pages, MADV_DONTNEED);
  mprotect((void*)allocation.begin, allocation.pages, PROT_NONE);
  used_bytes -= allocation.asked;
  allocations.erase(found);
  return SUCCESS;
}

// The attributes of an address that the library asks for, by their numbers in cuda.h.
DRIVER cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  EMULATED_CALL;
  if (!value) return INVALID_VALUE;
  auto found = [address](const auto& all, auto bytes) {
    auto next = all.upper_bound(address);
    return next != all.begin() && address - (--next)->first < bytes(next->second) ? next : all.end();
  };
  auto device = found(allocations, [](const Allocation& allocation) { return allocation.asked; });
  auto host = found(host_allocations, [](size_t bytes) { return bytes; });
  bool is_device = device != allocations.end();
  if (!is_device && host == host_allocations.end()) return INVALID_VALUE;
  switch (attribute) {
    case 2: *(unsigned*)value = is_device ? 2 : 1; break;                              // kind of memory
    case 8: *(unsigned*)value = 0; break;                                              // managed
    case 9: *(int*)value = 0; break;                                                   // device
    case 11: *(uint64_t*)value = is_device ? device->first : host->first; break;       // start of the allocation
    case 12: *(size_t*)value = is_device ? device->second.asked : host->second; break; // its bytes
    default: return NOT_SUPPORTED;
  }
  return SUCCESS;
}

DRIVER cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  EMULATED_CALL;
  *total = settings().memory_bytes;
  *free_bytes = *total - used_bytes;
  return SUCCESS;
}

DRIVER cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  EMULATED_CALL;
  if (!pointer || !bytes) return INVALID_VALUE;
  uint64_t pages = up(bytes, PAGE) + PAGE;
  char* got = (char*)mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return OUT_OF_MEMORY;
  mprotect(got + pages - PAGE, PAGE, PROT_NONE);
  *pointer = got;
  host_allocations[(uint64_t)got] = bytes;
  return SUCCESS;
}
DRIVER cuMemAllocHost_v2(void** pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

DRIVER cuMemFreeHost(void* pointer) {
  EMULATED_CALL;
  if (Result result = finish_all()) return result;
  auto found = host_allocations.find((uint64_t)pointer);
  if (found == host_allocations.end()) die("cuMemFreeHost: %p is not allocated", pointer);
  munmap(pointer, up(found->second, PAGE) + PAGE);
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
  if (!pointer || !bytes) return INVALID_VALUE;
  host_allocations[(uint64_t)pointer] = bytes;
  return SUCCESS;
}
DRIVER cuMemHostUnregister(void* pointer) {
  EMULATED_CALL;
  if (Result result = finish_all()) return result;
  if (!host_allocations.erase((uint64_t)pointer)) die("cuMemHostUnregister: %p is not registered", pointer);
  return SUCCESS;
}
