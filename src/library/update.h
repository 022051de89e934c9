// A kernel that follows a collective, element by element of one of its results. Note [Joined updates] in
// tandem/codegen/updates.py.
#pragma once
#include <cstdint>
#include <vector>

namespace tandem::library {

struct Update {
  void (*kernel)(void** pointers, const int64_t* ints, int64_t begin, int64_t end) = nullptr;  // of blocks
  std::vector<void*> pointers;
  std::vector<int64_t> ints;
  int64_t blocks = 0, block = 0;                // how many there are, and elements of one
  int piece = 0, result = 0;                    // which of the collective's results, and which pointer it is
  const std::vector<int32_t>* dense = nullptr;  // pointers to memory that lies as the result does
  std::vector<int32_t> numbers;                 // the other pointers,
  std::vector<int32_t> number_bytes;            // to so many bytes
  bool keeps = true;                            // whether somebody else reads the result
  uint64_t identity = 0;                        // of the kernel: the same in all processes
  double cost = 0;                              // nanoseconds per block
  mutable bool done = false;                    // whether the collective has run it

  void run_whole() const;  // on this rank's memory, on all threads
};

}  // namespace tandem::library
