// Constants of a plan: what is computed of weights once, while they stay as they are.
#pragma once
#include <memory>

#include "operators/op_function.h"

namespace tandem::dispatching {

// Whether the arguments from op->constants on are weights that the plan may keep something of.
bool has_constants(const OpFunction* op, const Plan& plan, Argument* arguments, int count);

// What the plan keeps of the weights among the arguments; made again where one of them has changed.
std::shared_ptr<Constants> constants_of(const Plan& plan, int first, Argument* arguments, int count);

}  // namespace tandem::dispatching
