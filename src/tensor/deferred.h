// Tensors on memory that does not exist yet (see capture/capture.h). Until it does, View::data holds the offset in
// bytes.
//
// Note [Deferred tensors and the collector]
// Deferring calls makes tensors by the thousand, most of which go before they get memory. Python's collector, which
// starts whenever some hundreds of objects have been made, would walk over all that are there, again and again. So it
// is shown a tensor when that has got its memory, or when it is known that none will come.
#pragma once
#include "tensor/tensor.h"

namespace tandem {

void note_deferred(Tensor* t);    // called for every new tensor on a pending storage
void forget_deferred(Tensor* t);  // and when it goes
void resolve_deferred();          // turns offsets into addresses wherever memory has come
void track_deferred();            // shows the rest to the collector: no memory may ever come

}  // namespace tandem
