// Which deferred calls of one example make a cell: what runs, batched, as one program.
//
// Note [Cells]
// A function of the user's makes the same calls each time it runs, node after node of a tree, token after token. Found
// again among the deferred calls, they are a cell: batched as one operator of many calls, compiled and fused, with one
// record on the tape, where each call alone would be a group with blocks of its own. Cells have a depth; a cell takes
// from cells that are less deep, so any choice of members runs in some order. A call joins the deepest cell it takes
// from, several of one depth become one for it, and else it begins a cell one deeper: nothing that could run early
// waits in a cell for what is late. What keeps a cell one run of a function is where calls were made: within a piece of
// Python code a cell goes forward, and a call that is behind or where another one of its kind was made begins the next
// turn of a loop or another call of the function.
//
// Where a cell ends for most but goes on for a few (the root of a tree, which a classifier follows), it is cut.
#pragma once
#include <cstdint>
#include <vector>

#include "small_vector.h"

namespace tandem {

struct CellNeed {
  int32_t call;   // before this one
  bool joinable;  // both may be in one cell
};

struct CellCall {
  const void* code = nullptr;  // where it was made: a piece of code
  int32_t instruction = 0;     // and a place in it
  int32_t kind = 0;
  int32_t mode = -1;  // calls of one cell have the same; -1: in no cell with others
  SmallVector<CellNeed, 4> needs;
};

struct CallCell {
  int32_t depth = 0;
  SmallVector<int32_t, 2> members;  // in the order of calls
};

constexpr size_t kMostCellCalls = 48;
extern int64_t cells_worth_compiling;  // of a kind, seen so far: below, calls run by themselves

// Every call in one cell; cells come after those that they take from.
std::vector<CallCell> form_cells(const std::vector<CellCall>& calls);

}  // namespace tandem
