// Routines that devices do not have, on copies of their operands in host memory.
#pragma once
#include "interpreter.h"
#include "library/registry.h"

namespace tandem::cuda {

// Programs call them by the name "host." and the routine's, as far as host.cc lists them.

// Runs a routine of the CPU whose operands lie on call.device: they are copied, the results are copied back. Waits.
void call_on_host(library::Function routine, const library::Call& call);

using GilReleased = Unlocked;  // the GIL, while something waits; if this thread has it

}  // namespace tandem::cuda
