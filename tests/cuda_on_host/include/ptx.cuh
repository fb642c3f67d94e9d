// Emulation of the functions of src/backend/cuda/ptx.cuh, with the same names and meaning.
#pragma once

#define SHARED_MEMORY(name) unsigned char* const name = emulated_machine->shared

namespace emulated {
// Addresses of dynamic shared memory are below 2 GiB; those of static shared memory are offsets in the module.
constexpr u32 Static = 0x80000000u, Middle = 0x40000000u;
INLINE void* shared_pointer(u32 address) {
  if (address & Static) return (char*)&__dso_handle + (long)(address & ~Static) - (long)Middle;
  return (void*)(u64)address;
}
template <class T> INLINE T& shared_word(u32 address, const char* what) {
  if (address % sizeof(T)) emulated_machine->die("%s: address %#x is not a multiple of %d", what, address, (int)sizeof(T));
  return *(T*)shared_pointer(address);
}
INLINE void aligned(const char* what, u64 to, u64 from, u64 bytes, u64 unit) {
  if (to % unit || from % unit || bytes % unit)
    emulated_machine->die("%s of %llu bytes from %#llx to %#llx: not multiples of %llu", what, bytes, from, to, unit);
}
}  // namespace emulated

INLINE u32 shared_address(const void* p) {
  if ((u64)p < emulated::Static) return (u32)(u64)p;
  long offset = (const char*)p - (const char*)&__dso_handle + (long)emulated::Middle;
  if (offset < 0 || offset >= (long)emulated::Static)
    emulated_machine->die("shared_address of %p, which is not in shared memory", p);
  return emulated::Static | (u32)offset;
}

INLINE float4 shared_quad(u32 address) {
  emulated::aligned("shared_quad", address, 0, 0, 16);
  return *(const float4*)emulated::shared_pointer(address);
}

// --- asynchronous copies
namespace emulated {
struct Copy {
  void* to;
  const void* from;
  u32 bytes, room;
};
static inline void run_copy(const void* data) {
  const Copy& copy = *(const Copy*)data;
  if (copy.bytes < copy.room) __builtin_memset(copy.to, 0, copy.room);
  if (copy.bytes == 16) __builtin_memcpy(copy.to, copy.from, 16);
  else __builtin_memcpy(copy.to, copy.from, copy.bytes);
}
INLINE void copy_later(Background kind, const void* owner, const Copy& copy) {
  if (!emulated_machine->late) return run_copy(&copy);
  emulated_machine->later(kind, owner, run_copy, &copy, sizeof copy);
}
}  // namespace emulated
INLINE void copy_async_16_filled(u32 to, const void* from, u32 bytes) {
  emulated::aligned("copy_async_16", to, bytes ? (u64)from : 0, 0, 16);
  if (bytes > 16) emulated_machine->die("copy_async_16_filled of %u bytes", bytes);
  emulated::copy_later(emulated::Copies, emulated_machine->current, {emulated::shared_pointer(to), from, bytes, 16});
}
INLINE void copy_async_16(u32 to, const void* from) { copy_async_16_filled(to, from, 16); }
INLINE void copy_async_4(u32 to, const void* from) {
  emulated::aligned("copy_async_4", to, (u64)from, 0, 4);
  emulated::copy_later(emulated::Copies, emulated_machine->current, {emulated::shared_pointer(to), from, 4, 4});
}
INLINE void copy_async_commit() {
  if (emulated_machine->late) emulated_machine->commit(emulated::Copies, emulated_machine->current);
}
template <int Left> INLINE void copy_async_wait() {
  if (emulated_machine->late) emulated_machine->finish(emulated::Copies, emulated_machine->current, Left);
}

// --- mbarriers in shared memory
namespace emulated {
#if __CUDA_ARCH__ >= 900
INLINE void from_sm_90() {}
#else
// A call that remains after dead-code elimination stops the compilation, as ptxas would.
void from_sm_90() __attribute__((error("an instruction that needs sm_90")));
#endif
struct Barrier {
  u32 parity : 1, magic : 3, arrivals : 14, left : 14;
  i32 bytes;
};
constexpr u32 Magic = 2;
INLINE Barrier& barrier_at(u32 address) {
  from_sm_90();
  Barrier& barrier = shared_word<Barrier>(address, "barrier");
  if (address % 8) emulated_machine->die("barrier at %#x: not a multiple of 8", address);
  if (barrier.magic != Magic) emulated_machine->die("barrier at %#x: not initialized", address);
  return barrier;
}
INLINE void barrier_update(Barrier& barrier, u32 arrivals, i32 bytes) {
  if (arrivals > barrier.left) emulated_machine->die("barrier: more arrivals than its phase waits for");
  barrier.left -= arrivals, barrier.bytes += bytes;
  if (barrier.left || barrier.bytes) return;
  barrier.left = barrier.arrivals, barrier.parity ^= 1;
  emulated_machine->wake(&barrier);
}
}  // namespace emulated
INLINE void barrier_init(u32 address, u32 arrivals) {
  emulated::Barrier& barrier = emulated::shared_word<emulated::Barrier>(address, "barrier_init");
  if (arrivals < 1 || arrivals > 16383) emulated_machine->die("barrier_init: %u arrivals", arrivals);
  barrier.parity = 0, barrier.magic = emulated::Magic, barrier.arrivals = barrier.left = arrivals, barrier.bytes = 0;
}
INLINE void barrier_init_fence() {}
INLINE void barrier_arrive(u32 address) { emulated::barrier_update(emulated::barrier_at(address), 1, 0); }
INLINE void barrier_expect(u32 address, u32 bytes) {
  emulated::barrier_update(emulated::barrier_at(address), 1, (i32)bytes);
}
INLINE void barrier_wait(u32 address, u32 parity) {
  emulated::Barrier& barrier = emulated::barrier_at(address);
  if (parity > 1) emulated_machine->die("barrier_wait: parity %u", parity);
  while (*(volatile u32*)&barrier % 2 == parity) {
    emulated_machine->finish(emulated::Loads, &barrier, emulated::All);
    if (*(volatile u32*)&barrier % 2 != parity) return;
    emulated_machine->suspend("barrier_wait", &barrier, address);
  }
}
// --- blocks of a cluster
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
INLINE u32 cluster_rank() {
  emulated::from_sm_90();
  return emulated_machine->current->rank;
}
INLINE u32 cluster_address(u32 address, u32 rank) {
  emulated::from_sm_90();
  if (address & emulated::Static) emulated_machine->die("cluster_address: static shared memory is one for all blocks here");
  return address - (u32)(u64)emulated_machine->shared + (u32)(u64)emulated_machine->cluster_shared(rank);
}
INLINE void cluster_arrive() { emulated_machine->cluster_arrive(); }
INLINE void cluster_arrive_relaxed() { emulated_machine->cluster_arrive(); }
INLINE void cluster_wait() { emulated_machine->cluster_wait(); }
namespace emulated {
struct Counted {
  float4 value;
  float4* to;
  Barrier* barrier;
};
static inline void run_counted(const void* data) {
  const Counted& store = *(const Counted*)data;
  *store.to = store.value;
  barrier_update(*store.barrier, 0, -16);
}
}  // namespace emulated
INLINE void cluster_store_counted(u32 to, float4 value, u32 address) {
  emulated::Barrier& barrier = emulated::barrier_at(address);
  emulated::Counted store = {value, &emulated::shared_word<float4>(to, "cluster_store_counted"), &barrier};
  emulated_machine->later(emulated::Loads, &barrier, emulated::run_counted, &store, sizeof store);
  if (emulated_machine->late) emulated_machine->wake(&barrier);
}
// --- bulk copies
namespace emulated {
struct Load {
  Copy copy;
  Barrier* barrier;
};
static inline void run_load(const void* data) {
  const Load& load = *(const Load*)data;
  __builtin_memcpy(load.copy.to, load.copy.from, load.copy.bytes);
  barrier_update(*load.barrier, 0, -(i32)load.copy.bytes);
}
}  // namespace emulated
INLINE void bulk_load(u32 to, const void* from, u32 bytes, u32 address) {
  emulated::aligned("bulk_load", to, (u64)from, bytes, 16);
  emulated::Barrier& barrier = emulated::barrier_at(address);
  emulated::Load load = {{emulated::shared_pointer(to), from, bytes, bytes}, &barrier};
  emulated_machine->later(emulated::Loads, &barrier, emulated::run_load, &load, sizeof load);
  // Threads that already wait must run the copy.
  if (emulated_machine->late) emulated_machine->wake(&barrier);
}
INLINE void bulk_store(void* to, u32 from, u32 bytes) {
  emulated::from_sm_90();
  emulated::aligned("bulk_store", (u64)to, from, bytes, 16);
  emulated::copy_later(emulated::Stores, emulated_machine->current, {to, emulated::shared_pointer(from), bytes, bytes});
}
namespace emulated {
static inline void run_sum(const void* data) {
  const Copy& copy = *(const Copy*)data;
  u32 *to = (u32*)copy.to, *from = (u32*)copy.from;
  for (u32 i = 0; i < copy.bytes / 4; i++) to[i] += from[i];
}
}  // namespace emulated
INLINE void bulk_add(void* to, u32 from, u32 bytes) {
  emulated::from_sm_90();
  emulated::aligned("bulk_add", (u64)to, from, bytes, 16);
  emulated::Copy copy = {to, emulated::shared_pointer(from), bytes, bytes};
  emulated_machine->later(emulated::Stores, emulated_machine->current, emulated::run_sum, &copy, sizeof copy);
}
INLINE void bulk_commit() { emulated_machine->commit(emulated::Stores, emulated_machine->current); }
template <int Left> INLINE void bulk_wait_read() {
  emulated_machine->finish(emulated::Stores, emulated_machine->current, Left);
}
INLINE void fence_async_shared() {}
#include "tensor.h"

// --- barriers of some warps of the block
INLINE void named_barrier(u32 id, u32 threads) { emulated_machine->barrier(id, threads, true); }
INLINE void named_barrier_arrive(u32 id, u32 threads) { emulated_machine->barrier(id, threads, false); }

INLINE u32 permute_bytes(u32 a, u32 b, u32 selector) { return emulated::permute(a, b, selector); }
INLINE void store_16(void* to, u32 a, u32 b, u32 c, u32 d) { *(uint4*)to = make_uint4(a, b, c, d); }
INLINE void keep(u32&) {}
INLINE double product(double a, double b) { return a * b; }
INLINE float fused(float a, float b, float c) {
  auto flushed = [](float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; };
  return flushed(__builtin_fmaf(flushed(a), flushed(b), flushed(c)));
}

#include "matrix.h"
#include "wgmma.h"
