#include "autobatch/schedule.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace tandem {

namespace {

std::vector<int32_t> depths(const std::vector<Deferred>& calls) {
  std::vector<int32_t> depth(calls.size(), 0);
  for (size_t i = 0; i < calls.size(); ++i)
    for (int32_t need : calls[i].needs) depth[i] = std::max(depth[i], depth[need] + 1);
  return depth;
}

Groups by_depth(const std::vector<Deferred>& calls, const std::vector<int32_t>& depth, int32_t kinds) {
  const int32_t deepest = depth.empty() ? -1 : *std::max_element(depth.begin(), depth.end());
  std::vector<std::vector<int32_t>> levels(deepest + 1);
  for (size_t i = 0; i < calls.size(); ++i) levels[depth[i]].push_back(static_cast<int32_t>(i));
  Groups groups;
  std::vector<int32_t> group_of(kinds, -1);
  for (const std::vector<int32_t>& level : levels) {
    const auto first = static_cast<int32_t>(groups.size());
    for (int32_t i : level) {
      int32_t& group = group_of[calls[i].kind];
      if (group < first) {
        group = static_cast<int32_t>(groups.size());
        groups.emplace_back();
      }
      groups[group].push_back(i);
    }
  }
  return groups;
}

Groups by_agenda(const std::vector<Deferred>& calls, const std::vector<int32_t>& depth, int32_t kinds) {
  std::vector<double> total(kinds, 0.0);
  std::vector<int32_t> count(kinds, 0), waits(calls.size(), 0);
  std::vector<std::vector<int32_t>> ready(kinds);
  std::vector<int32_t> first(calls.size() + 1, 0);  // of a call among the users of all calls
  for (size_t i = 0; i < calls.size(); ++i) {
    total[calls[i].kind] += depth[i];
    ++count[calls[i].kind];
    waits[i] = static_cast<int32_t>(calls[i].needs.size());
    for (int32_t need : calls[i].needs) ++first[need + 1];
  }
  for (size_t i = 0; i < calls.size(); ++i) first[i + 1] += first[i];
  std::vector<int32_t> users(first.back()), next(first.begin(), first.end() - 1);
  for (size_t i = 0; i < calls.size(); ++i)
    for (int32_t need : calls[i].needs) users[next[need]++] = static_cast<int32_t>(i);
  using Entry = std::pair<double, int32_t>;  // average depth, kind
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> agenda;
  const auto add = [&](int32_t i) {
    const int32_t kind = calls[i].kind;
    if (ready[kind].empty()) agenda.emplace(total[kind] / count[kind], kind);
    ready[kind].push_back(i);
  };
  for (size_t i = 0; i < calls.size(); ++i)
    if (waits[i] == 0) add(static_cast<int32_t>(i));
  Groups groups;
  while (!agenda.empty()) {
    const int32_t kind = agenda.top().second;
    agenda.pop();
    std::vector<int32_t> group = std::exchange(ready[kind], {});
    std::sort(group.begin(), group.end());
    for (int32_t i : group)
      for (int32_t u = first[i]; u < first[i + 1]; ++u)
        if (--waits[users[u]] == 0) add(users[u]);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

Groups order_groups(const std::vector<Deferred>& calls, int32_t kinds) {
  const std::vector<int32_t> depth = depths(calls);
  Groups levels = by_depth(calls, depth, kinds);
  Groups agenda = by_agenda(calls, depth, kinds);
  return agenda.size() < levels.size() ? agenda : levels;
}

}  // namespace tandem
