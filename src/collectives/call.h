// What a rank was asked for, as others see it: to compare it with what they were asked for, and to tell it to the user.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace tandem::collectives {

constexpr int kLine = 160;

// Tags of collectives, Note [Tags] in tandem/ops/collective.py: below the first, a parameter of fully_shard; from the
// first on, those of a bucket that a rank has gradients of; from the second on, all of a model; from the third on, what
// needs no name, and ranks may call from different lines.
constexpr int64_t kSomeUsed = int64_t{1} << 32, kModel = int64_t{1} << 33, kUnnamed = int64_t{1} << 34;

struct Call {  // what a rank was asked for
  uint32_t kind, reduction, dtype;
  int32_t root, ndim, on_device;
  int64_t tag, shape[8];
  int64_t in_count, out_count;  // elements of all pieces
  char line[kLine];
};

void describe(const Request& request, Call& to);
std::string describe(const Call& call);  // all_reduce(sum) of float32 (3, 4) at train.py:12

// Whether what two ranks were asked for fits together, but for sizes that differ among ranks (uneven).
bool fits(const Call& a, const Call& b, bool uneven);

// The text for ranks that were asked for different things; names: what ranks are called.
std::string disagreement(const std::vector<const Call*>& calls, const std::vector<int>& names, int64_t number);

// The text for a message that is not what its receiver expects.
std::string mistaken_message(const Call& sent, int sender, const Call& expected, int receiver);

}  // namespace tandem::collectives
