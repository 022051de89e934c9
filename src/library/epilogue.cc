#include "library/epilogue.h"

#include <algorithm>

#include "device/parallel.h"

namespace tandem::library {

void Epilogue::run(int64_t row, int64_t last_row, int64_t column, int64_t last_column, char* block, int64_t stride,
                   int64_t item) const {
  void* own_pointers[kMostPointers];
  int64_t own_ints[kMostInts];
  std::copy_n(pointers, num_pointers, own_pointers);
  std::copy_n(ints, num_ints, own_ints);
  own_ints[0] = column, own_ints[1] = last_column, own_ints[2] = stride;
  // The kernel counts from the first element of the result, which for a block on its own is nowhere.
  const auto offset = static_cast<uintptr_t>((row * stride + column) * item);
  own_pointers[result] = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(block) - offset);
  kernel(own_pointers, own_ints, row, last_row);
}

void Epilogue::run_whole(const View& c) const {
  const int64_t columns = c.shape[c.ndim - 1], rows = columns ? c.numel() / columns : 0;
  const auto item = static_cast<int64_t>(item_size(c.dtype));
  parallel_for(rows, cost * static_cast<double>(columns), [&](int64_t begin, int64_t end) {
    run(begin, end, 0, columns, c.data + begin * columns * item, columns, item);
  });
}

}  // namespace tandem::library
