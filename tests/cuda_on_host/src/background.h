// Asynchronous work of a block: copies and products that the kernel waits for.
#pragma once
#include "../include/emulated.h"

namespace emulated {

// Returns whether SIDEREAL_EMULATED_LATE delays all asynchronous work as long as possible.
bool is_late();
void later(Background kind, const void* owner, void (*work)(const void*), const void* data, size_t bytes);
void commit(Background kind, const void* owner);
void finish_background(Background kind, const void* owner, unsigned left);
// Ends a block: runs the remaining stores; ends the process if the kernel has not waited for a load or a product.
void end_background();

}  // namespace emulated
