// Which plan a call runs: its signature, and plans that Python compiles for new ones.
#pragma once
#include "operators/op_function.h"

namespace tandem::dispatching {

// What the plan of a call depends on: kinds and layouts of the arguments, the device scope, autocast, default dtype.
void encode(Argument* arguments, int count, Signature& signature);

// The slow path: describes the call to Python, which compiles a plan, and keeps it for calls like this one.
Ref<Plan> compile_for(OpFunction* op, Argument* arguments, int count, const Signature& signature, uint64_t hash,
                      const InputView* inputs);

}  // namespace tandem::dispatching
