// What the tests of the emulated driver share: its functions, and a device with the kernels of kernels.cu.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
int cuInit(unsigned);
int cuDeviceGetAttribute(int*, int, int);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemFree_v2(uint64_t);
int cuPointerGetAttribute(void*, int, uint64_t);
int cuMemcpyHtoD_v2(uint64_t, const void*, size_t);
int cuMemcpyDtoH_v2(void*, uint64_t, size_t);
int cuCtxSynchronize();
int cuStreamCreate(void**, unsigned);
int cuStreamSynchronize(void*);
int cuStreamWaitEvent(void*, void*, unsigned);
int cuEventCreate(void**, unsigned);
int cuEventRecord(void*, void*);
int cuEventSynchronize(void*);
int cuEventQuery(void*);
int cuEventDestroy_v2(void*);
int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int nvrtcCompileProgram(void*, int, const char* const*);
int nvrtcGetProgramLogSize(void*, size_t*);
int nvrtcGetProgramLog(void*, char*);
int nvrtcGetCUBINSize(void*, size_t*);
int nvrtcGetCUBIN(void*, char*);
}

inline int failures;
inline void expect(bool good, const char* what) {
  printf("%s %s\n", good ? "ok    " : "FAILED", what);
  failures += !good;
}
inline std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A device, current when it is made, with the kernels of kernels.cu.
struct Device {
  void *context = nullptr, *module = nullptr;
  std::string image;
  bool is_hopper = false;

  Device(const std::string& folder, int ordinal) {
    int major = 0;
    cuInit(0), cuDeviceGetAttribute(&major, 75, ordinal), cuDevicePrimaryCtxRetain(&context, ordinal);
    is_hopper = major >= 9;
    std::string source = read(folder + "/selftest/kernels.cu");
    std::string helpers = read(folder + "/../../src/backend/cuda/device.cuh");
    const char *names[] = {"device.cuh", "ptx.cuh"}, *texts[] = {helpers.c_str(), "#error not replaced"};
    void* program;
    nvrtcCreateProgram(&program, source.c_str(), "kernels.cu", 2, texts, names);
    const char* options[] = {is_hopper ? "--gpu-architecture=sm_90a" : "--gpu-architecture=sm_80", "--std=c++17", "-default-device"};
    int compiled = nvrtcCompileProgram(program, 3, options);
    size_t bytes;
    nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, 0);
    nvrtcGetProgramLog(program, log.data());
    if (compiled) printf("%s\n", log.c_str()), exit(1);
    nvrtcGetCUBINSize(program, &bytes);
    image.assign(bytes, 0);
    nvrtcGetCUBIN(program, image.data());
    bind();
    expect(cuModuleLoadData(&module, image.data()) == 0, "a module loads");
  }

  int bind() { return cuCtxSetCurrent(context); }
  template <class... Arguments> int launch(const char* name, unsigned grid, unsigned block, unsigned shared, Arguments... arguments) {
    return launch_in(nullptr, name, grid, block, shared, arguments...);
  }
  template <class... Arguments>
  int launch_in(void* stream, const char* name, unsigned grid, unsigned block, unsigned shared, Arguments... arguments) {
    void* function = nullptr;
    if (int result = cuModuleGetFunction(&function, module, name)) return result;
    void* pointers[] = {(void*)&arguments..., nullptr};
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, pointers, nullptr);
  }
};

template <class T> uint64_t upload(const std::vector<T>& values) {
  uint64_t address = 0;
  cuMemAlloc_v2(&address, values.size() * sizeof(T));
  cuMemcpyHtoD_v2(address, values.data(), values.size() * sizeof(T));
  return address;
}
template <class T> std::vector<T> download(uint64_t address, size_t elements) {
  std::vector<T> values(elements);
  cuMemcpyDtoH_v2(values.data(), address, elements * sizeof(T));
  return values;
}
