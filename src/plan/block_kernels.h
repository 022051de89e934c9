// Kernels that a routine calls for blocks (Note [Block kernels] in library/block_kernel.h), as plans of a region hold
// them.
#pragma once
#include <vector>

#include "library/block_kernel.h"
#include "plan/plan.h"
#include "plan/region.h"

namespace tandem {

// One for each plan of `region`, which has a single kernel. The first two inputs of a plan are the blocks; the others
// are the instruction's, from the one on that the region says (`carried`).
std::vector<library::BlockKernel> block_kernels(const Region& region, PlanRun& outer, const Instruction& instruction);

}  // namespace tandem
