// Runs the kernels of kernels.cu on the emulated device, or lets one of them fail: main FOLDER [KERNEL].
#include <array>

#include "device.h"

extern "C" int cuTensorMapEncodeTiled(void*, unsigned, unsigned, void*, const uint64_t*, const uint64_t*, const unsigned*,
                                      const unsigned*, unsigned, unsigned, unsigned, unsigned);

static std::vector<uint8_t> noise(size_t bytes, unsigned seed) {
  std::vector<uint8_t> values(bytes);
  for (auto& value : values) value = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
  return values;
}

static void simple(Device& device) {
  std::vector<float> x(1000), y(1000);
  for (int i = 0; i < 1000; i++) x[i] = (float)i, y[i] = 1.0f / (float)(i + 1);
  uint64_t at_x = upload(x), at_y = upload(y);
  expect(device.launch("saxpy", 4, 256, 0, 2.0f, at_x, at_y, 1000u) == 0, "saxpy runs");
  auto result = download<float>(at_y, 1000);
  bool same = true;
  for (int i = 0; i < 1000; i++) same &= result[i] == __builtin_fmaf(2.0f, x[i], y[i]);
  expect(same, "saxpy is right");
  expect(cuMemFree_v2(at_x) == 0 && cuMemFree_v2(at_y) == 0, "memory is freed");
}

static void sums(Device& device) {
  std::vector<uint32_t> values(1024);
  for (uint32_t i = 0; i < 1024; i++) values[i] = i * i;
  uint64_t in = upload(values), out = upload(std::vector<uint32_t>(4));
  expect(device.launch("block_sum", 4, 256, 1024, in, out) == 0, "block_sum runs");
  auto result = download<uint32_t>(out, 4);
  bool same = true;
  for (uint32_t b = 0; b < 4; b++) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 256; i++) sum += values[b * 256 + i];
    same &= result[b] == sum;
  }
  expect(same, "block_sum is right");
  expect(device.launch("block_sum", 4, 512, 2048, in, out) != 0, "more threads than the bounds are refused");
  expect(device.launch("block_sum", 4, 256, 60000, in, out) != 0, "shared memory must be asked for");

  uint64_t words = upload(std::vector<uint32_t>(64 * 4));
  expect(device.launch("warp_words", 1, 64, 0, words) == 0, "warp_words runs");
  auto got = download<uint32_t>(words, 64 * 4);
  same = true;
  for (uint32_t t = 0; t < 40; t++) {
    uint32_t lane = t % 32, lanes = t < 32 ? 32 : 8, votes = t < 32 ? 0xaaaaaaaau : 0xaau;
    uint32_t expected[4] = {votes, lanes * (lanes - 1) / 2, lane % 8 == 7 ? lane : lane + 1, (uint32_t)(5 - (int)lanes + 1)};
    same &= !memcmp(expected, &got[4 * t], 16);
  }
  expect(same, "votes, shuffles and reductions are right");
}

static void copies(Device& device) {
  if (!device.is_hopper) return;
  auto bytes = noise(5 * 1024, 1);
  uint64_t in = upload(bytes), out = upload(std::vector<uint32_t>(1));
  expect(device.launch("pipeline", 1, 128, 1024, in, out, 5u) == 0, "pipeline runs");
  uint32_t sum = 0;
  for (uint8_t byte : bytes) sum += byte;
  expect(download<uint32_t>(out, 1)[0] == sum, "pipeline is right");
}

static void matrices(Device& device) {
  auto a = noise(64 * 32, 2), b = noise(64 * 32, 3);
  uint64_t at_a = upload(a), at_b = upload(b), out = upload(std::vector<int32_t>(64 * 64));
  bool same = true;
  if (device.is_hopper) {
    expect(device.launch("wgmma_product", 1, 128, 2048, at_a, at_b, out) == 0, "wgmma runs");
    auto c = download<int32_t>(out, 64 * 64);
    for (int m = 0; m < 64; m++)
      for (int n = 0; n < 64; n++) {
        int sum = 0;
        for (int k = 0; k < 32; k++) sum += a[m * 32 + k] * b[n * 32 + k];
        same &= c[m * 64 + n] == 2 * sum;
      }
    expect(same, "wgmma is right");
  }
  expect(device.launch("mma_product", 1, 32, 512, at_a, at_b, out) == 0, "mma runs");
  auto d = download<int32_t>(out, 256);
  same = true;
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 8; n++) {
      int with_signs = 0, without = 0;
      for (int k = 0; k < 32; k++) {
        with_signs += (int8_t)a[m * 32 + k] * (int8_t)b[n * 32 + k];
        without += a[m * 32 + k] * b[n * 32 + k];
      }
      same &= d[m * 8 + n] == with_signs && d[128 + m * 8 + n] == without;
    }
  expect(same, "mma is right");
}

static void transposes(Device& device) {
  auto in = noise(512, 4);
  uint64_t at = upload(in), out = upload(std::vector<uint8_t>(512));
  expect(device.launch("transposed", 1, 32, 1024, at, out) == 0, "ldmatrix runs");
  auto got = download<uint16_t>(out, 256);
  const uint16_t* halves = (const uint16_t*)in.data();
  bool same = true;
  for (int m = 0; m < 4; m++)
    for (int i = 0; i < 8; i++)
      for (int j = 0; j < 8; j++) same &= got[64 * m + 8 * i + j] == halves[64 * m + 8 * j + i];
  expect(same, "ldmatrix and stmatrix are right");
}

void clusters(Device& device) {
  if (!device.is_hopper) return;
  auto in = noise(2 * 4 * 128 * 16, 9);
  uint64_t at = upload(in), out = upload(std::vector<uint8_t>(in.size()));
  expect(device.launch("send_on", 8, 128, 128 * 16 + 8, at, out) == 0, "clusters run");
  expect(device.launch("send_on", 6, 128, 128 * 16 + 8, at, out) != 0, "half a cluster is refused");
  auto got = download<uint8_t>(out, in.size());
  bool same = true;
  for (int block = 0; block < 8; block++)
    for (int i = 0; i < 128; i++)
      same &= !memcmp(&got[(block * 128 + i) * 16], &in[((block / 4 * 4 + (block + 3) % 4) * 128 + 127 - i) * 16], 16);
  expect(same, "what blocks of a cluster send is right");
}

struct alignas(64) Map {
  uint64_t words[16];
};

// A map of bytes with 128-byte rows in its box, and their swizzle.
static Map map_of(uint64_t base, std::vector<uint64_t> extents, std::vector<uint64_t> strides, std::vector<unsigned> box) {
  Map map;
  std::vector<unsigned> steps(extents.size(), 1);
  int made = cuTensorMapEncodeTiled(&map, 0, (unsigned)extents.size(), (void*)base, extents.data(), strides.data(), box.data(), steps.data(), 0, 3, 0, 0);
  if (made) expect(false, "a map of a tensor is made");
  return map;
}

// 5 planes of 9 rows of 300 bytes, 304 and 2752 bytes apart: boxes of 128 bytes, 4 rows and 2 planes, some of them outside.
static void tensors(Device& device) {
  if (!device.is_hopper) return;
  auto bytes = noise(5 * 2752, 11);
  uint64_t in = upload(bytes), out = upload(std::vector<uint8_t>(1024)), sums = upload(std::vector<uint32_t>(256, 3));
  const Map cube = map_of(in, {300, 9, 5}, {304, 2752}, {128, 4, 2});
  bool same = true;
  std::vector<uint32_t> expected(256, 3);
  for (auto [x, y, z] : {std::array<int, 3>{0, 0, 0}, {128, 4, 1}, {208, 7, 4}, {-16, -2, -1}, {304, 0, 0}}) {
    same &= device.launch("take_box", 1, 32, 1024, cube, x, y, z, out, sums, 1024) == 0;
    auto got = download<uint8_t>(out, 1024);
    for (int at = 0; at < 1024; at++) {
      const int i = x + at % 128, j = y + at / 128 % 4, k = z + at / 512;
      const bool inside = i >= 0 && i < 300 && j >= 0 && j < 9 && k >= 0 && k < 5;
      same &= got[at ^ (at / 128 % 8 * 16)] == (inside ? bytes[i + 304 * j + 2752 * k] : 0);
    }
    for (int i = 0; i < 256; i++) expected[i] += 2 * ((const uint32_t*)got.data())[i];
  }
  expect(same, "boxes of tensors are right, also outside");
  expect(download<uint32_t>(sums, 256) == expected, "stores that add are right");
  Map map;
  uint64_t extents[] = {300, 9}, odd = 300;
  unsigned box[] = {128, 4}, steps[] = {1, 1};
  expect(cuTensorMapEncodeTiled(&map, 0, 2, (void*)in, extents, &odd, box, steps, 0, 3, 0, 0) == 1, "a stride of 300 bytes is refused");
}

static void signed_products(Device& device) {
  if (!device.is_hopper) return;
  auto a = noise(64 * 128, 12), b = noise(48 * 128, 13);
  uint64_t at_a = upload(a), at_b = upload(b), sums = upload(std::vector<int32_t>(64 * 48));
  const Map map = map_of(at_b, {128, 48, 1}, {128, 48 * 128}, {128, 48, 1});
  expect(device.launch("signed_product", 1, 128, 48 * 128, map, at_a, sums) == 0, "signed wgmma runs");
  auto c = download<int32_t>(sums, 64 * 48);
  bool same = true;
  for (int m = 0; m < 64; m++)
    for (int n = 0; n < 48; n++) {
      int sum = 0;
      for (int k = 0; k < 128; k++) sum += (int8_t)a[m * 128 + k] * (int8_t)b[n * 128 + k];
      same &= c[m * 48 + n] == sum;
    }
  expect(same, "signed wgmma is right");
}

static void floats(Device& device) {
  std::vector<float> a(128), b(64);
  for (int i = 0; i < 128; i++) a[i] = (float)(i % 13 - 6), b[i % 64] = (float)(i % 7 - 3);
  a[0] = 1.0f + 0x1p-12f;  // what tensor cores do not see
  uint64_t at_a = upload(a), at_b = upload(b), out = upload(a);
  expect(device.launch("float_product", 1, 32, 0, at_a, at_b, out) == 0, "tf32 runs");
  auto c = download<float>(out, 128);
  a[0] = 1;
  bool same = true;
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 8; n++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) sum += a[m * 8 + k] * b[n * 8 + k];
      same &= c[m * 8 + n] == sum;
    }
  expect(same, "tf32 is right");
}

static void arguments(Device& device) {
  struct alignas(128) Large {
    uint64_t words[16];
  } hundred = {};
  struct alignas(64) Smaller {
    uint64_t words[8];
  } sixty = {{0, 0, 0, 0, 0, 0, 0, 200}};
  hundred.words[15] = 1000;
  uint64_t out = upload(std::vector<uint64_t>(33));
  expect(device.launch("aligned_arguments", 1, 33, 0, (uint8_t)7, sixty, 30u, hundred, out) == 0 && cuCtxSynchronize() == 0, "large arguments are aligned");
  bool same = true;
  for (uint64_t sum : download<uint64_t>(out, 33)) same &= sum == 1237;
  expect(same, "large arguments arrive");
}

// Attributes of addresses: kind of memory, device, start of the allocation and its bytes.
static void pointers() {
  uint64_t address = 0, start = 0, bytes = 0;
  unsigned kind = 0;
  int device = -1;
  cuMemAlloc_v2(&address, 1000);
  cuPointerGetAttribute(&kind, 2, address + 999);
  cuPointerGetAttribute(&device, 9, address);
  cuPointerGetAttribute(&start, 11, address + 500);
  cuPointerGetAttribute(&bytes, 12, address + 500);
  expect(kind == 2 && device == 0 && start == address && bytes == 1000, "attributes of an address");
  expect(cuPointerGetAttribute(&kind, 2, address + 1000) == 1, "no attributes past an allocation");
  expect(cuPointerGetAttribute(&kind, 2, (uint64_t)&kind) == 1, "no attributes of the host's memory");
  cuMemFree_v2(address);
  expect(cuPointerGetAttribute(&kind, 2, address) == 1, "no attributes of freed memory");
}

// An event stands for what was recorded when it was waited for, not for what it is recorded for later.
static void events(Device& device) {
  void *first, *second, *third, *event;
  cuStreamCreate(&first, 1), cuStreamCreate(&second, 1), cuStreamCreate(&third, 1), cuEventCreate(&event, 0);
  const std::vector<uint32_t> three = {3};
  uint64_t x = upload(three), y = upload(three);
  device.launch_in(first, "twice", 1, 1, 0, x);
  cuEventRecord(event, first), cuStreamWaitEvent(second, event, 0);
  device.launch_in(second, "one_more", 1, 1, 0, x);
  device.launch_in(third, "twice", 1, 1, 0, y);
  cuEventRecord(event, third);
  expect(cuStreamSynchronize(second) == 0 && download<uint32_t>(x, 1)[0] == 7, "a stream waits for the record that it was told of");
  expect(cuEventSynchronize(event) == 0 && download<uint32_t>(y, 1)[0] == 6, "an event waits for its last record");
  device.launch_in(first, "one_more", 1, 1, 0, y);
  cuEventRecord(event, first), cuStreamWaitEvent(second, event, 0), cuEventDestroy_v2(event);
  device.launch_in(second, "twice", 1, 1, 0, y);
  expect(cuStreamSynchronize(second) == 0 && download<uint32_t>(y, 1)[0] == 14, "an event that is gone is still waited for");
  cuEventCreate(&event, 0);
  device.launch_in(first, "twice", 1, 1, 0, x), cuEventRecord(event, first);
  int asked = 0;
  while (cuEventQuery(event) == 600 && asked < 100) asked++;
  expect(asked < 100 && download<uint32_t>(x, 1)[0] == 14, "asking for an event comes to an end");
}

int main(int count, char** words) {
  Device device(words[1], 0);
  std::string name = count > 2 ? words[2] : "";
  uint64_t out = upload(std::vector<uint32_t>(64));
  if (name == "past_the_end") return device.launch("past_the_end", 1, 1, 0, out, 64u);
  if (name == "stuck") return device.launch("stuck", 1, 64, 0);
  if (name == "past_shared") return device.launch("past_shared", 1, 32, 1024);
  if (name == "forgotten_wait") {
    uint64_t in = upload(std::vector<uint32_t>(8, 7));
    device.launch("forgotten_wait", 1, 1, 32, in, out);
    auto got = download<uint32_t>(out, 8);
    return printf("%x %x\n", got[3], got[4]);
  }
  if (name == "misaligned") return device.launch("misaligned", 1, 1, 0, out + 4);
  if (name == "odd_box") {
    const Map map = map_of(upload(noise(9 * 304, 11)), {300, 9, 1}, {304, 2736}, {128, 4, 1});
    return device.launch("take_box", 1, 32, 512, map, 8, 0, 0, out, out, 0);
  }
  if (name == "unwritten" || name == "written") {
    // One word of two is written; the other is copied as well, or is not.
    uint64_t words = 0;
    uint32_t one = 1;
    cuMemAlloc_v2(&words, 8);
    cuMemcpyHtoD_v2(words, &one, 4), device.launch("one_more", 1, 1, 0, words);
    return download<uint32_t>(words, name == "written" ? 1 : 2).empty();
  }
  if (name == "trapped") return device.launch("trapped", 1, 32, 0) == 719 && cuCtxSynchronize() == 719 ? 0 : 1;
  if (name == "host_pointer") return cuMemcpyDtoH_v2(&name, (uint64_t)words, 8);
  simple(device), sums(device), copies(device), matrices(device), transposes(device), clusters(device);
  tensors(device), signed_products(device), floats(device), arguments(device), events(device), pointers();
  printf("%d failures\n", failures);
  return failures != 0;
}
