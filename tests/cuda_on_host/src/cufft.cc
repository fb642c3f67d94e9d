// The emulated transforms: sums in f64, by factors of the length, or as they are written for large primes.
#include <dlfcn.h>
#include <math.h>
#include <stddef.h>

#include <complex>
#include <functional>
#include <mutex>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

typedef std::complex<double> Complex;
typedef std::complex<float> Single;
enum Answer { SUCCESS = 0, INVALID_PLAN = 1, INVALID_TYPE = 3, INVALID_VALUE = 4, EXEC_FAILED = 6, INVALID_SIZE = 8, INVALID_DEVICE = 11 };
enum Kind { R2C = 0x2a, C2R = 0x2c, C2C = 0x29 };

struct Layout {
  long stride, distance;
};

struct Plan {
  int kind;
  long length, batch;
  Layout in, out;
  void* stream = nullptr;
  int device = -1;  // current when the plan was made; -1 without the emulated driver
};

// Returns a function of the emulated driver; null if this process has not loaded it.
template <class Function> Function driver(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return nullptr;
  auto found = (Function)dlsym(library, name);
  dlclose(library);
  return found;
}

// Threads make plans at the same time, and each uses its own.
std::mutex plans_change;
std::vector<Plan*> plans;

// values[i * stride] for i below n, to `out`; `roots` holds exp(sign 2 pi i k / whole), and n divides whole.
void transform(const Complex* values, long stride, long n, const std::vector<Complex>& roots, Complex* out) {
  if (n == 1) {
    *out = *values;
    return;
  }
  long whole = (long)roots.size(), factor = 2;
  while (factor * factor <= n && n % factor) factor++;
  if (n % factor) factor = n;
  long rest = n / factor, step = whole / n;
  std::vector<Complex> parts((size_t)n);
  for (long i = 0; i < factor; i++) transform(values + i * stride, stride * factor, rest, roots, &parts[(size_t)(i * rest)]);
  for (long k = 0; k < n; k++) {
    Complex sum = 0;
    for (long i = 0; i < factor; i++) sum += parts[(size_t)(i * rest + k % rest)] * roots[(size_t)(i * k % n * step)];
    out[k] = sum;
  }
}

std::vector<Complex> roots_of_one(long n, int sign) {
  std::vector<Complex> roots((size_t)n);
  for (long k = 0; k < n; k++) roots[(size_t)k] = std::polar(1.0, sign * 2 * M_PI * (double)k / (double)n);
  return roots;
}

// Runs each transform of a batch: `load` and `store` know the types on both sides.
void run(const Plan& plan, int sign, const std::function<Complex(long, long)>& load, const std::function<void(long, long, Complex)>& store) {
  std::vector<Complex> roots = roots_of_one(plan.length, sign), in((size_t)plan.length), out((size_t)plan.length);
  for (long b = 0; b < plan.batch; b++) {
    for (long i = 0; i < plan.length; i++) in[(size_t)i] = load(b, i);
    transform(in.data(), 1, plan.length, roots, out.data());
    for (long i = 0; i < plan.length; i++) store(b, i, out[(size_t)i]);
  }
}

Plan* plan_at(int handle) {
  std::lock_guard<std::mutex> lock(plans_change);
  return handle > 0 && (size_t)handle <= plans.size() ? plans[(size_t)handle - 1] : nullptr;
}

int add(int* handle, const Plan& plan) {
  if (plan.kind != C2C && plan.kind != R2C && plan.kind != C2R) return INVALID_TYPE;
  if (plan.length < 1 || plan.batch < 1) return INVALID_SIZE;
  int device = -1;
  auto current = driver<int (*)(int*)>("cuCtxGetDevice");
  if (current && current(&device)) device = -1;
  std::lock_guard<std::mutex> lock(plans_change);
  plans.push_back(new Plan(plan));
  plans.back()->device = device;
  *handle = (int)plans.size();
  return SUCCESS;
}

// Runs each transform of a plan after the earlier work of its stream.
template <class Load, class Store> int execute(const Plan& plan, int sign, Load load, Store store) {
  auto work = [&] { run(plan, sign, load, store); };
  auto run_in = driver<int (*)(int, void*, void (*)(void*), void*)>("emulated_run_in");
  if (!run_in) return work(), SUCCESS;
  int result = run_in(plan.device, plan.stream, [](void* data) { (*(decltype(work)*)data)(); }, &work);
  return result == 0 ? SUCCESS : result == 101 ? INVALID_DEVICE : EXEC_FAILED;
}

}  // namespace

API cufftGetVersion(int* version) { return *version = 12000, SUCCESS; }
API cufftCreate(int* handle) { return add(handle, {C2C, 1, 1, {1, 1}, {1, 1}}); }
API cufftPlan1d(int* handle, int length, int kind, int batch) {
  long half = length / 2 + 1;
  return add(handle, {kind, length, batch, {1, kind == C2R ? half : length}, {1, kind == R2C ? half : length}});
}
API cufftPlanMany(int* handle, int rank, int* n, int* in_embed, int in_stride, int in_distance, int* out_embed, int out_stride,
                  int out_distance, int kind, int batch) {
  if (rank != 1 || !n) return INVALID_VALUE;
  if (!in_embed || !out_embed) return cufftPlan1d(handle, *n, kind, batch);
  return add(handle, {kind, *n, batch, {in_stride, in_distance}, {out_stride, out_distance}});
}
API cufftMakePlanMany(int handle, int rank, int* n, int* in_embed, int in_stride, int in_distance, int* out_embed, int out_stride,
                      int out_distance, int kind, int batch, size_t* work) {
  Plan* plan = plan_at(handle);
  if (!plan) return INVALID_PLAN;
  int made = 0;
  int answer = cufftPlanMany(&made, rank, n, in_embed, in_stride, in_distance, out_embed, out_stride, out_distance, kind, batch);
  if (answer) return answer;
  void* stream = plan->stream;
  *plan = *plan_at(made), plan->stream = stream;
  if (work) *work = 0;
  return SUCCESS;
}
API cufftDestroy(int handle) {
  Plan* plan = plan_at(handle);
  if (!plan) return INVALID_PLAN;
  std::lock_guard<std::mutex> lock(plans_change);
  plans[(size_t)handle - 1] = nullptr;
  delete plan;
  return SUCCESS;
}
API cufftSetStream(int handle, void* stream) {
  Plan* plan = plan_at(handle);
  return plan ? (plan->stream = stream, SUCCESS) : INVALID_PLAN;
}
API cufftSetAutoAllocation(int handle, int) { return plan_at(handle) ? SUCCESS : INVALID_PLAN; }
API cufftSetWorkArea(int handle, void*) { return plan_at(handle) ? SUCCESS : INVALID_PLAN; }
API cufftGetSize(int handle, size_t* bytes) { return plan_at(handle) ? (*bytes = 0, SUCCESS) : INVALID_PLAN; }

API cufftExecC2C(int handle, Single* in, Single* out, int direction) {
  Plan* plan = plan_at(handle);
  if (!plan || plan->kind != C2C) return INVALID_PLAN;
  if (direction != -1 && direction != 1) return INVALID_VALUE;
  auto load = [&](long b, long i) { return Complex(in[b * plan->in.distance + i * plan->in.stride]); };
  auto store = [&](long b, long i, Complex value) { out[b * plan->out.distance + i * plan->out.stride] = Single(value); };
  return execute(*plan, direction, load, store);
}
API cufftExecR2C(int handle, const float* in, Single* out) {
  Plan* plan = plan_at(handle);
  if (!plan || plan->kind != R2C) return INVALID_PLAN;
  auto load = [&](long b, long i) { return Complex(in[b * plan->in.distance + i * plan->in.stride]); };
  auto store = [&](long b, long i, Complex value) {
    if (i <= plan->length / 2) out[b * plan->out.distance + i * plan->out.stride] = Single(value);
  };
  return execute(*plan, -1, load, store);
}
API cufftExecC2R(int handle, const Single* in, float* out) {
  Plan* plan = plan_at(handle);
  if (!plan || plan->kind != C2R) return INVALID_PLAN;
  auto load = [&](long b, long i) {
    bool mirrored = i > plan->length / 2;
    Complex value(in[b * plan->in.distance + (mirrored ? plan->length - i : i) * plan->in.stride]);
    return mirrored ? std::conj(value) : value;
  };
  auto store = [&](long b, long i, Complex value) { out[b * plan->out.distance + i * plan->out.stride] = (float)value.real(); };
  return execute(*plan, 1, load, store);
}
