// What the tape keeps of a call whose gradient is wanted.
#pragma once
#include "autograd/record.h"
#include "capture/capture.h"
#include "operators/op_function.h"

namespace tandem::dispatching {

// Before the call runs: where gradients go, and inputs that backward reads.
Ref<PlanNode> begin_record(const Ref<Plan>& plan, Argument* arguments);

// After it: results and temporaries that backward reads. captured: the number of the call in a capture, or -1.
void finish_record(const Plan& plan, PlanNode* node, PlanRun& run, Argument* arguments, TensorList& outputs,
                   int32_t captured);

// The same for a call that was predicted: see Note [Predicted calls].
void finish_predicted_record(const PredictedCall& call, PlanNode* node, Capture& capture, TensorList& outputs);

}  // namespace tandem::dispatching
