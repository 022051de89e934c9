// Many tensors that become one.
#pragma once
#include "operators/op_function.h"

namespace tandem {

// Tensors that are joined come in any number, and a plan is for one number of them: many are joined in parts, whose
// numbers are few, and then the parts. False where there are few, or where shapes are to be explained.
bool joins_many(const OpFunction* op, const Argument* arguments, int count);
TensorList join_many(OpFunction* op, Argument* arguments, int count, bool* returns_tuple);

}  // namespace tandem
