// What can be wrong with the weights of a draw, as kernels find it: codes, 0 for none. See check_weights.
#pragma once
#include <cstdint>

namespace tandem::library {

constexpr int64_t kWeightsBound = -1;  // in place of an axis' size, in the report of a device: the value is such a code

inline const char* weight_fault(int64_t code) {
  return code == 1 ? "the weights hold a negative number, an infinity or NaN; they must be 0 or more, and finite"
                   : "the weights of a draw are all 0; at least one must be more";
}

}  // namespace tandem::library
