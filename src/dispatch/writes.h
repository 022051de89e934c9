// Arguments that a call writes: whether they may be, what must be copied first, and what their histories become.
#pragma once
#include <vector>

#include "autograd/record.h"
#include "modes.h"
#include "operators/op_function.h"

namespace tandem::dispatching {

inline bool wants_grad(const Tensor* t) {
  return t->requires_grad && grad_mode.enabled;
}

// An error where a tensor may not be written: memory that is read-only or holds several elements in one place, leaves.
void check_write(const Tensor* t);

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

// After a call that writes its first arguments: they are results of its record, or of none. Through a view, the base's
// history has to tell of it.
void set_written_histories(const OpFunction* op, const Plan& plan, PlanNode* node, Argument* arguments);

}  // namespace tandem::dispatching
