#include "library/block_kernel.h"

#include <algorithm>

#include "check.h"

namespace tandem::library {

void BlockKernel::run(int64_t row, int64_t last_row, int64_t column, int64_t last_column, std::array<char*, 2> data,
                      int64_t stride, int64_t item) const {
  constexpr size_t kMostPointers = 64, kMostInts = 192;
  void* own_pointers[kMostPointers];
  int64_t own_ints[kMostInts];
  TD_CHECK(pointers.size() <= kMostPointers && ints.size() <= kMostInts, "a kernel with too many operands");
  std::copy(pointers.begin(), pointers.end(), own_pointers);
  std::copy(ints.begin(), ints.end(), own_ints);
  own_ints[0] = column, own_ints[1] = last_column, own_ints[2] = stride;
  // The kernel counts from the first element of the matrix, which is nowhere.
  const auto offset = static_cast<uintptr_t>((row * stride + column) * item);
  for (size_t k = 0; k < data.size(); ++k)
    if (blocks[k] >= 0)
      own_pointers[blocks[k]] = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data[k]) - offset);
  kernel(own_pointers, own_ints, row, last_row);
}

}  // namespace tandem::library
