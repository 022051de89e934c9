// Cells of deferred calls: every call in one, after what it takes from; one run of a function each.
// links: src/autobatch/cells.cc
#include "autobatch/cells.h"

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

const char code[2] = {};  // two pieces of code

CellCall call(int32_t instruction, std::initializer_list<int32_t> needs, int of = 0) {
  CellCall made;
  made.code = &code[of];
  made.instruction = instruction;
  made.kind = instruction;
  made.mode = 0;
  for (int32_t need : needs) made.needs.push_back({need, true});
  return made;
}

std::vector<CallCell> formed(const std::vector<CellCall>& calls) {
  std::vector<CallCell> cells = form_cells(calls);
  std::vector<int32_t> cell_of(calls.size(), -1);
  for (size_t c = 0; c < cells.size(); ++c)
    for (int32_t member : cells[c].members) {
      EXPECT(cell_of[member] < 0);
      cell_of[member] = static_cast<int32_t>(c);
    }
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT(cell_of[i] >= 0);
    for (const CellNeed& need : calls[i].needs) {
      EXPECT(cell_of[need.call] <= cell_of[i]);
      EXPECT(need.joinable || cell_of[need.call] != cell_of[i]);
    }
  }
  return cells;
}

template <typename... Calls>
std::vector<CellCall> list(Calls... calls) {
  std::vector<CellCall> made;
  (made.push_back(std::move(calls)), ...);
  return made;
}

void random_programs() {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<CellCall> calls(1 + random() % 80);
    for (size_t i = 0; i < calls.size(); ++i) {
      calls[i].code = &code[random() % 2];
      calls[i].instruction = static_cast<int32_t>(random() % 10);
      calls[i].kind = static_cast<int32_t>(random() % 6);
      calls[i].mode = static_cast<int32_t>(random() % 8) - 1 > 0 ? 0 : -1;
      for (size_t k = 0; i > 0 && k < random() % 3; ++k) {
        const auto need = static_cast<int32_t>(random() % i);
        bool known = false;
        for (const CellNeed& other : calls[i].needs) known |= other.call == need;
        if (!known) calls[i].needs.push_back({need, random() % 8 != 0});
      }
    }
    formed(calls);
  }
}

}  // namespace

int main() {
  EXPECT(form_cells({}).empty());
  // A function run twice, the second time on what the first gave: a cell each.
  EXPECT(formed(list(call(1, {}), call(2, {0}), call(3, {1}), call(1, {2}), call(2, {3}), call(3, {4}))).size() == 2);
  // Two values that meet are of one cell; of a loop's turns, one each.
  EXPECT(formed(list(call(1, {}), call(2, {}), call(3, {0, 1}))).size() == 1);
  EXPECT(formed(list(call(1, {}), call(1, {0}), call(1, {1}))).size() == 3);
  // A child's run does not join its parent's, though it is all that the parent takes from.
  EXPECT(formed(list(call(5, {}), call(6, {0}), call(5, {}), call(6, {2}), call(4, {1, 3}), call(5, {4}))).size() == 3);
  // What could run early does not wait for what is late: the third call goes with the first.
  const std::vector<CallCell> early = formed(list(call(1, {}, 1), call(9, {}), call(2, {0}, 1), call(3, {1, 2}, 1)));
  EXPECT(early.size() == 1);
  std::vector<CellCall> apart = list(call(1, {}), call(2, {0}));
  apart[1].needs[0].joinable = false;
  EXPECT(formed(apart).size() == 2);
  random_programs();
  return 0;
}
