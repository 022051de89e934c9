// Equal collectives that ranks call in different orders.
//
// Note [Orders of calls]
// Collectives of other kinds, types or sizes are told from one another when ranks meet. Two of the same kind, type and
// size are not: a rank that calls them the other way round gets sums of different tensors. What may tell is the line.
// Ranks may call one collective from different lines, as branches do; but where line A of one rank has met line B of
// another, and then B has met A (or B has met C, and C then A), one order of calls has most likely met another: an
// error, which shows the lines. Two branches that each reduce a flag look alike when ranks swap them; TANDEM_ORDER=1
// makes it a warning for them. Collectives with a root are left out, as ranks take turns at being it; so are those
// whose tags were compared.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "collectives/call.h"

namespace tandem::collectives {

class Orders {
 public:
  // After ranks have agreed on a collective: a warning by the rank that warns, or an error on all.
  void compare(const std::vector<const Call*>& calls, const std::vector<int>& names, int64_t number, bool warns);

 private:
  struct Met {  // a line of another rank, and in which collective it was
    std::string line;
    int64_t number;
  };
  using Lines = std::map<std::string, std::vector<Met>>;  // by the first rank's line
  static const Met* find(const Lines& met, const std::string& from, const std::string& to);

  std::map<int, Lines> met_;  // by rank
  size_t count_ = 0;
  bool told_ = false;
};

}  // namespace tandem::collectives
