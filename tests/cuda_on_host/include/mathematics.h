// CUDA's mathematical functions. Those that the device approximates have the accuracy of the host's library.
#pragma once

#define EMULATED_1(name)                                                 \
  static inline float name##f(float x) { return __builtin_##name##f(x); } \
  static inline double name(double x) { return __builtin_##name(x); }     \
  static inline float name(float x) { return __builtin_##name##f(x); }
#define EMULATED_2(name)                                                                      \
  static inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }         \
  static inline double name(double x, double y) { return __builtin_##name(x, y); }            \
  static inline float name(float x, float y) { return __builtin_##name##f(x, y); }

EMULATED_1(sqrt)
EMULATED_1(cbrt)
EMULATED_1(sin)
EMULATED_1(cos)
EMULATED_1(tan)
EMULATED_1(asin)
EMULATED_1(acos)
EMULATED_1(atan)
EMULATED_1(sinh)
EMULATED_1(cosh)
EMULATED_1(tanh)
EMULATED_1(exp)
EMULATED_1(exp2)
EMULATED_1(expm1)
EMULATED_1(log)
EMULATED_1(log2)
EMULATED_1(log10)
EMULATED_1(log1p)
EMULATED_1(erf)
EMULATED_1(erfc)
EMULATED_1(round)
EMULATED_1(rint)
EMULATED_1(nearbyint)
EMULATED_1(trunc)
EMULATED_1(floor)
EMULATED_1(ceil)
EMULATED_1(fabs)
EMULATED_2(pow)
EMULATED_2(fmin)
EMULATED_2(fmax)
EMULATED_2(fmod)
EMULATED_2(atan2)
EMULATED_2(hypot)
EMULATED_2(copysign)
#undef EMULATED_1
#undef EMULATED_2

static inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
static inline double ldexp(double x, int e) { return __builtin_ldexp(x, e); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
static inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
static inline float frexpf(float x, int* e) { return __builtin_frexpf(x, e); }
static inline void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
static inline void sincos(double x, double* s, double* c) { *s = __builtin_sin(x), *c = __builtin_cos(x); }
// Computes the sine and cosine of pi x, with exact reduction to a quadrant.
static inline void sincospi(double x, double* s, double* c) {
  double turns = x - 2 * __builtin_floor(x / 2), quarter = __builtin_rint(2 * turns), rest = turns - quarter / 2;
  double sine = __builtin_sin(3.14159265358979323846 * rest), cosine = __builtin_cos(3.14159265358979323846 * rest);
  switch ((int)quarter & 3) {
    case 0: *s = sine, *c = cosine; break;
    case 1: *s = cosine, *c = -sine; break;
    case 2: *s = -sine, *c = -cosine; break;
    default: *s = -cosine, *c = sine;
  }
}
static inline void sincospif(float x, float* s, float* c) {
  double sine, cosine;
  sincospi(x, &sine, &cosine), *s = (float)sine, *c = (float)cosine;
}
static inline float sinpif(float x) { float s, c; sincospif(x, &s, &c); return s; }
static inline float cospif(float x) { float s, c; sincospif(x, &s, &c); return c; }
static inline double sinpi(double x) { double s, c; sincospi(x, &s, &c); return s; }
static inline double cospi(double x) { double s, c; sincospi(x, &s, &c); return c; }
static inline bool isfinite(float x) { return __builtin_isfinite(x); }
static inline bool isfinite(double x) { return __builtin_isfinite(x); }
static inline bool isnan(float x) { return __builtin_isnan(x); }
static inline bool isnan(double x) { return __builtin_isnan(x); }
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }

#define EMULATED_EXTREMES(T)                                     \
  static inline T min(T a, T b) { return a < b ? a : b; }         \
  static inline T max(T a, T b) { return a > b ? a : b; }
EMULATED_EXTREMES(int)
EMULATED_EXTREMES(unsigned)
EMULATED_EXTREMES(long)
EMULATED_EXTREMES(unsigned long)
EMULATED_EXTREMES(long long)
EMULATED_EXTREMES(unsigned long long)
#undef EMULATED_EXTREMES
static inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static inline float min(float a, float b) { return __builtin_fminf(a, b); }
static inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
static inline double min(double a, double b) { return __builtin_fmin(a, b); }
static inline double max(double a, double b) { return __builtin_fmax(a, b); }
static inline int abs(int a) { return a < 0 ? -a : a; }
static inline long long abs(long long a) { return a < 0 ? -a : a; }
static inline long long llabs(long long a) { return a < 0 ? -a : a; }
static inline float abs(float a) { return __builtin_fabsf(a); }
static inline double abs(double a) { return __builtin_fabs(a); }

// --- one rounding, and no fusing with the next operation
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
static inline float __frsqrt_rn(float a) { return rsqrtf(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline double __drcp_rn(double a) { return 1.0 / a; }
static inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
// --- the device's fast forms
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __sinf(float x) { return __builtin_sinf(x); }
static inline float __cosf(float x) { return __builtin_cosf(x); }
static inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
static inline float __expf(float x) { return __builtin_expf(x); }
static inline float __exp2f(float x) { return __builtin_exp2f(x); }
static inline float __logf(float x) { return __builtin_logf(x); }
static inline float __log2f(float x) { return __builtin_log2f(x); }
static inline float __log10f(float x) { return __builtin_log10f(x); }
static inline float __powf(float x, float y) { return __builtin_powf(x, y); }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
