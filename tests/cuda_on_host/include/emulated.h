// State shared by kernels and the emulated driver: the running thread, its block, and its waits.
#pragma once
typedef __SIZE_TYPE__ size_t;

namespace emulated {

struct Uint3 {
  unsigned x, y, z;
};

// A thread of a block, with a stack of its own.
struct Fiber {
  void* stack_pointer;
  Uint3 thread;
  unsigned linear, lane;
  // Rank of its block in the cluster, and the phase of the cluster barrier at which it has arrived.
  unsigned rank, cluster_phase;
  bool ended;
  // Operation for which it waits, for messages, and the key that wakes it; null while it runs or is ready.
  const char* waits_for;
  const void* key;
  unsigned long long detail;
  // Inputs and outputs of this thread in an instruction that several threads execute together.
  unsigned long long value, result;
  unsigned operand;
  void* pointers[4];
};

// Instruction executed jointly once all of `lanes` have arrived; `first` is their lane 0.
typedef void (*Work)(Fiber* first, const bool* present, unsigned lanes);

// Kinds of asynchronous work; each owner (a thread, a warpgroup or a barrier) has one queue per kind.
enum Background { Copies, Stores, Loads, Products };

// State of the block of the running thread. `suspend` returns when `wake` is called with the same key.
struct Machine {
  Fiber* current;
  Uint3 block, block_size, grid_size;
  unsigned char* shared;
  unsigned shared_bytes;
  void (*suspend)(const char* what, const void* key, unsigned long long detail);
  void (*wake)(const void* key);
  void (*pass)();  // yields to other threads
  void (*barrier)(unsigned id, unsigned threads, bool wait);  // id 0 with 0 threads: all of the block
  void (*cluster_arrive)();
  void (*cluster_wait)();
  unsigned char* (*cluster_shared)(unsigned rank);
  void (*meet_warp)(unsigned mask, Work work, const char* what);
  void (*meet_warpgroup)(Work work, const char* what);
  // Asynchronous work: runs at once, or as late as the kernel allows, with a copy of its arguments. `finish` runs a
  // queue except for its last `left` groups, or all of it for All.
  bool late;
  void (*later)(Background kind, const void* owner, void (*work)(const void*), const void* data, size_t bytes);
  void (*commit)(Background kind, const void* owner);
  void (*finish)(Background kind, const void* owner, unsigned left);
  void (*trap)();
  void (*die)(const char* format, ...);
};

constexpr unsigned All = ~0u;

// Contents of the 128 bytes of a tensor map, as cuTensorMapEncodeTiled writes them: elements of `element` bytes,
// extents of the dimensions (innermost first), byte strides of all dimensions but the first, and the box of a copy.
// Chunks of 16 bytes are swizzled within 16 << swizzle bytes.
struct Tensor {
  static constexpr unsigned Magic = 0x7e45032a;
  unsigned magic;
  unsigned char rank, element, swizzle;
  unsigned char* base;
  unsigned long long extents[5], strides[4];
  unsigned short box[5];
};
static_assert(sizeof(Tensor) <= 128, "a tensor map has 128 bytes");

// Properties of a kernel in a compiled module.
struct Kernel {
  const char* name;
  void (*call)(void** arguments);
  unsigned arguments;
  const unsigned* sizes;
  unsigned most_threads, cluster;
};

struct Module {
  const char* architecture;
  unsigned kernels;
  const Kernel* kernel;
  Machine** machine;
};

}  // namespace emulated
