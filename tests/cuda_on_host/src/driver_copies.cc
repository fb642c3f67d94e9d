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
// The description of a copy of boxes between devices.
struct Boxes {
  struct End {
    size_t x, y, z, lod;
    unsigned kind;
    void* host;
    uint64_t device;
    void* array;
    void* context;
    size_t pitch, height;

    uint64_t row(size_t layer, size_t row) const { return device + ((z + layer) * height + y + row) * pitch + x; }
  } from, to;
  size_t bytes, rows, layers;
};
constexpr unsigned HOST = 1, DEVICE = 2;

// Calls `visit` with both ends of each row.
template <class Visit> void for_each_row(const Rows& copy, Visit visit) {
  const char* from = copy.from_kind == HOST ? (const char*)copy.from_host : (const char*)copy.from_device;
  char* to = copy.to_kind == HOST ? (char*)copy.to_host : (char*)copy.to_device;
  for (size_t row = 0; row < copy.rows; row++)
    visit(to + (copy.to_y + row) * copy.to_pitch + copy.to_x, from + (copy.from_y + row) * copy.from_pitch + copy.from_x);
}

Result copy(void* stream, void* to, const void* from, size_t bytes) {
  return enqueue(stream, [=] {
    memmove(to, from, bytes);
    return SUCCESS;
  });
}

template <class T> Result fill(void* stream, const char* call, uint64_t address, T value, size_t elements) {
  expect_device(call, device_of_stream(stream), address, elements * sizeof(T));
  return enqueue(stream, [=] {
    if (sizeof(T) == 1) memset((void*)address, (int)value, elements);
    else for (size_t i = 0; i < elements; i++) ((T*)address)[i] = value;
    return SUCCESS;
  });
}

bool overlap(uint64_t to, uint64_t from, size_t bytes) { return bytes && from < to + bytes && to < from + bytes; }

}  // namespace

DRIVER cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  expect_device(__func__, device_of_stream(stream), to, bytes), expect_host(__func__, from);
  return copy(stream, (void*)to, from, bytes);
}
DRIVER cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  expect_device(__func__, device_of_stream(stream), from, bytes), expect_host(__func__, to);
  return enqueue(stream, [=] {
    note_copy((const void*)from, bytes);
    memcpy(to, (const void*)from, bytes);
    return SUCCESS;
  });
}
DRIVER cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  int device = device_of_stream(stream);
  expect_device(__func__, device, from, bytes), expect_device(__func__, device, to, bytes);
  if (overlap(to, from, bytes)) die("cuMemcpyDtoD: source and target overlap");
  return copy(stream, (void*)to, (const void*)from, bytes);
}
// Between two devices, with or without access to each other, in a stream of any.
DRIVER cuMemcpyPeerAsync(uint64_t to, void* to_context, uint64_t from, void* from_context, size_t bytes, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  int target = device_of_context(to_context), source = device_of_context(from_context);
  if (target == NO_CONTEXT || source == NO_CONTEXT) return INVALID_CONTEXT;
  for (int device : {target, source})
    if (Result result = failed(device)) return result;
  if (overlap(to, from, bytes)) die("cuMemcpyPeer: source and target overlap");
  auto expect = [=] {
    expect_device("cuMemcpyPeer (from)", source, from, bytes), expect_device("cuMemcpyPeer (to)", target, to, bytes);
  };
  expect();
  return enqueue(stream, [=] {
    // The memory may be freed by now: that of the other device waits for the other device's work only.
    expect();
    show_memory(target, source);
    memcpy((void*)to, (const void*)from, bytes);
    return SUCCESS;
  });
}
// Between device memory only.
DRIVER cuMemcpy3DPeerAsync(const Boxes* boxes, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  Boxes all = *boxes;
  int target = device_of_context(all.to.context), source = device_of_context(all.from.context);
  if (target == NO_CONTEXT || source == NO_CONTEXT) return INVALID_CONTEXT;
  for (int device : {target, source})
    if (Result result = failed(device)) return result;
  if (all.from.kind != DEVICE || all.to.kind != DEVICE) return NOT_SUPPORTED;
  for (const Boxes::End& end : {all.from, all.to})
    if (all.bytes > end.pitch || (all.layers > 1 && all.rows > end.height)) return INVALID_VALUE;
  auto for_each_row = [all](auto visit) {
    for (size_t layer = 0; layer < all.layers; layer++)
      for (size_t row = 0; row < all.rows; row++) visit(all.to.row(layer, row), all.from.row(layer, row));
  };
  auto expect = [=] {
    for_each_row([&](uint64_t to, uint64_t from) {
      expect_device("cuMemcpy3DPeer (from)", source, from, all.bytes), expect_device("cuMemcpy3DPeer (to)", target, to, all.bytes);
      if (overlap(to, from, all.bytes)) die("cuMemcpy3DPeer: source and target overlap");
    });
  };
  expect();
  return enqueue(stream, [=] {
    // As for cuMemcpyPeer.
    expect();
    show_memory(target, source);
    for_each_row([&](uint64_t to, uint64_t from) { memcpy((void*)to, (const void*)from, all.bytes); });
    return SUCCESS;
  });
}
DRIVER cuMemcpyPeer(uint64_t to, void* to_context, uint64_t from, void* from_context, size_t bytes) {
  if (int result = cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, nullptr)) return result;
  return finish(nullptr);
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
  EMULATED_CALL_FOR(device_of_stream(stream));
  Rows all = *rows;
  if (all.from_kind - HOST > 1 || all.to_kind - HOST > 1) return NOT_SUPPORTED;
  if (all.bytes > all.from_pitch || all.bytes > all.to_pitch) return INVALID_VALUE;
  for_each_row(all, [&, device = device_of_stream(stream)](char* to, const char* from) {
    if (all.from_kind == DEVICE) expect_device("cuMemcpy2D (from)", device, (uint64_t)from, all.bytes);
    if (all.to_kind == DEVICE) expect_device("cuMemcpy2D (to)", device, (uint64_t)to, all.bytes);
  });
  return enqueue(stream, [=] {
    for_each_row(all, [&](char* to, const char* from) {
      if (all.from_kind == DEVICE && all.to_kind == HOST) note_copy(from, all.bytes);
      memcpy(to, from, all.bytes);
    });
    return SUCCESS;
  });
}
DRIVER cuMemcpy2D_v2(const Rows* rows) {
  if (int result = cuMemcpy2DAsync_v2(rows, nullptr)) return result;
  return finish(nullptr);
}
DRIVER cuMemsetD8Async(uint64_t address, unsigned char value, size_t elements, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  return fill(stream, __func__, address, value, elements);
}
DRIVER cuMemsetD16Async(uint64_t address, unsigned short value, size_t elements, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
  return fill(stream, __func__, address, value, elements);
}
DRIVER cuMemsetD32Async(uint64_t address, unsigned value, size_t elements, void* stream) {
  EMULATED_CALL_FOR(device_of_stream(stream));
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
