// What checks on devices report in place of an axis' size where it is no index that is wrong. Weights of a draw have
// codes for what is wrong with them, as kernels find it: 0 for nothing. So have lengths of nested tensors. See
// check_weights, check_divisor.
#pragma once
#include <cstdint>

namespace tandem::library {

constexpr int64_t kWeightsBound = -1;  // the value is such a code
constexpr int64_t kDivisorBound = -2;  // an integer was to be divided by 0

inline const char* weight_fault(int64_t code) {
  if (code == 3) return "an element is not between 0 and 1, as probabilities and shares are";
  if (code == 4) return "nested tensors of different lengths do not go together";
  return code == 1 ? "the weights hold a negative number, an infinity or NaN; they must be 0 or more, and finite"
                   : "the weights of a draw are all 0; at least one must be more";
}

}  // namespace tandem::library
