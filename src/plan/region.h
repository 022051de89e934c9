// Regions: instructions of a plan that hold plans. Branches and loops run here, without Python.
//
// A plan inside a region takes its operands as inputs: first tensors, by their address, then integers. Results go into
// memory that is among the inputs too, so that a loop chooses where each iteration writes. See Note [Regions] in
// tandem/ops/region.py for what each kind computes, and tandem/program/write.py for who writes them.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tandem {

struct Region {
  // Repeat is a While of single elements, whose plan makes many iterations (tandem/codegen/repeat.py).
  enum class Kind : uint8_t { Cond, Scan, While, Block, Repeat } kind;
  std::vector<Ref<Plan>> plans;            // Cond: one per branch. While: condition, body. Others: the body.
  std::vector<std::vector<int32_t>> ints;  // per plan: slots around it that are its integers; -1: a Block's own size
  int32_t carried = 0;                     // Scan, While: how many values go from one iteration to the next
  int32_t scanned = 0;                     // Scan: how many tensors each iteration gets one row of
  int32_t extent = -1;                     // Scan: slot of the length. While: slot of the most iterations, or -1
  bool reverse = false;                    // Scan: from the last row to the first
};

// Runs a region whose operands and results are these values of `outer`.
void run_region(const Region& region, PlanRun& outer, const Instruction& instruction);

}  // namespace tandem
