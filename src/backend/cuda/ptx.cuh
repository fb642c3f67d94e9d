// PTX instructions without a C++ equivalent. All inline assembly of the project is in this file, because the host
// emulator of the device replaces it by a file with the same names.
#pragma once

// Declares the block's dynamic shared memory, as bytes.
#define SHARED_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]

// --- addresses in shared memory
INLINE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Loads four floats from a 16-byte-aligned address.
INLINE float4 shared_quad(u32 address) {
  float4 quad;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(quad.x), "=f"(quad.y), "=f"(quad.z), "=f"(quad.w) : "r"(address) : "memory");
  return quad;
}

// --- asynchronous copies from global to shared memory, 16 bytes per thread (sm_80)
INLINE void copy_async_16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Copies the first `bytes` of 16 and fills the rest with zeros; with 0 the source is not read.
INLINE void copy_async_16_filled(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
INLINE void copy_async_4(u32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
INLINE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> INLINE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// --- mbarriers in shared memory and bulk copies (sm_90)
INLINE void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
INLINE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
INLINE void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and adds `bytes` of bulk copies to those the phase waits for.
INLINE void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of the phase with this parity.
INLINE void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n .reg .pred p;\n WAIT%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra WAIT%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Both addresses are 16-byte aligned and `bytes` is a multiple of 16; the phase must expect the bytes.
INLINE void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}
INLINE void bulk_store(void* to, u32 from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
// Adds i32 values to those in global memory.
INLINE void bulk_add(void* to, u32 from, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
INLINE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but LEFT groups of stores have read shared memory.
template <int LEFT> INLINE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory"); }
// Makes the threads' writes to shared memory visible to bulk copies and wgmma.
INLINE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- tensor copies of boxes of arrays of up to three axes, described on the host (sm_90). The kernel's argument is
// `const __grid_constant__ TensorMap map`. Elements of a box outside the array are zero and count for the mbarrier.
struct __align__(64) TensorMap { u64 words[16]; };
INLINE void tensor_prefetch(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
// `to` is aligned to the swizzle pattern (1024 bytes for 128-byte swizzle); x runs along rows, in multiples of 16
// bytes.
INLINE void tensor_load_3d(u32 to, const TensorMap* map, i32 x, i32 y, i32 z, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
               : "memory");
}

// --- barriers of some of the block's threads: `threads` is a multiple of 32, id is 1 to 15
INLINE void named_barrier(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
INLINE void named_barrier_arrive(u32 id, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// --- blocks of a cluster (sm_90); each can address the others' shared memory
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
INLINE u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Maps this block's shared-memory `address` to the same location in block `rank`.
INLINE u32 cluster_address(u32 address, u32 rank) {
  u32 result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}
// Stores 16 bytes in another block's shared memory; that block's mbarrier counts them and must expect them.
INLINE void cluster_store_counted(u32 to, float4 value, u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier));
}
// Barrier of all threads of the cluster, split into arrive and wait.
INLINE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// Arrives without release: publishes no writes.
INLINE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
INLINE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// --- selects four bytes of two words, each optionally replaced by its replicated sign
INLINE u32 permute_bytes(u32 a, u32 b, u32 selector) {
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
  return result;
}

// --- stores 16 bytes to global memory in one instruction; the compiler may split an ordinary store in four
INLINE void store_16(void* to, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// --- keeps a value in its register; otherwise the compiler might recompute it where it is used
INLINE void keep(u32& value) { asm volatile("" : "+r"(value)); }

// --- stores four 8 x 8 matrices of 16-bit elements to shared memory (sm_90). Lane l holds elements 2 (l % 4) and 2
// (l % 4) + 1 of row l / 4 of each matrix, and passes the address of row l % 8 of matrix l / 8.
INLINE void store_matrices(u32 to, u32 a, u32 b, u32 c, u32 d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
#endif
}

// --- product that the compiler may not contract with an addition
INLINE double product(double a, double b) {
  double result;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
  return result;
}

// --- a b + c with one rounding; denormals are flushed to 0
INLINE float fused(float a, float b, float c) {
  float result;
  asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
  return result;
}

// --- rounds floats to nearest for tensor cores (sm_80): to two f16, the first in the low half, or to one tf32 (11
// significant bits)
INLINE u32 round_halves(float low, float high) {
  u32 result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
INLINE u32 round_tf32(float value) {
  u32 result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(value));
  return result;
}

// --- matrix products of a warp (sm_80), fragments as in the PTX manual: c (16 x 8) += a (16 x k) b (k x 8)
#define MATRIX_PRODUCT(name, instruction, T, constraint)                                                       \
  INLINE void name(T (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {                                          \
    asm volatile("mma.sync.aligned." instruction " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"         \
                 : "+" constraint(c[0]), "+" constraint(c[1]), "+" constraint(c[2]), "+" constraint(c[3])      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                          \
  }
MATRIX_PRODUCT(mma_16x8x32_s8, "m16n8k32.row.col.s32.s8.s8.s32", i32, "r")
MATRIX_PRODUCT(mma_16x8x32_u8, "m16n8k32.row.col.s32.u8.u8.s32", i32, "r")
MATRIX_PRODUCT(mma_16x8x16_f16, "m16n8k16.row.col.f32.f16.f16.f32", float, "f")
// Uses the upper 19 bits of each float.
MATRIX_PRODUCT(mma_16x8x8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f")
#undef MATRIX_PRODUCT
// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l passes the 16-byte-aligned address of row l
// % 8 of matrix l / 8.
INLINE void load_matrix_x4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
INLINE void load_matrix_x4_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

#if __CUDA_ARCH__ >= 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
// --- Hopper warpgroup matrix instructions
INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> INLINE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
// c (64 x 64, i32) = a (64 x 32, u8, registers) b (32 x 64, u8, shared memory) + (add ? c : 0).
// `b` is a descriptor without swizzle: address/16, stride along the 32 and along the 64 in units of 16 bytes.
INLINE void wgmma_64x64x32_u8(i32 (&c)[32], const u32 (&a)[4], u64 b, i32 add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.u8 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      "{%32,%33,%34,%35},%36,p;}"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]), "+r"(c[8]), "+r"(c[9]),
        "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15]), "+r"(c[16]), "+r"(c[17]), "+r"(c[18]),
        "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]), "+r"(c[23]), "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]),
        "+r"(c[28]), "+r"(c[29]), "+r"(c[30]), "+r"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
// c (64 x N, i32) = a (64 x 32, i8, registers) b (32 x N, i8, shared memory) + (add ? c : 0); N is 8, 16, 32, 48 ...
// 144. The result fills the first N / 2 elements of c. `b` is a descriptor from `wgmma_swizzled`.
template <int N, int M> INLINE void wgmma_s8(i32 (&c)[M], const u32 (&a)[4], u64 b, i32 add) {
  static_assert(M >= N / 2, "accumulators");
#define EIGHT(i) \
  "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), "+r"(c[i + 6]), "+r"(c[i + 7])
#define NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES_16 NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_24 NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define NAMES_32 NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_40 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define NAMES_48 NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_56 NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define NAMES_64 NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_72 NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define SIGNED_PRODUCT(columns, names, a_names, b_name, add_name, ...)                                                     \
  else if constexpr (N == columns) asm volatile(                                                                     \
      "{.reg .pred p; setp.ne.b32 p, " add_name ", 0;\n wgmma.mma_async.sync.aligned.m64n" #columns "k32.s32.s8.s8 {" \
      names "},{" a_names "}," b_name ",p;}"                                                                         \
      : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
  if constexpr (N == 8)
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %9, 0;\n wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0,%1,%2,%3},{%4,%5,%6,%7},%8,p;}"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
  SIGNED_PRODUCT(16, NAMES_8, "%8,%9,%10,%11", "%12", "%13", EIGHT(0));
  SIGNED_PRODUCT(32, NAMES_16, "%16,%17,%18,%19", "%20", "%21", EIGHT(0), EIGHT(8));
  SIGNED_PRODUCT(48, NAMES_24, "%24,%25,%26,%27", "%28", "%29", EIGHT(0), EIGHT(8), EIGHT(16));
  SIGNED_PRODUCT(64, NAMES_32, "%32,%33,%34,%35", "%36", "%37", EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24));
  SIGNED_PRODUCT(80, NAMES_40, "%40,%41,%42,%43", "%44", "%45", EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32));
  SIGNED_PRODUCT(96, NAMES_48, "%48,%49,%50,%51", "%52", "%53", EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40));
  SIGNED_PRODUCT(112, NAMES_56, "%56,%57,%58,%59", "%60", "%61", EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48));
  SIGNED_PRODUCT(128, NAMES_64, "%64,%65,%66,%67", "%68", "%69", EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56));
  SIGNED_PRODUCT(144, NAMES_72, "%72,%73,%74,%75", "%76", "%77", EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56), EIGHT(64));
  else static_assert(N == 0, "columns of a product");
#undef SIGNED_PRODUCT
#undef NAMES_8
#undef NAMES_16
#undef NAMES_24
#undef NAMES_32
#undef NAMES_40
#undef NAMES_48
#undef NAMES_56
#undef NAMES_64
#undef NAMES_72
#undef EIGHT
}
// Returns the descriptor of 128-byte rows along the summed axis, 128-byte swizzle, groups of eight rows 1024 bytes
// apart. The address is a multiple of 1024. Advancing 32 bytes along the rows adds 2, eight rows add 64.
INLINE u64 wgmma_swizzled(u32 address) { return (u64)(1u << 30 | 64) << 32 | 1u << 16 | (address & 0x3ffff) >> 4; }
// Sets the register count per thread of this warpgroup, a multiple of 8; all its warps must execute it.
template <int N> INLINE void registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> INLINE void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
#endif
