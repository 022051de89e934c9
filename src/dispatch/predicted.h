// A captured call that is the one that was predicted: see Note [Predicted calls] in capture/prediction.h.
#pragma once
#include "capture/capture.h"
#include "operators/op_function.h"

namespace tandem::dispatching {

// Its results, and what the tape keeps of it.
TensorList make_predicted(const PredictedCall& call, Argument* arguments, int count, bool* returns_tuple);

}  // namespace tandem::dispatching
