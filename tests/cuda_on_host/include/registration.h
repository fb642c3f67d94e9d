// How the driver calls a kernel: arguments are unpacked by the types that the kernel declares.
#pragma once

namespace emulated {
template <class T> struct Signature;
template <class... Arguments> struct Signature<void (*)(Arguments...)> {
  static constexpr unsigned count = sizeof...(Arguments);
  static constexpr unsigned sizes[count + 1] = {sizeof(Arguments)..., 0};
};
template <int... INDICES> struct Indices {};
template <int COUNT, int... INDICES> struct UpTo : UpTo<COUNT - 1, COUNT - 1, INDICES...> {};
template <int... INDICES> struct UpTo<0, INDICES...> {
  typedef Indices<INDICES...> Type;
};
template <class... Arguments, int... INDICES>
static inline void unpack(void (*kernel)(Arguments...), void** arguments, Indices<INDICES...>) {
  kernel(*(typename Same<Arguments>::Type*)arguments[INDICES]...);
}
template <class... Arguments> static inline void call_kernel(void (*kernel)(Arguments...), void** arguments) {
  unpack(kernel, arguments, typename UpTo<sizeof...(Arguments)>::Type());
}
template <class... Rest> constexpr int first_of(int first, Rest...) { return first; }
}  // namespace emulated
