// One kernel for each feature of the emulator.
#include "device.cuh"

KERNEL saxpy(float a, u64 x, u64 y, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) ((float*)y)[i] = fmaf(a, ((const float*)x)[i], ((float*)y)[i]);
}

// Sums of a block through shared memory, then through shuffles.
KERNEL __launch_bounds__(256, 2) block_sum(const u32* in, u32* out) {
  SHARED_MEMORY(bytes);
  __shared__ u32 warps[8];
  u32* words = (u32*)bytes;
  words[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  u32 value = words[blockDim.x - 1 - threadIdx.x];
  for (int by = 16; by; by >>= 1) value += __shfl_xor_sync(~0u, value, by);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 sum = 0;
    for (u32 i = 0; i < blockDim.x / 32; i++) sum += warps[i];
    out[blockIdx.x] = sum;
  }
}

// Lanes that leave early, partial masks, votes, reductions.
KERNEL warp_words(u32* out) {
  u32 lane = threadIdx.x % 32;
  if (threadIdx.x >= 40) return;
  u32 mask = threadIdx.x < 32 ? ~0u : 0xffu;
  u32 votes = __ballot_sync(mask, lane & 1), sum = __reduce_add_sync(mask, lane);
  u32 next = __shfl_down_sync(mask, lane, 1, 8);
  i32 least = __reduce_min_sync(mask, 5 - (i32)lane);
  u32* mine = out + 4 * threadIdx.x;
  mine[0] = votes, mine[1] = sum, mine[2] = next, mine[3] = (u32)least;
}

#if __CUDA_ARCH__ >= 900
// One warp loads through the copy engine, three consume the data, synchronized by barriers with phases.
KERNEL pipeline(const u8* in, u32* out, u32 rounds) {
  SHARED_MEMORY(bytes);
  __shared__ u64 barriers[2];
  u32 full = shared_address(&barriers[0]), empty = shared_address(&barriers[1]);
  if (threadIdx.x == 0) barrier_init(full, 1), barrier_init(empty, 96), barrier_init_fence();
  __syncthreads();
  if (threadIdx.x < 32) {
    for (u32 round = 0; round < rounds; round++) {
      if (round) barrier_wait(empty, (round - 1) & 1);
      if (threadIdx.x == 0) barrier_expect(full, 1024), bulk_load(shared_address(bytes), in + 1024 * round, 1024, full);
      __syncwarp();
    }
  } else {
    u32 sum = 0;
    for (u32 round = 0; round < rounds; round++) {
      barrier_wait(full, round & 1);
      for (u32 i = threadIdx.x - 32; i < 1024; i += 96) sum += bytes[i];
      barrier_arrive(empty);
    }
    named_barrier(1, 96);
    atomicAdd(out, sum);
  }
}
#endif

#if __CUDA_ARCH__ >= 900
// Each block of a cluster sends 16 bytes per thread to the next one, and its own number around the ring of all.
KERNEL CLUSTER_OF(4) __launch_bounds__(128) send_on(const float4* in, float4* out) {
  SHARED_MEMORY(bytes);
  float4* mine = (float4*)bytes;
  const u32 rank = cluster_rank(), full = shared_address(bytes + 128 * 16), next = (rank + 1) % 4;
  if (threadIdx.x == 0) barrier_init(full, 1), barrier_init_fence(), barrier_expect(full, 128 * 16);
  cluster_arrive();
  cluster_wait();
  const u32 to = cluster_address(shared_address(mine + threadIdx.x), next);
  cluster_store_counted(to, in[blockIdx.x * 128 + threadIdx.x], cluster_address(full, next));
  barrier_wait(full, 0);
  out[blockIdx.x * 128 + threadIdx.x] = mine[127 - threadIdx.x];
  cluster_arrive_relaxed();
  cluster_wait();
}
#endif

#if HAS_WGMMA
// a: 64 x 32, b: 32 x 64 (row n of 32 bytes for each column n); c = a b + a b.
KERNEL wgmma_product(const u8* a, const u8* b, i32* c) {
  SHARED_MEMORY(bytes);
  for (u32 i = threadIdx.x; i < 64 * 32; i += 128) {
    u32 n = i / 32, k = i % 32;
    bytes[k / 16 * 1024 + n / 8 * 128 + n % 8 * 16 + k % 16] = b[i];
  }
  fence_async_shared();
  __syncthreads();
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, registers[4];
  for (u32 i = 0; i < 4; i++) {
    u32 row = warp * 16 + lane / 4 + (i & 1) * 8, column = lane % 4 * 4 + (i >> 1) * 16;
    registers[i] = *(const u32*)(a + row * 32 + column);
  }
  u64 descriptor = (u64)((shared_address(bytes) & 0x3ffff) >> 4) | (u64)(1024 >> 4) << 16 | (u64)(128 >> 4) << 32;
  i32 sums[32];
  wgmma_fence();
  wgmma_64x64x32_u8(sums, registers, descriptor, 0);
  wgmma_64x64x32_u8(sums, registers, descriptor, 1);
  wgmma_commit();
  wgmma_wait<0>();
  for (u32 i = 0; i < 32; i++) {
    u32 row = warp * 16 + lane / 4 + (i >> 1 & 1) * 8, column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
    c[row * 64 + column] = sums[i];
  }
}
#endif

#if __CUDA_ARCH__ >= 900
// Stores a box of a three-axis array as it lies in shared memory; then adds its words to those of `sums` twice.
KERNEL take_box(const __grid_constant__ TensorMap map, i32 x, i32 y, i32 z, u8* out, u32* sums, u32 bytes) {
  SHARED_MEMORY(box);
  __shared__ u64 barrier;
  u32 full = shared_address(&barrier), to = shared_address(box);
  if (threadIdx.x == 0) {
    tensor_prefetch(&map);
    barrier_init(full, 1), barrier_init_fence(), barrier_expect(full, bytes);
    tensor_load_3d(to, &map, x, y, z, full);
  }
  __syncthreads();
  barrier_wait(full, 0);
  for (u32 i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = box[i];
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < 2; i++) bulk_add(sums, to, bytes);
    bulk_commit();
    bulk_wait_read<0>();
  }
}
#endif

#if HAS_WGMMA
// c (64 x 48) = a (64 x 128, in registers) times b, 48 rows of 128 bytes loaded by a tensor copy with swizzle.
KERNEL __launch_bounds__(128) signed_product(const __grid_constant__ TensorMap map, const u8* a, i32* c) {
  SHARED_MEMORY(bytes);
  __shared__ u64 barrier;
  u32 full = shared_address(&barrier), at = shared_address(bytes), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) barrier_init(full, 1), barrier_init_fence(), barrier_expect(full, 48 * 128), tensor_load_3d(at, &map, 0, 0, 0, full);
  __syncthreads();
  barrier_wait(full, 0);
  i32 sums[28];
  wgmma_fence();
  for (u32 step = 0; step < 4; step++) {
    u32 registers[4];
    for (u32 i = 0; i < 4; i++) {
      u32 row = warp * 16 + lane / 4 + (i & 1) * 8, column = step * 32 + lane % 4 * 4 + (i >> 1) * 16;
      registers[i] = *(const u32*)(a + row * 128 + column);
    }
    wgmma_s8<48>(sums, registers, wgmma_swizzled(at + 32 * step), step != 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  for (u32 i = 0; i < 24; i++) {
    u32 row = warp * 16 + lane / 4 + (i >> 1 & 1) * 8, column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
    c[row * 48 + column] = sums[i];
  }
}
#endif

// Arguments of many alignments.
struct __align__(64) Sixty { u64 words[8]; };
struct __align__(128) Hundred { u64 words[16]; };
KERNEL aligned_arguments(u8 one, const __grid_constant__ Sixty sixty, u32 four, const __grid_constant__ Hundred hundred, u64* out) {
  out[threadIdx.x] = one + four + sixty.words[7] + hundred.words[15];
  if ((u64)&sixty % 64 || (u64)&hundred % 128) __trap();
}

// Doubles a number. With a kernel that adds one, the result shows the order of the streams.
KERNEL twice(u32* x) { x[0] *= 2; }
KERNEL one_more(u32* x) { x[0] += 1; }

// a: 16 x 8, b: 8 columns of 8 floats.
KERNEL float_product(const u32* a, const u32* b, float* c) {
  u32 lane = threadIdx.x, left[4], right[2];
  for (u32 i = 0; i < 4; i++) left[i] = a[(lane / 4 + (i & 1) * 8) * 8 + lane % 4 + (i >> 1) * 4];
  for (u32 i = 0; i < 2; i++) right[i] = b[lane / 4 * 8 + lane % 4 + i * 4];
  float sums[4] = {0, 0, 0, 0};
  mma_16x8x8_tf32(sums, left, right);
  for (u32 i = 0; i < 4; i++) c[(lane / 4 + (i >> 1) * 8) * 8 + lane % 4 * 2 + (i & 1)] = sums[i];
}

// a: 16 x 32 bytes; b: 8 columns of 32 bytes; both signs, through ldmatrix for a.
KERNEL mma_product(const u8* a, const u8* b, i32* c) {
  SHARED_MEMORY(bytes);
  u32 lane = threadIdx.x;
  for (u32 i = lane; i < 512; i += 32) bytes[i] = a[i];
  __syncwarp();
  u32 fragment[4], columns[2];
  load_matrix_x4(fragment, shared_address(bytes) + (lane % 16) * 32 + lane / 16 * 16);
  for (u32 i = 0; i < 2; i++) columns[i] = *(const u32*)(b + lane / 4 * 32 + i * 16 + lane % 4 * 4);
  i32 with_signs[4] = {0, 0, 0, 0}, without[4] = {0, 0, 0, 0};
  mma_16x8x32_s8(with_signs, fragment, columns);
  mma_16x8x32_u8(without, fragment, columns);
  for (u32 i = 0; i < 4; i++) {
    u32 at = (lane / 4 + (i >> 1) * 8) * 8 + lane % 4 * 2 + (i & 1);
    c[at] = with_signs[i], c[128 + at] = without[i];
  }
}

// A transposed load of four matrices, and the store that writes them back.
KERNEL transposed(const u16* in, u16* out) {
  SHARED_MEMORY(bytes);
  u16* halves = (u16*)bytes;
  u32 lane = threadIdx.x, words[4];
  for (u32 i = lane; i < 256; i += 32) halves[i] = in[i];
  __syncwarp();
  load_matrix_x4_transposed(words, shared_address(bytes) + 16 * lane);
#if __CUDA_ARCH__ >= 900
  store_matrices(shared_address(bytes) + 512 + 16 * lane, words[0], words[1], words[2], words[3]);
  __syncwarp();
  for (u32 i = lane; i < 256; i += 32) out[i] = halves[256 + i];
#else
  for (u32 i = 0; i < 4; i++) {
    u32 at = 64 * i + lane / 4 * 8 + lane % 4 * 2;
    out[at] = (u16)words[i], out[at + 1] = (u16)(words[i] >> 16);
  }
#endif
}

// Copies in two groups, and waits for the first only.
KERNEL forgotten_wait(const u32* in, u32* out) {
  SHARED_MEMORY(bytes);
  for (u32 i = 0; i < 2; i++) copy_async_16(shared_address(bytes) + 16 * i, in + 4 * i), copy_async_commit();
  copy_async_wait<1>();
  for (u32 i = 0; i < 8; i++) out[i] = ((u32*)bytes)[i];
}

KERNEL past_the_end(u32* out, u32 at) { out[at] = 1; }
KERNEL stuck() { if (threadIdx.x < 32) named_barrier(1, 64); }
KERNEL trapped() { if (threadIdx.x == 3) __trap(); }
KERNEL past_shared() { SHARED_MEMORY(bytes); bytes[gridDim.y * 1024 + threadIdx.x] = 1; }
KERNEL misaligned(u64 at) { *(uint4*)at = make_uint4(1, 2, 3, 4); }
