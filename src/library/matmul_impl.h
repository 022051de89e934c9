// The normal form of a batched product, shared by the ways to compute it.
#pragma once
#include "library/gemm.h"
#include "library/registry.h"
#include "library/strided.h"
#include "tensor/view.h"

namespace tandem::library {

struct Operand {
  char* data;
  int64_t row, column;  // strides of the matrix; those of the batch are in `Batched::batch`
};

struct Batched {
  DType dtype;
  int64_t m, n, k;
  Operand a, b, c;
  Loop<3> batch;  // strides of c, a, b
  const char* bias = nullptr;
};

// All return false where the case is not for them.
bool matmul_bf16(const Batched& p,
                 std::unique_ptr<Kept>* kept);  // kept: where a right side that stays the same is packed
bool matmul_onednn(const Batched& p);
bool matmul_openblas(const Batched& p);

}  // namespace tandem::library
