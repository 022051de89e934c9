// Whether results must depend on nothing but operands and the instruction set: td.use_deterministic_algorithms.
//
// Note [Deterministic routines]
// Our own routines split their work the same way for any number of threads. Three others do not, and are left out while
// this is on: oneDNN, which shares sums between the threads it has; OpenBLAS with several threads; and whatever is
// chosen by measuring, which may turn out differently on another machine (Note [Choices stay], algorithms on devices).
#pragma once
#include <atomic>
#include <cstdint>

#include "device/parallel.h"

namespace tandem::library {

inline std::atomic<bool> deterministic_flag{false};

inline bool deterministic() {
  return deterministic_flag.load(std::memory_order_relaxed);
}

// What routines look at besides operands when they choose how to compute: part of keys of what was prepared for a call.
inline int64_t conditions() {
  return 2 * static_cast<int64_t>(num_threads()) + (deterministic() ? 1 : 0);
}

}  // namespace tandem::library
