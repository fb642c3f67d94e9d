// What every kernel of ours includes. No header of CUDA's is needed to compile it: the driver and NVRTC are enough.
#pragma once
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

// A kernel that the host finds by its name.
#define KERNEL extern "C" __global__ void
#define INLINE __device__ __forceinline__

#include "ptx.cuh"

template <class T> INLINE T smaller(T a, T b) { return a < b ? a : b; }
template <class T> INLINE T larger(T a, T b) { return a > b ? a : b; }
// a / b rounded up
template <class T> INLINE T parts(T a, T b) { return (a + b - 1) / b; }
