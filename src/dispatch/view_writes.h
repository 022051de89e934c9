// Writes through views in captured code. See Note [Captured view writes].
#pragma once
#include "capture/capture.h"
#include "operators/op_function.h"

namespace tandem::dispatching {

// Whether the call writes a deferred tensor of the active capture through a view, and may do so out of place.
bool writes_deferred_view(const OpFunction* op, const Argument* arguments, int count);

// That call: on a copy of what the view shows, which then takes its place in the base.
TensorList write_deferred_view(OpFunction* op, Argument* arguments, int count, bool* returns_tuple);

// Lets a view be read whose deferred base was written since: what it shows is selected from the base again.
void reread_view(Capture* capture, Tensor* view);

}  // namespace tandem::dispatching
