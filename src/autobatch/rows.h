// Rows of blocks: elements of one geometry copied, or added, to another one of the same shape. Host or device memory.
#pragma once
#include "tensor/tensor.h"

namespace tandem {

void copy_row(const View& from, const View& to, int device);
// Where elements of `to` share memory, all that belongs there is added. `onto` is the tensor that `to` lies in, `of`
// the one that `from` lies in.
void add_row(const Tensor* of, const View& from, const Tensor* onto, const View& to);

}  // namespace tandem
