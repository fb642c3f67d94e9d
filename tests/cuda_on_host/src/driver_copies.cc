// Copies and fills, in their stream's order.
#include <string.h>

#include "driver.h"

using namespace emulated;

namespace {

// The driver's description of a copy of rows, as cuda.h lays it out.
struct Rows {
  size_t from_x, from_y;
  unsigned from_kind;
  const void* from_host;
  uint64_t from_device;
  void* from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  unsigned to_kind;
  void* to_host;
  uint64_t to_device;
  void* to_array;
  size_t to_pitch;
  size_t bytes, rows;
};
constexpr unsigned HOST = 1, DEVICE = 2;

Result copy_rows(const Rows& copy) {
  if (copy.from_kind - HOST > 1 || copy.to_kind - HOST > 1) return NOT_SUPPORTED;
  if (copy.bytes > copy.from_pitch || copy.bytes > copy.to_pitch) return INVALID_VALUE;
  const char* from = copy.from_kind == HOST ? (const char*)copy.from_host : (const char*)copy.from_device;
  char* to = copy.to_kind == HOST ? (char*)copy.to_host : (char*)copy.to_device;
  for (size_t row = 0; row < copy.rows; row++) {
    const char* source = from + (copy.from_y + row) * copy.from_pitch + copy.from_x;
    char* target = to + (copy.to_y + row) * copy.to_pitch + copy.to_x;
    if (copy.from_kind == DEVICE) expect_device("cuMemcpy2D (from)", (uint64_t)source, copy.bytes);
    if (copy.to_kind == DEVICE) expect_device("cuMemcpy2D (to)", (uint64_t)target, copy.bytes);
    if (copy.from_kind == DEVICE && copy.to_kind == HOST) note_copy(source, copy.bytes);
    memcpy(target, source, copy.bytes);
  }
  return SUCCESS;
}

Result copy(void* stream, void* to, const void* from, size_t bytes) {
  return enqueue(stream, [=] {
    memmove(to, from, bytes);
    return SUCCESS;
  });
}

template <class T> Result fill(void* stream, const char* call, uint64_t address, T value, size_t elements) {
  expect_device(call, address, elements * sizeof(T));
  return enqueue(stream, [=] {
    if (sizeof(T) == 1) memset((void*)address, (int)value, elements);
    else for (size_t i = 0; i < elements; i++) ((T*)address)[i] = value;
    return SUCCESS;
  });
}

}  // namespace

DRIVER cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  EMULATED_CALL;
  expect_device(__func__, to, bytes), expect_host(__func__, from);
  return copy(stream, (void*)to, from, bytes);
}
DRIVER cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  EMULATED_CALL;
  expect_device(__func__, from, bytes), expect_host(__func__, to);
  return enqueue(stream, [=] {
    note_copy((const void*)from, bytes);
    memcpy(to, (const void*)from, bytes);
    return SUCCESS;
  });
}
DRIVER cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  EMULATED_CALL;
  expect_device(__func__, from, bytes), expect_device(__func__, to, bytes);
  if (bytes && from < to + bytes && to < from + bytes) die("cuMemcpyDtoD: source and target overlap");
  return copy(stream, (void*)to, (const void*)from, bytes);
}
DRIVER cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  if (int result = cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr)) return result;
  return finish(nullptr);
}
DRIVER cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  if (int result = cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr)) return result;
  return finish(nullptr);
}
DRIVER cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  if (int result = cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr)) return result;
  return finish(nullptr);
}
DRIVER cuMemcpy2DAsync_v2(const Rows* rows, void* stream) {
  EMULATED_CALL;
  Rows all = *rows;
  return enqueue(stream, [=] { return copy_rows(all); });
}
DRIVER cuMemcpy2D_v2(const Rows* rows) {
  if (int result = cuMemcpy2DAsync_v2(rows, nullptr)) return result;
  return finish(nullptr);
}
DRIVER cuMemsetD8Async(uint64_t address, unsigned char value, size_t elements, void* stream) {
  EMULATED_CALL;
  return fill(stream, __func__, address, value, elements);
}
DRIVER cuMemsetD16Async(uint64_t address, unsigned short value, size_t elements, void* stream) {
  EMULATED_CALL;
  return fill(stream, __func__, address, value, elements);
}
DRIVER cuMemsetD32Async(uint64_t address, unsigned value, size_t elements, void* stream) {
  EMULATED_CALL;
  return fill(stream, __func__, address, value, elements);
}
DRIVER cuMemsetD8_v2(uint64_t address, unsigned char value, size_t elements) {
  if (int result = cuMemsetD8Async(address, value, elements, nullptr)) return result;
  return finish(nullptr);
}
DRIVER cuMemsetD16_v2(uint64_t address, unsigned short value, size_t elements) {
  if (int result = cuMemsetD16Async(address, value, elements, nullptr)) return result;
  return finish(nullptr);
}
DRIVER cuMemsetD32_v2(uint64_t address, unsigned value, size_t elements) {
  if (int result = cuMemsetD32Async(address, value, elements, nullptr)) return result;
  return finish(nullptr);
}
