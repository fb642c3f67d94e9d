// Types and macros of every kernel. Needs no CUDA header: the driver and NVRTC suffice.
#pragma once
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

// Kernel with C linkage, which the host finds by name.
#define KERNEL extern "C" __global__ void
#define INLINE __device__ __forceinline__

#include "ptx.cuh"

template <class T> INLINE T smaller(T a, T b) { return a < b ? a : b; }
template <class T> INLINE T larger(T a, T b) { return a > b ? a : b; }
// Returns a / b rounded up.
template <class T> INLINE T parts(T a, T b) { return (a + b - 1) / b; }
