// Asynchronous work of a block: copies and products that the kernel waits for.
#pragma once
#include "../include/emulated.h"

namespace emulated {

// Whether SIDEREAL_EMULATED_LATE delays all asynchronous work as long as possible.
bool is_late();
void later(Background kind, const void* owner, void (*work)(const void*), const void* data, size_t bytes);
void commit(Background kind, const void* owner);
void finish_background(Background kind, const void* owner, unsigned left);
// At the end of a block: stores still complete; a load that nothing waited for is a fault of the kernel.
void end_background();

}  // namespace emulated
