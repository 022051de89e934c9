// Generated kernels that a routine calls for blocks of a matrix which never has memory as a whole.
//
// Note [Block kernels]
// Attention's matrix of scores exists a block at a time. What is done to its elements (score functions, masks, dropout)
// is a kernel made for the program (tandem/codegen/block_kernels.py), as an epilogue is (Note [Epilogues] in
// epilogue.h): called for rows and columns of the matrix, all leading axes counting as rows. It reads other tensors
// where they lie, and up to two blocks of such matrices, of which it writes one. Kernels are those of the plans of a
// region (plan/block_kernels.cc).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace tandem::library {

struct BlockKernel {
  static constexpr int kOwnInts = 3;  // first column, the one after the last, elements between rows of a block

  void (*kernel)(void** pointers, const int64_t* ints, int64_t begin, int64_t end) = nullptr;  // of rows
  std::vector<void*> pointers;
  std::vector<int64_t> ints;          // kOwnInts of them are filled in for each block
  std::array<int, 2> blocks{-1, -1};  // which pointers are the blocks; -1: none

  void run(int64_t row, int64_t last_row, int64_t column, int64_t last_column, std::array<char*, 2> data,
           int64_t stride, int64_t item) const;
};

}  // namespace tandem::library
