// Maps of tensors: the driver's checks, and what the emulated copy engine reads of them.
#include <string.h>

#include "driver.h"

using namespace emulated;

namespace {

// Types of elements, swizzles and interleaving by their numbers in cuda.h.
constexpr unsigned BYTES_OF_TYPE[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr unsigned MOST_BOX = 256;

bool take_extents(Tensor& tensor, const uint64_t* extents, const uint64_t* strides, const unsigned* box, const unsigned* steps) {
  for (unsigned d = 0; d < tensor.rank; d++) {
    if (!extents[d] || extents[d] > 1ull << 32 || !box[d] || box[d] > MOST_BOX || !steps[d] || steps[d] > 8) return false;
    if (steps[d] != 1) die("cuTensorMapEncodeTiled: steps of elements are not emulated");
    tensor.extents[d] = extents[d], tensor.box[d] = (unsigned short)box[d];
    if (d + 1 == tensor.rank) break;
    if (strides[d] % 16 || strides[d] >= 1ull << 40) return false;
    tensor.strides[d] = strides[d];
  }
  return true;
}

}  // namespace

DRIVER cuTensorMapEncodeTiled(void* map, unsigned type, unsigned rank, void* base, const uint64_t* extents, const uint64_t* strides,
                              const unsigned* box, const unsigned* steps, unsigned interleave, unsigned swizzle, unsigned, unsigned) {
  EMULATED_CALL;
  if (settings(current_device()).major < 9) return NOT_SUPPORTED;
  bool given = map && base && extents && box && steps && (strides || rank == 1);
  if (!given || (uint64_t)map % 64 || (uint64_t)base % 16 || !rank || rank > 5 || swizzle > 3) return INVALID_VALUE;
  if (type >= sizeof BYTES_OF_TYPE / sizeof *BYTES_OF_TYPE || interleave) die("cuTensorMapEncodeTiled: type %u or interleaving is not emulated", type);
  Tensor tensor = {};
  tensor.magic = Tensor::Magic, tensor.rank = (unsigned char)rank, tensor.element = (unsigned char)BYTES_OF_TYPE[type];
  tensor.swizzle = (unsigned char)swizzle, tensor.base = (unsigned char*)base;
  if (!take_extents(tensor, extents, strides, box, steps)) return INVALID_VALUE;
  unsigned row = tensor.box[0] * tensor.element;
  if (row % 16 || (swizzle && row > 16u << swizzle)) return INVALID_VALUE;
  if (swizzle && row < 16u << swizzle) die("cuTensorMapEncodeTiled: rows of a box shorter than their swizzle are not emulated");
  memset(map, 0, 128);
  memcpy(map, &tensor, sizeof tensor);
  return SUCCESS;
}
