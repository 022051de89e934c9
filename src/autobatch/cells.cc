#include "autobatch/cells.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem {

namespace {

class Forming {
 public:
  explicit Forming(const std::vector<CellCall>& calls) : calls_(calls), cell_of_(calls.size(), -1) {
    for (size_t i = 0; i < calls.size(); ++i) place(static_cast<int32_t>(i));
  }

  std::vector<CallCell> cells() {
    int32_t deepest = -1;
    std::vector<int32_t> order;
    for (size_t c = 0; c < cells_.size(); ++c) {
      if (cells_[c].members.empty()) continue;  // became part of another
      deepest = std::max(deepest, cells_[c].depth);
      order.push_back(static_cast<int32_t>(c));
    }
    std::vector<int32_t> first(deepest + 2, 0);
    for (int32_t c : order) ++first[cells_[c].depth + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<CallCell> sorted(order.size());
    for (int32_t c : order) sorted[first[cells_[c].depth]++] = std::move(cells_[c]);
    return sorted;
  }

 private:
  void place(int32_t i) {
    const CellCall& call = calls_[i];
    int32_t depth = -1;
    for (const CellNeed& need : call.needs) depth = std::max(depth, cells_[cell_of_[need.call]].depth);
    top_.clear();
    for (const CellNeed& need : call.needs) {
      const int32_t cell = cell_of_[need.call];
      if (cells_[cell].depth == depth && std::find(top_.begin(), top_.end(), cell) == top_.end()) top_.push_back(cell);
    }
    if (!top_.empty() && joins(i)) {
      merge();
      cells_[top_[0]].members.push_back(i);
      cell_of_[i] = top_[0];
      return;
    }
    cell_of_[i] = static_cast<int32_t>(cells_.size());
    CallCell& made = cells_.emplace_back();
    made.depth = depth + 1;
    made.members.push_back(i);
  }

  // Whether a call goes on where a member of its cell was made.
  bool follows(int32_t member, int32_t i) const {
    const CellCall &before = calls_[member], &call = calls_[i];
    if (before.code != call.code) return true;
    return before.instruction == call.instruction ? before.kind != call.kind : before.instruction < call.instruction;
  }

  bool joins(int32_t i) {
    if (calls_[i].mode < 0) return false;
    size_t size = 1;
    for (int32_t cell : top_) size += cells_[cell].members.size();
    if (size > kMostCellCalls || top_.size() > kMostMerged) return false;
    for (const CellNeed& need : calls_[i].needs)
      if (!need.joinable && std::find(top_.begin(), top_.end(), cell_of_[need.call]) != top_.end()) return false;
    for (int32_t cell : top_)
      for (int32_t member : cells_[cell].members)
        if (calls_[member].mode != calls_[i].mode || !follows(member, i)) return false;
    for (size_t a = 0; a < top_.size(); ++a)
      for (size_t b = a + 1; b < top_.size(); ++b)
        if (!fit(cells_[top_[a]], cells_[top_[b]])) return false;
    return true;
  }

  bool fit(const CallCell& a, const CallCell& b) const {
    for (int32_t x : a.members)
      for (int32_t y : b.members)
        if (x < y ? !follows(x, y) : !follows(y, x)) return false;
    return true;
  }

  void merge() {
    CallCell& into = cells_[top_[0]];
    for (size_t k = 1; k < top_.size(); ++k) {
      const auto middle = static_cast<std::ptrdiff_t>(into.members.size());
      for (int32_t member : cells_[top_[k]].members) {
        cell_of_[member] = top_[0];
        into.members.push_back(member);
      }
      cells_[top_[k]].members.clear();
      std::inplace_merge(into.members.begin(), into.members.begin() + middle, into.members.end());
    }
  }

  static constexpr size_t kMostMerged = 4;
  const std::vector<CellCall>& calls_;
  std::vector<CallCell> cells_;
  std::vector<int32_t> cell_of_;
  SmallVector<int32_t, 4> top_;  // the deepest cells that a call takes from
};

}  // namespace

std::vector<CallCell> form_cells(const std::vector<CellCall>& calls) {
  return Forming(calls).cells();
}

}  // namespace tandem
