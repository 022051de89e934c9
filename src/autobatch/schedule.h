// Which of a set of deferred calls run together, and in what order.
//
// Note [Order of groups]
// Two orders are tried, and the one with fewer groups is taken; neither is better for all programs. By depth: calls
// that are alike and equally far from the leaves. By agenda (Neubig et al., On-the-fly operation batching, 2017):
// among the kinds of calls of which some are ready, the one whose calls lie least deep on average goes first, with all
// that is ready of it; so a kind that occurs at many depths waits until more of it has gathered.
#pragma once
#include <cstdint>
#include <vector>

#include "small_vector.h"

namespace tandem {

struct Deferred {  // a call: after those before it, as far as it needs them
  int32_t kind;    // calls of one kind may run together
  SmallVector<int32_t, 4> needs;
};

using Groups = std::vector<std::vector<int32_t>>;

Groups order_groups(const std::vector<Deferred>& calls, int32_t kinds);

}  // namespace tandem
