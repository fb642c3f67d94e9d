// Conversions with a rounding mode, bit operations on words, and operations on the bytes or halves of a word.
#pragma once

namespace emulated {
// The device's conversions saturate; NaN becomes 0.
template <class To, class From> static inline To saturated(From rounded) {
  constexpr bool is_signed = (To)-1 < (To)0;
  constexpr int bits = 8 * sizeof(To) - is_signed;
  if (__builtin_isnan(rounded)) return 0;
  constexpr To most = (To)(is_signed ? ~((unsigned long long)1 << (8 * sizeof(To) - 1)) : ~0ull);
  if (rounded >= (From)__builtin_ldexp(1.0, bits)) return most;
  if (rounded < (is_signed ? (From)-__builtin_ldexp(1.0, bits) : (From)0)) return is_signed ? (To)(-most - 1) : (To)0;
  return (To)rounded;
}
}  // namespace emulated

#define EMULATED_CONVERSION(from, From, to, To)                                                                       \
  static inline To __##from##2##to##_rn(From x) { return emulated::saturated<To, From>((From)__builtin_rint(x)); }    \
  static inline To __##from##2##to##_rz(From x) { return emulated::saturated<To, From>((From)__builtin_trunc(x)); }   \
  static inline To __##from##2##to##_ru(From x) { return emulated::saturated<To, From>((From)__builtin_ceil(x)); }    \
  static inline To __##from##2##to##_rd(From x) { return emulated::saturated<To, From>((From)__builtin_floor(x)); }
EMULATED_CONVERSION(float, float, int, int)
EMULATED_CONVERSION(float, float, uint, unsigned)
EMULATED_CONVERSION(float, float, ll, long long)
EMULATED_CONVERSION(float, float, ull, unsigned long long)
EMULATED_CONVERSION(double, double, int, int)
EMULATED_CONVERSION(double, double, uint, unsigned)
EMULATED_CONVERSION(double, double, ll, long long)
EMULATED_CONVERSION(double, double, ull, unsigned long long)
#undef EMULATED_CONVERSION
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }

namespace emulated {
template <class To, class From> static inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emulated
static inline unsigned __float_as_uint(float x) { return emulated::same_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emulated::same_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emulated::same_bits<float>(x); }
static inline float __int_as_float(int x) { return emulated::same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emulated::same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulated::same_bits<double>(x); }
static inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
static inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)(((unsigned long long)(unsigned)high << 32) | (unsigned)low));
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
  x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
  return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
  return ((unsigned long long)__brev((unsigned)x) << 32) | __brev((unsigned)(x >> 32));
}
namespace emulated {
// Each nibble of the selector chooses one byte; its high bit replicates the sign of that byte instead.
static inline unsigned permute(unsigned a, unsigned b, unsigned selector) {
  unsigned long long bytes = ((unsigned long long)b << 32) | a;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned choice = selector >> 4 * i, byte = (unsigned)(bytes >> 8 * (choice & 7)) & 255;
    if (choice & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * i;
  }
  return result;
}
}  // namespace emulated
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) { return emulated::permute(a, b, s & 0x7777); }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)((((unsigned long long)high << 32) | low) >> (shift & 31));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((((unsigned long long)high << 32) | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }

namespace emulated {
template <class A, class B> static inline int dot4(A a, B b, int c) {
  for (int i = 0; i < 4; i++) c = (int)((unsigned)c + (unsigned)((a < 0 || (A)-1 < 0 ? (int)(signed char)(a >> 8 * i) : (int)(unsigned char)(a >> 8 * i)) *
                                        ((B)-1 < 0 ? (int)(signed char)(b >> 8 * i) : (int)(unsigned char)(b >> 8 * i))));
  return c;
}
template <int Width, class Operation> static inline unsigned by_lanes(unsigned a, unsigned b, Operation operation) {
  unsigned result = 0, mask = Width == 8 ? 255 : 65535;
  for (int i = 0; i < 32; i += Width) result |= (operation((a >> i) & mask, (b >> i) & mask) & mask) << i;
  return result;
}
}  // namespace emulated
static inline int __dp4a(int a, int b, int c) { return emulated::dot4(a, b, c); }
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return (unsigned)emulated::dot4(a, b, (int)c); }
#define EMULATED_LANES(name, expression)                                                                                        \
  static inline unsigned __v##name##4(unsigned a, unsigned b) {                                                                 \
    typedef signed char S; typedef unsigned char U; (void)sizeof(S); (void)sizeof(U);                                           \
    return emulated::by_lanes<8>(a, b, [](unsigned x, unsigned y) -> unsigned { return (unsigned)(expression); });              \
  }                                                                                                                             \
  static inline unsigned __v##name##2(unsigned a, unsigned b) {                                                                 \
    typedef short S; typedef unsigned short U; (void)sizeof(S); (void)sizeof(U);                                                \
    return emulated::by_lanes<16>(a, b, [](unsigned x, unsigned y) -> unsigned { return (unsigned)(expression); });             \
  }
EMULATED_LANES(add, x + y)
EMULATED_LANES(sub, x - y)
EMULATED_LANES(minu, x < y ? x : y)
EMULATED_LANES(maxu, x > y ? x : y)
EMULATED_LANES(mins, (S)x < (S)y ? x : y)
EMULATED_LANES(maxs, (S)x > (S)y ? x : y)
EMULATED_LANES(absdiffu, x > y ? x - y : y - x)
EMULATED_LANES(avgu, (x + y + 1) >> 1)
EMULATED_LANES(cmpeq, x == y ? ~0u : 0u)
EMULATED_LANES(cmpgtu, x > y ? ~0u : 0u)
EMULATED_LANES(cmpgeu, x >= y ? ~0u : 0u)
EMULATED_LANES(cmpltu, x < y ? ~0u : 0u)
EMULATED_LANES(addus, x + y > (U)~0u ? (U)~0u : x + y)
EMULATED_LANES(subus, x > y ? x - y : 0u)
#undef EMULATED_LANES
static inline unsigned __sad(int a, int b, unsigned c) { return c + (unsigned)(a > b ? a - b : b - a); }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }

#define EMULATED_LOADS(name) template <class T> static inline T name(const T* p) { return *p; }
EMULATED_LOADS(__ldg)
EMULATED_LOADS(__ldcs)
EMULATED_LOADS(__ldcg)
EMULATED_LOADS(__ldca)
EMULATED_LOADS(__ldlu)
EMULATED_LOADS(__ldcv)
#undef EMULATED_LOADS
namespace emulated {
template <class T> struct Same { typedef T Type; };
}
#define EMULATED_STORES(name) template <class T> static inline void name(T* p, typename emulated::Same<T>::Type v) { *p = v; }
EMULATED_STORES(__stcs)
EMULATED_STORES(__stcg)
EMULATED_STORES(__stwb)
EMULATED_STORES(__stwt)
#undef EMULATED_STORES
