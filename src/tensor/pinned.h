// Host memory that devices copy to and from by themselves.
#pragma once
#include <cstddef>

#include "tensor/storage.h"

namespace tandem {

Storage* allocate_pinned(size_t bytes);  // a new reference
// Holds on to host memory until what was queued on the device's current stream so far is done.
void keep_until_done(int device, Storage* storage);
void empty_pinned_cache();  // gives pinned memory that no tensor uses back to the system

}  // namespace tandem
