// Calls of kernels by the driver: arguments are unpacked according to the parameter types of the kernel.
#pragma once

namespace emulated {
template <class T> struct Signature;
template <class... Arguments> struct Signature<void (*)(Arguments...)> {
  static constexpr unsigned count = sizeof...(Arguments);
  static constexpr unsigned sizes[count + 1] = {sizeof(Arguments)..., 0};
};
template <int... Places> struct Indices {};
template <int Count, int... Places> struct UpTo : UpTo<Count - 1, Count - 1, Places...> {};
template <int... Places> struct UpTo<0, Places...> {
  typedef Indices<Places...> Type;
};
template <class... Arguments, int... Places>
static inline void unpack(void (*kernel)(Arguments...), void** arguments, Indices<Places...>) {
  kernel(*(typename Same<Arguments>::Type*)arguments[Places]...);
}
template <class... Arguments> static inline void call_kernel(void (*kernel)(Arguments...), void** arguments) {
  unpack(kernel, arguments, typename UpTo<sizeof...(Arguments)>::Type());
}
template <class... Rest> constexpr int first_of(int first, Rest...) { return first; }
}  // namespace emulated
