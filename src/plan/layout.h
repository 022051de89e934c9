// Where the values of a program lie: offsets in one block, laid out for the sizes of a call before it runs.
//
// Note [Memory layout]
// A program knows when each of its values is first and last used, and its routines how much Scratch they will take. So
// what is never used at the same time shares memory: the largest pieces are placed first, each in the smallest gap
// between those it meets in time. For training steps that comes within a percent of the most that is in use at one
// time, where asking an allocator piece by piece left gaps of an eighth. Results stay out of it, because they outlive
// the run; so do operands of regions, which have memory of their own.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace tandem {

struct MemoryLayout {
  std::vector<int64_t> key;                          // what it depends on: the sizes that the call bound
  std::vector<std::pair<int32_t, int64_t>> values;   // (value, offset) of those in the block
  std::vector<std::pair<int64_t, int64_t>> scratch;  // by instruction: offset and bytes
  int64_t bytes = 0;
};

// A piece of memory and the instructions during which it is in use.
struct MemoryPiece {
  int64_t bytes;
  int32_t first, last;
  int64_t offset = 0;  // filled in by `place`
};
int64_t place(std::vector<MemoryPiece>& pieces);  // gives what all of them take together

}  // namespace tandem
