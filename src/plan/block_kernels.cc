#include "plan/block_kernels.h"

#include "check.h"

namespace tandem {

std::vector<library::BlockKernel> block_kernels(const Region& region, PlanRun& outer, const Instruction& instruction) {
  constexpr size_t kBlocks = 2;
  std::vector<library::BlockKernel> made(region.plans.size());
  const auto first = static_cast<size_t>(region.carried), last = static_cast<size_t>(instruction.num_inputs);
  for (size_t p = 0; p < made.size(); ++p) {
    const Plan& plan = *region.plans[p];
    const std::vector<int32_t>& ints = region.ints[p];
    const size_t tensors = kBlocks + last - first;
    std::vector<InputView> inputs(tensors + ints.size());
    for (size_t i = first; i < last; ++i) inputs[kBlocks + i - first].cell = outer.data(instruction.values[i]);
    for (size_t i = 0; i < ints.size(); ++i) inputs[tensors + i].integer = outer.slot(ints[i]);
    PlanRun run(plan, inputs.data());
    if (!run.guards_hold()) fail(ErrorKind::Memory, "out of memory: sizes inside a region do not fit 64 bits");
    const Instruction& in = plan.instructions[0];
    library::BlockKernel& kernel = made[p];
    kernel.kernel = in.kernel;
    for (size_t i = 0; i < in.values.size(); ++i) {
      const PlanValue& value = plan.values[in.values[i]];
      const bool is_block = value.kind == ValueKind::Input && value.source < static_cast<int32_t>(kBlocks);
      if (is_block) kernel.blocks[static_cast<size_t>(value.source)] = static_cast<int>(i);
      kernel.pointers.push_back(is_block ? nullptr : run.data(in.values[i]));
    }
    kernel.ints.resize(library::BlockKernel::kOwnInts);
    for (int32_t slot : in.ints) kernel.ints.push_back(run.slot(slot));
  }
  return made;
}

}  // namespace tandem
