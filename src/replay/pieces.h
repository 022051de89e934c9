// A program in pieces that can be launched while its calls are still being captured.
//
// Note [Pieces]
// An instruction can run when the inputs that it depends on, by itself or through what it reads, are known: the first
// convolution when the first few calls of a model have been captured, all of backward when the last of the loss has.
// Instructions are put into a few pieces by that, in their order within each; the last piece has what must not happen
// before the function has ended: writes into inputs, and what reads after them. So that little else has to wait,
// kernels for devices do not mix updates of inputs with what others need (_fits in tandem/codegen/fuse.py).
#pragma once
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tandem {

struct Piece {
  std::vector<const Instruction*> instructions;
  std::vector<std::vector<int32_t>> done;  // values to give back after each
  int32_t after = INT32_MAX;               // calls that must have been captured; the last piece waits for all
};

std::vector<Piece> divide(const Plan& plan,
                          const KnownInputs* known);  // one piece if it is not known when inputs were captured

}  // namespace tandem
