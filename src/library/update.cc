#include "library/update.h"

#include "device/parallel.h"

namespace tandem::library {

void Update::run_whole() const {
  parallel_for(blocks, cost, [&](int64_t begin, int64_t end) {
    kernel(const_cast<void**>(pointers.data()), ints.data(), begin, end);
  });
}

}  // namespace tandem::library
