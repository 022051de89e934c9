// What was launched lately, and what kernels found wrong, so that an error that shows late still names its culprit.
#pragma once
#include <cstdint>
#include <string>

namespace tandem::cuda {

// Notes a launch; cheap enough for every one. Gives its number.
uint64_t note_launch(const char* label);

std::string recent_launches(int count);  // for messages: "\n  last launches: ..."

// A kernel that checks indices writes the first bad one into memory that the host can read:
// the launch's number, the value and the bound. See tandem/codegen/cuda/routines.py.
struct Report {
  uint64_t claimed;  // set by the first thread to complain
  uint64_t number;
  int64_t value;
  int64_t bound;
  uint64_t written;
};
Report* reports(int device);  // of the device, in memory that both sides see; made when first needed

// Says which operator and line a launch that checks belongs to; called before it.
void note_checked_launch(uint64_t number, const std::string& op, const std::string& line);

// Throws Error(Index) if a kernel has complained since the last call.
void raise_device_errors(int device);

}  // namespace tandem::cuda
