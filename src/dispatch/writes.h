// Arguments that a call writes: whether they may be, what must be copied first, and what their histories are told.
#pragma once
#include <vector>

#include "autograd/record.h"
#include "modes.h"
#include "operators/op_function.h"

namespace tandem::dispatching {

inline bool wants_grad(const Tensor* t) {
  return t->requires_grad && grad_mode.enabled;
}

// Checks that argument k may be written; clones what would be read after it was overwritten.
void prepare_write(Argument* arguments, int count, int k, int writes, std::vector<TensorRef>& clones);

// Whether no two tensors share memory; looked at once where so many are written that looking at all pairs would be
// felt.
constexpr int kManyWrites = 8;
bool all_apart(const Argument* arguments, int count);

// The first `writes` arguments have another version from here on.
void note_writes_of(Argument* arguments, int writes);
inline void note_writes(Argument* arguments, int writes) {
  if (writes) note_writes_of(arguments, writes);
}

// A view whose base was written since: its history has to start from the base again.
void refresh_view_of(Tensor* t);
inline void refresh_view(Tensor* t) {
  if (grad_mode.enabled && t->extra && t->extra->base) refresh_view_of(t);
}

// After a write through a view: the base's history has to tell of it.
void rebase(Tensor* t);

}  // namespace tandem::dispatching
