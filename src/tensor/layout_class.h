#pragma once
#include <cstdint>

#include "tensor/view.h"

namespace tandem {

// How a tensor lies in memory, as far as plans care.
enum class LayoutClass : uint8_t { Contiguous, Dense, Strided };
// order[i]: axes from the largest stride to the smallest; filled for Dense.
LayoutClass classify(const View& view, uint8_t order[kMaxDims]);

}  // namespace tandem
