// Atomics on integers: threads run one at a time, so a plain read and write is atomic.
#pragma once

#define EMULATED_ATOMIC(name, T, expression)                    \
  static inline T atomic##name(T* address, T value) {           \
    T old = *address;                                           \
    *address = (expression);                                    \
    return old;                                                 \
  }                                                             \
  static inline T atomic##name##_block(T* address, T value) { return atomic##name(address, value); }
#define EMULATED_ATOMICS(T)                                     \
  EMULATED_ATOMIC(Add, T, old + value)                          \
  EMULATED_ATOMIC(Min, T, value < old ? value : old)            \
  EMULATED_ATOMIC(Max, T, value > old ? value : old)            \
  EMULATED_ATOMIC(Exch, T, value)                               \
  EMULATED_ATOMIC(And, T, old & value)                          \
  EMULATED_ATOMIC(Or, T, old | value)                           \
  EMULATED_ATOMIC(Xor, T, old ^ value)                          \
  static inline T atomicCAS(T* address, T expected, T value) {  \
    T old = *address;                                           \
    if (old == expected) *address = value;                      \
    return old;                                                 \
  }
EMULATED_ATOMICS(int)
EMULATED_ATOMICS(unsigned)
EMULATED_ATOMICS(unsigned long long)
EMULATED_ATOMIC(Min, long long, value < old ? value : old)
EMULATED_ATOMIC(Max, long long, value > old ? value : old)
EMULATED_ATOMIC(Sub, int, old - value)
EMULATED_ATOMIC(Sub, unsigned, old - value)
EMULATED_ATOMIC(Inc, unsigned, old >= value ? 0 : old + 1)
EMULATED_ATOMIC(Dec, unsigned, old == 0 || old > value ? value : old - 1)
#undef EMULATED_ATOMICS
#undef EMULATED_ATOMIC
