// Modules and launches. A module's image is a shared object that the emulated NVRTC made.
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <vector>

#include "driver.h"
#include "fibers.h"

namespace emulated {
namespace {

struct Function {
  const Kernel* kernel;
  int device;
  unsigned most_shared = 48 * 1024;
};

struct Image {
  void* library;
  int file;  // open as long as the library is: its number is the name that the loader knows the library by
  const Module* module;
  int device;
  std::vector<std::unique_ptr<Function>> functions;
};

std::set<Image*> images;
std::set<Function*> functions;

size_t image_bytes(const Elf64_Ehdr* header) {
  return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

// The shared object, from a file that has no name.
void* load(const void* image, int& file) {
  size_t bytes = image_bytes((const Elf64_Ehdr*)image);
  file = memfd_create("emulated_module", MFD_CLOEXEC);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  bool written = file >= 0 && write(file, image, bytes) == (ssize_t)bytes;
  void* library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) fprintf(stderr, "emulated device: %s\n", written ? dlerror() : "can't write a module");
  return library;
}

void unload(void* library, int file) {
  if (library) dlclose(library);
  if (file >= 0) close(file);
}

// Bytes of the hexadecimal digits behind the head of what stands for PTX; none unless it is whole.
std::string translated(const char* text) {
  const char *head = strstr(text, "\n.target sm_"), *at = head ? strchr(head + 1, '\n') + 1 : "";
  auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::string bytes;
  for (; digit(at[0]) >= 0 && digit(at[1]) >= 0; at += 2) bytes += (char)(digit(at[0]) << 4 | digit(at[1]));
  return strcmp(at, "\n") ? "" : bytes;
}

bool is_for_device(const char* architecture, const Settings& device) {
  int number = 0;
  // The driver translates PTX for every later device.
  if (sscanf(architecture, "compute_%d", &number) == 1) return number <= device.major * 10 + device.minor;
  char letter = 0;
  sscanf(architecture, "sm_%d%c", &number, &letter);
  int major = number / 10, minor = number % 10;
  bool same = major == device.major && minor == device.minor;
  return letter ? same : major == device.major && minor <= device.minor;
}

Function* function_at(void* handle) {
  if (!functions.count((Function*)handle)) die("%p is not a kernel", handle);
  return (Function*)handle;
}

Image* image_at(void* handle) {
  if (!images.count((Image*)handle)) die("%p is not a module", handle);
  return (Image*)handle;
}

Result check_launch(const Function& function, Uint3 grid, Uint3 block, unsigned shared_bytes) {
  unsigned long threads = (unsigned long)block.x * block.y * block.z;
  if (!threads || !grid.x || !grid.y || !grid.z) return INVALID_VALUE;
  if (threads > 1024 || block.z > 64 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return INVALID_VALUE;
  if (shared_bytes > function.most_shared) return INVALID_VALUE;
  if (function.kernel->cluster > MOST_BLOCKS || grid.x % function.kernel->cluster) return INVALID_VALUE;
  if (function.kernel->most_threads && threads > function.kernel->most_threads) {
    fprintf(stderr, "emulated device: kernel %s is bounded to %u threads, not %lu\n", function.kernel->name,
            function.kernel->most_threads, threads);
    return INVALID_VALUE;
  }
  return SUCCESS;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

DRIVER cuModuleLoadData(void** handle, const void* image) {
  EMULATED_CALL;
  std::string made;
  if (!memcmp(image, "//", 2)) {
    made = translated((const char*)image);
    if (made.empty()) return INVALID_PTX;
    image = made.data();
  }
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG)) return INVALID_IMAGE;
  if (header->e_machine != EM_X86_64) return NO_BINARY_FOR_GPU;
  int file;
  void* library = load(image, file);
  const Module* module = library ? (const Module*)dlsym(library, "emulated_module") : nullptr;
  if (!module || !is_for_device(module->architecture, settings(current_device()))) {
    unload(library, file);
    return module ? NO_BINARY_FOR_GPU : INVALID_IMAGE;
  }
  *module->machine = &machine;
  Image* loaded = new Image{library, file, module, current_device(), {}};
  images.insert(loaded);
  *handle = loaded;
  return SUCCESS;
}
DRIVER cuModuleLoadDataEx(void** handle, const void* image, unsigned, int*, void**) { return cuModuleLoadData(handle, image); }

DRIVER cuModuleUnload(void* handle) {
  EMULATED_CALL;
  Image* image = image_at(handle);
  Result result = finish_all(image->device);
  for (auto& function : image->functions) functions.erase(function.get());
  images.erase(image);
  unload(image->library, image->file);
  delete image;
  return result;
}

DRIVER cuModuleGetFunction(void** handle, void* module, const char* name) {
  EMULATED_CALL;
  Image* image = image_at(module);
  for (unsigned i = 0; i < image->module->kernels; i++) {
    const Kernel* kernel = &image->module->kernel[i];
    if (strcmp(kernel->name, name)) continue;
    image->functions.push_back(std::make_unique<Function>(Function{kernel, image->device}));
    *handle = image->functions.back().get();
    functions.insert(image->functions.back().get());
    return SUCCESS;
  }
  return NOT_FOUND;
}

DRIVER cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, void* module, const char* name) {
  EMULATED_CALL;
  void* found = dlsym(image_at(module)->library, name);
  Dl_info info;
  const Elf64_Sym* symbol = nullptr;
  if (!found || !dladdr1(found, &info, (void**)&symbol, RTLD_DL_SYMENT)) return NOT_FOUND;
  if (address) *address = (uint64_t)found;
  if (bytes) *bytes = symbol ? symbol->st_size : 0;
  return SUCCESS;
}

// Attributes by their numbers in cuda.h; 8 is the most dynamic shared memory.
DRIVER cuFuncSetAttribute(void* handle, int attribute, int value) {
  EMULATED_CALL;
  if (attribute != 8) return SUCCESS;
  if (value < 0 || (unsigned)value > MOST_SHARED) return INVALID_VALUE;
  function_at(handle)->most_shared = (unsigned)value;
  return SUCCESS;
}
DRIVER cuFuncGetAttribute(int* value, int attribute, void* handle) {
  EMULATED_CALL;
  Function* function = function_at(handle);
  switch (attribute) {
    case 0: *value = function->kernel->most_threads ? (int)function->kernel->most_threads : 1024; break;
    case 4: *value = 32; break;  // registers
    case 8: *value = (int)function->most_shared; break;
    default: *value = 0;
  }
  return SUCCESS;
}

DRIVER cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int threads, size_t shared_bytes) {
  EMULATED_CALL;
  function_at(handle);
  if (threads < 1 || threads > 1024) return INVALID_VALUE;
  int by_threads = 2048 / ((threads + 31) / 32 * 32), by_shared = (int)((MOST_SHARED + 1024) / (shared_bytes + 1024));
  int most = by_threads < by_shared ? by_threads : by_shared;
  *blocks = most < 32 ? most : 32;
  return SUCCESS;
}

// The size of a cluster stands in the kernel.
DRIVER cuOccupancyMaxActiveClusters(int* clusters, void* handle, const void*) {
  EMULATED_CALL;
  *clusters = (int)(4 / function_at(handle)->kernel->cluster);
  if (!*clusters) *clusters = 1;
  return SUCCESS;
}

DRIVER cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  Function* function = function_at(handle);
  int device = function->device;
  if (device_of_stream(stream) != device || current_device() != device) return INVALID_HANDLE;
  const Kernel* kernel = function->kernel;
  Uint3 grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  if (Result result = check_launch(*function, grid, block, shared_bytes)) return result;
  if (extra) return NOT_SUPPORTED;
  // The driver copies arguments: what they point to is gone when the kernel runs. Each lies as aligned as any type may ask for.
  struct alignas(128) Unit {
    char bytes[128];
  };
  auto units_of = [](unsigned bytes) { return (bytes + sizeof(Unit) - 1) / sizeof(Unit); };
  size_t units = 1;
  for (unsigned i = 0; i < kernel->arguments; i++) units += units_of(kernel->sizes[i]);
  auto copies = std::make_shared<std::vector<Unit>>(units);
  std::vector<void*> pointers;
  Unit* next = copies->data();
  for (unsigned i = 0; i < kernel->arguments; i++) {
    if (!arguments || !arguments[i]) die("kernel %s takes %u arguments, not %u", kernel->name, kernel->arguments, i);
    memcpy(next, arguments[i], kernel->sizes[i]);
    pointers.push_back(next);
    next += units_of(kernel->sizes[i]);
  }
  return enqueue(stream, [=, kept = copies]() mutable {
    make_fault_stack();
    return run({kernel, device, grid, block, shared_bytes, pointers.data()}) ? SUCCESS : LAUNCH_FAILED;
  });
}
