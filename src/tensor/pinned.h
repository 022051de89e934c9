// Host memory that devices copy to and from by themselves.
#pragma once
#include <cstddef>

#include "tensor/storage.h"

namespace tandem {

Storage* allocate_pinned(size_t bytes);  // a new reference
void empty_pinned_cache();               // gives pinned memory that no tensor uses back to the system

}  // namespace tandem
