// An operand of an all-reduce that is a product of matrices, which is left to the all-reduce to compute. Note [Joined
// products] in tandem/codegen/join_products.py.
#pragma once
#include "tensor/view.h"

namespace tandem::library {

struct Factors {
  int piece = 0;  // which operand
  View a, b, c;   // c = a b
  void multiply() const;
};

}  // namespace tandem::library
