// What follows a product, done to blocks of its result while they are in the cache.
//
// Note [Epilogues]
// A generated kernel that goes through the result of a product element by element (an activation, the update of the
// parameter whose gradient it is) may be joined to the product's call (tandem/codegen/epilogues.py). Whoever computes a
// block of the result then calls the kernel for it. Where nobody else looks at the result it has no memory: blocks lie
// in working memory of the thread. A routine that does not compute by blocks runs the kernel after all is done.
#pragma once
#include <cstdint>

#include "tensor/view.h"

namespace tandem::library {

struct Epilogue {
  static constexpr int kMostPointers = 64, kMostInts = 160;
  static constexpr int kOwnInts = 3;  // first column, the one after the last, elements between rows of the block

  void (*kernel)(void** pointers, const int64_t* ints, int64_t begin, int64_t end) = nullptr;  // of rows
  void* pointers[kMostPointers];
  int num_pointers = 0;
  int64_t ints[kMostInts];  // kOwnInts of them are filled in for each block
  int num_ints = 0;
  int result = 0;                  // which pointer is the product's result
  bool keeps = true;               // whether the result has memory of its own
  double cost = 0;                 // nanoseconds per element
  const int32_t* alike = nullptr;  // pointers to memory that lies as the result does, element by element
  int num_alike = 0;

  // For rows [row, last_row) and columns [column, last_column) of the result, which begin at `block`.
  void run(int64_t row, int64_t last_row, int64_t column, int64_t last_column, char* block, int64_t stride,
           int64_t item) const;
  void run_whole(const View& result) const;  // dense, on all threads
};

}  // namespace tandem::library
