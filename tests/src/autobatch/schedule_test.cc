// Groups of deferred calls: every call once, after what it needs, only with its kind; depth and agenda.
// links: src/autobatch/schedule.cc
#include "autobatch/schedule.h"

#include <cstdio>
#include <cstdlib>
#include <random>

using namespace tandem;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

namespace {

std::vector<Deferred> calls_of(const std::vector<std::pair<int32_t, std::vector<int32_t>>>& list) {
  std::vector<Deferred> calls(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    calls[i].kind = list[i].first;
    for (int32_t need : list[i].second) calls[i].needs.push_back(need);
  }
  return calls;
}

void check(const std::vector<Deferred>& calls, const Groups& groups) {
  std::vector<int32_t> done(calls.size(), 0);
  for (const std::vector<int32_t>& group : groups) {
    EXPECT(!group.empty());
    for (int32_t i : group) {
      EXPECT(calls[i].kind == calls[group[0]].kind);
      for (int32_t need : calls[i].needs) EXPECT(done[need]);
    }
    for (int32_t i : group) EXPECT(!done[i]++);
  }
  for (int32_t d : done) EXPECT(d == 1);
}

void random_programs() {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int n = 1 + static_cast<int>(random() % 60), kinds = 1 + static_cast<int>(random() % 5);
    std::vector<Deferred> calls(n);
    for (int i = 0; i < n; ++i) {
      calls[i].kind = static_cast<int32_t>(random() % kinds);
      int32_t before = -1;
      for (int k = 0; k < static_cast<int>(random() % 4) && before + 1 < i; ++k) {
        before += 1 + static_cast<int32_t>(random() % (i - before - 1 ? i - before - 1 : 1));
        if (before >= i) break;
        calls[i].needs.push_back(before);
      }
    }
    check(calls, order_groups(calls, kinds));
  }
}

}  // namespace

int main() {
  EXPECT(order_groups({}, 0).empty());
  // Two chains of kinds 0 1 0 1: four groups of two.
  const auto chains = calls_of({{0, {}}, {1, {0}}, {0, {1}}, {1, {2}}, {0, {}}, {1, {4}}, {0, {5}}, {1, {6}}});
  check(chains, order_groups(chains, 2));
  EXPECT(order_groups(chains, 2).size() == 4);
  // Calls of kind 1 at different depths: the agenda waits for all of them, depth would split them.
  const auto apart = calls_of({{0, {}}, {1, {0}}, {0, {}}, {0, {2}}, {1, {3}}, {0, {}}, {0, {5}}, {0, {6}}, {1, {7}}});
  check(apart, order_groups(apart, 2));
  EXPECT(order_groups(apart, 2).size() == 4);
  random_programs();
  return 0;
}
