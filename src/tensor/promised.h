// Tensors on memory that does not exist yet (see capture/capture.h). Until it does, View::data holds the offset in
// bytes.
#pragma once
#include "tensor/tensor.h"

namespace tandem {

void note_promised(Tensor* t);    // called for every new tensor on a pending storage
void forget_promised(Tensor* t);  // and when it goes
void resolve_promises();          // turns offsets into addresses wherever memory has come; drops the rest

}  // namespace tandem
