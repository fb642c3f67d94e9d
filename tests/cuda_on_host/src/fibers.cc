#include "fibers.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "block.h"

// Saves what a called function must keep on the stack, stores the stack's end, and goes on at another one.
extern "C" void emulated_switch(void** save, void* load);
asm(R"(
.text
.type emulated_switch,@function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch,.-emulated_switch
)");

namespace emulated {

Fiber fibers[MOST_FIBERS];

namespace {

// Fibers that can go on, in a ring.
Fiber* ready[MOST_FIBERS];
unsigned first_ready, readies;
unsigned threads_of_block, ended_fibers, stacks_made;
void* scheduler;
char* stacks;
void (*body_of_block)();
void (*on_end)(Fiber*);
unsigned long long shuffle_state;

// The next fiber: the one that waited longest, or any one when an order is asked for.
Fiber* next() {
  if (!readies) return nullptr;
  if (shuffle_state) {
    shuffle_state ^= shuffle_state << 13, shuffle_state ^= shuffle_state >> 7, shuffle_state ^= shuffle_state << 17;
    unsigned other = (first_ready + (unsigned)(shuffle_state >> 33) % readies) % MOST_FIBERS;
    Fiber* chosen = ready[other];
    ready[other] = ready[first_ready], ready[first_ready] = chosen;
  }
  Fiber* fiber = ready[first_ready];
  first_ready = (first_ready + 1) % MOST_FIBERS, readies--;
  return fiber;
}

// Goes on as a thread: what kernels see of its block is there.
void enter(Fiber* fiber) {
  machine.current = fiber;
  if (fiber) enter_block(fiber->rank);
}

// Goes on with another fiber, or with the scheduler when none can run.
void leave(Fiber* self) {
  Fiber* fiber = next();
  if (fiber == self) return;
  enter(fiber);
  emulated_switch(&self->stack_pointer, fiber ? fiber->stack_pointer : scheduler);
}

void start_fiber() {
  body_of_block();
  Fiber* self = machine.current;
  self->ended = true;
  ended_fibers++;
  on_end(self);
  leave(self);
  __builtin_unreachable();
}

}  // namespace

void make_stacks(unsigned threads) {
  unsigned long page = 4096, bytes = MOST_FIBERS * STACK_BYTES;
  if (!stacks) {
    stacks = (char*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) die("no memory for the stacks of threads");
    const char* order = getenv("SIDEREAL_EMULATED_ORDER");
    shuffle_state = order ? strtoull(order, nullptr, 10) * 0x9E3779B97F4A7C15ull : 0;
  }
  for (; stacks_made < threads; stacks_made++) mprotect(stacks + stacks_made * STACK_BYTES, page, PROT_NONE);
}

bool is_stack_guard(const void* address) {
  unsigned long offset = (unsigned long)((const char*)address - stacks);
  return stacks && offset < MOST_FIBERS * STACK_BYTES && offset % STACK_BYTES < 4096;
}

void run_fibers(unsigned threads, void (*body)(), void (*ended)(Fiber*)) {
  threads_of_block = threads, body_of_block = body, on_end = ended;
  first_ready = readies = ended_fibers = 0;
  for (unsigned i = 0; i < threads; i++) {
    Fiber& fiber = fibers[i];
    fiber.ended = false, fiber.waits_for = nullptr, fiber.key = nullptr;
    // Where the function would return to lies above: stacks are aligned to 16 bytes before a call.
    void** top = (void**)(stacks + (i + 1) * STACK_BYTES) - 1;
    *top = nullptr, *--top = (void*)start_fiber;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    fiber.stack_pointer = top;
    ready[readies++] = &fiber;
  }
  Fiber* fiber = next();
  enter(fiber);
  emulated_switch(&scheduler, fiber->stack_pointer);
  machine.current = nullptr;
}

void abandon_fibers() {
  void* nowhere;
  ended_fibers = threads_of_block;
  emulated_switch(&nowhere, scheduler);
  __builtin_unreachable();
}

unsigned waiting_fibers() { return threads_of_block - ended_fibers; }

void suspend(const char* what, const void* key, unsigned long long detail) {
  Fiber* self = machine.current;
  self->waits_for = what, self->key = key, self->detail = detail;
  leave(self);
}

void make_ready(Fiber* fiber) {
  fiber->waits_for = nullptr, fiber->key = nullptr;
  ready[(first_ready + readies++) % MOST_FIBERS] = fiber;
}

void wake(const void* key) {
  for (unsigned i = 0; i < threads_of_block; i++)
    if (fibers[i].key == key) make_ready(&fibers[i]);
}

void pass() {
  Fiber* self = machine.current;
  make_ready(self);
  leave(self);
}

}  // namespace emulated
