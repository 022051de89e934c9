// Tensors that a call gives: new ones, views of its arguments, the arguments themselves.
#pragma once
#include "autobatch/batch.h"
#include "operators/op_function.h"

namespace tandem::dispatching {

// A view remembers whose elements it sees, and the version that its history tells of.
void note_base(Tensor* view, Tensor* base);

TensorRef make_output(const Plan& plan, const Plan::Output& output, PlanRun& run, Argument* arguments);

// The results of a plan that computes nothing, if what they look at is deferred; false where it is there.
bool make_views(Batch* batch, const Plan& plan, PlanRun& run, Argument* arguments, TensorList& views);

// With detect_anomaly: fails where a result is not finite.
void check_outputs(OpFunction* op, const TensorList& outputs);

}  // namespace tandem::dispatching
