#include "collectives/order.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>

#include "check.h"
#include "switches.h"

namespace tandem::collectives {
namespace {

constexpr size_t kMost = 256;  // pairs of lines that are remembered

bool is_compared(const Call& call) {
  switch (static_cast<Kind>(call.kind)) {
    case Kind::AllReduce:
    case Kind::AllGather:
    case Kind::ReduceScatter:
    case Kind::AllToAll:
      return !call.tag && call.line[0];
    default:
      return false;
  }
}

}  // namespace

// What the first rank's line `from` met, and what that met in turn, up to the line `to`: the collective that began it.
const Orders::Met* Orders::find(const Lines& met, const std::string& from, const std::string& to) {
  std::set<std::string> seen{from};
  std::vector<std::pair<std::string, const Met*>> open{{from, nullptr}};
  while (!open.empty()) {
    const auto [line, began] = open.back();
    open.pop_back();
    const auto next = met.find(line);
    if (next == met.end()) continue;
    for (const Met& one : next->second) {
      const Met* first = began ? began : &one;
      if (one.line == to) return first;
      if (seen.insert(one.line).second) open.emplace_back(one.line, first);
    }
  }
  return nullptr;
}

void Orders::compare(const std::vector<const Call*>& calls, const std::vector<int>& names, int64_t number, bool warns) {
  const int mode = switches::get(switches::order);
  if (!mode || told_ || !is_compared(*calls[0])) return;
  const std::string first = calls[0]->line;
  for (size_t r = 1; r < calls.size(); ++r) {
    const std::string line = calls[r]->line;
    if (line == first || !is_compared(*calls[r])) continue;
    Lines& met = met_[static_cast<int>(r)];
    const Met* began = find(met, line, first);
    if (!began) {
      auto& here = met[first];
      const bool known = std::any_of(here.begin(), here.end(), [&](const Met& one) { return one.line == line; });
      if (!known && count_ < kMost) here.push_back({line, number}), ++count_;
      continue;
    }
    told_ = mode == 1;
    std::ostringstream text;
    text << "ranks call equal collectives in different orders:\n  number " << began->number << ": rank " << names[0]
         << " at " << line << ", rank " << names[r] << " at " << began->line << "\n  number " << number << ": rank "
         << names[0] << ": " << describe(*calls[0]) << ", rank " << names[r] << " at " << line
         << "\n  if they are of different tensors, those were mixed";
    constexpr const char* kFix =
        "\n  fix: call the same collectives in the same order on every rank; where branches call one collective on "
        "purpose, have them call it from one line, or set TANDEM_ORDER=1 for a warning";
    if (mode > 1) fail(ErrorKind::Distributed, text.str(), kFix);
    if (warns) fprintf(stderr, "tandem: %s\n", (text.str() + kFix).c_str());
    return;
  }
}

}  // namespace tandem::collectives
