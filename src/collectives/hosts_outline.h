// What ranks give one another when they meet; see Note [Over hosts].
#pragma once
#include "collectives/hosts_member.h"

namespace tandem::collectives {

constexpr int64_t kInline = 512;  // bytes of an operand that come along

struct HostsMember::Outline {
  Call call;
  int32_t num_pieces;
  bool uneven;
  uint64_t sizes;  // equal on all ranks
  int64_t word;    // of HostsMember::meet
  char payload[kInline];
};

}  // namespace tandem::collectives
