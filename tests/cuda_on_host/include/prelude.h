// Names that NVRTC defines without any header, for g++; included before every kernel file.
#pragma once
#include "emulated.h"

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
// The scan for kernels preprocesses the source with these words left in place.
#ifndef EMULATED_SCAN
#define __global__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#endif
#define __device__
#define __host__
#define __shared__ static
#define __constant__
#define __grid_constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __maxnreg__(n)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

extern "C" __attribute__((visibility("hidden"))) emulated::Machine* emulated_machine;
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

#define threadIdx (emulated_machine->current->thread)
#define blockIdx (emulated_machine->block)
#define blockDim (emulated_machine->block_size)
#define gridDim (emulated_machine->grid_size)
constexpr int warpSize = 32;

extern "C" {
int printf(const char*, ...);
void* memcpy(void*, const void*, size_t);
void* memset(void*, int, size_t);
}
static inline void __trap() { emulated_machine->trap(); }
#define assert(condition)                                                                     \
  ((condition) ? (void)0 : emulated_machine->die("assertion in a kernel: %s", #condition))

#include "vectors.h"
#include "mathematics.h"
#include "bits.h"
#include "warp.h"
#include "atomics.h"
