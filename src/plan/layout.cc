#include "plan/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "library/deterministic.h"
#include "library/epilogue.h"
#include "library/scratch.h"

namespace tandem {

namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMostPieces = 20000;  // placing takes the square of their number

// In this order, each in the smallest gap that holds it.
int64_t place_in_order(std::vector<MemoryPiece>& pieces, const std::vector<int32_t>& order) {
  std::vector<int32_t> placed;  // by offset
  placed.reserve(pieces.size());
  int64_t total = 0;
  for (int32_t index : order) {
    MemoryPiece& piece = pieces[index];
    int64_t end = 0, best = -1, smallest = std::numeric_limits<int64_t>::max();
    for (int32_t other_index : placed) {
      const MemoryPiece& other = pieces[other_index];
      if (other.last < piece.first || other.first > piece.last) continue;
      if (const int64_t gap = other.offset - end; gap >= piece.bytes && gap < smallest) best = end, smallest = gap;
      end = std::max(end, other.offset + other.bytes);
    }
    piece.offset = best >= 0 ? best : end;
    total = std::max(total, piece.offset + piece.bytes);
    const auto before = [&](int32_t a, int32_t b) { return pieces[a].offset < pieces[b].offset; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index, before), index);
  }
  return total;
}

}  // namespace

int64_t place(std::vector<MemoryPiece>& pieces) {
  std::vector<int32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return pieces[a].bytes > pieces[b].bytes; });
  return place_in_order(pieces, order);
}

std::shared_ptr<const MemoryLayout> PlanRun::find_layout() const {
  const std::vector<Binding>& bindings = plan_.bindings;
  for (const auto& layout : plan_.layouts) {
    bool same = layout->key.back() == library::conditions();
    for (size_t i = 0; same && i < bindings.size(); ++i) same = layout->key[i] == ints_[bindings[i].slot];
    if (same) return layout;
  }
  return nullptr;
}

std::shared_ptr<const MemoryLayout> PlanRun::make_layout() const {
  auto layout = std::make_shared<MemoryLayout>();
  for (const Binding& bind : plan_.bindings) layout->key.push_back(ints_[bind.slot]);
  layout->key.push_back(library::conditions());

  const auto count = static_cast<int32_t>(plan_.instructions.size());
  std::vector<int32_t> roots(plan_.values.size());
  std::vector<MemoryPiece> lives(plan_.values.size(), MemoryPiece{0, -1, count});
  std::vector<bool> apart(plan_.values.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    int32_t root = static_cast<int32_t>(i);
    while (plan_.values[root].kind == ValueKind::View) root = plan_.values[root].source;
    roots[i] = root;
    apart[i] = plan_.values[i].kind != ValueKind::Fresh;
  }
  for (const Plan::Output& output : plan_.outputs) apart[roots[output.value]] = true;
  for (const SavedItem& item : plan_.saved)
    if (item.from == SavedItem::From::Temporary) apart[roots[item.index]] = true;
  // Blocks of their own may lie where other ranks can look at them; see Note [Shared heap].
  const library::Function waiting = plan_.waits ? library::find("collective") : nullptr;
  std::vector<MemoryPiece> pieces;
  std::vector<int32_t> owners;  // value, or ~instruction
  for (int32_t i = 0; i < count; ++i) {
    const Instruction& in = plan_.instructions[i];
    for (int32_t value : in.values) {
      MemoryPiece& life = lives[roots[value]];
      if (in.kind == Instruction::Kind::Free) life.last = i;
      if (in.kind == Instruction::Kind::Region || (waiting && in.routine == waiting)) apart[roots[value]] = true;
      if (life.first < 0) life.first = i;
    }
    if (!in.prepares) continue;
    if (const auto bytes = static_cast<int64_t>(scratch_of(in))) {
      pieces.push_back({bytes, i, i});
      owners.push_back(~i);
    }
  }
  for (size_t i = 0; i < lives.size(); ++i) {
    if (apart[i] || lives[i].first < 0) continue;
    try {
      lives[i].bytes = (bytes_of(static_cast<int32_t>(i)) + kAlignment - 1) / kAlignment * kAlignment;
    } catch (const Error&) {  // too large: the operator that makes it tells
      return layout;
    }
    if (!lives[i].bytes) continue;
    pieces.push_back(lives[i]);
    owners.push_back(static_cast<int32_t>(i));
  }
  if (pieces.size() < 2 || pieces.size() > kMostPieces) return layout;
  layout->bytes = place(pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (owners[i] >= 0) {
      layout->values.emplace_back(owners[i], pieces[i].offset);
    } else {
      layout->scratch.resize(count);
      layout->scratch[~owners[i]] = {pieces[i].offset, pieces[i].bytes};
    }
  }
  return layout;
}

size_t PlanRun::scratch_of(const Instruction& in) const {
  const std::vector<View> views = geometries(in);
  std::vector<int64_t> ints;
  for (int32_t slot : in.ints) ints.push_back(ints_[slot]);
  const int outputs = static_cast<int>(views.size()) - in.num_inputs;
  library::Call call{views.data(),
                     in.num_inputs,
                     views.data() + in.num_inputs,
                     outputs,
                     ints.data(),
                     static_cast<int>(ints.size()),
                     in.floats.data(),
                     static_cast<int>(in.floats.size())};
  library::Epilogue epilogue;
  if (in.epilogue) {
    epilogue.keeps = in.epilogue->keeps;
    call.epilogue = &epilogue;
  }
  return library::scratch_of(call, in.routine);
}

void PlanRun::take_arena(std::shared_ptr<const MemoryLayout> layout) {
  if (!layout->bytes) return;
  try {
    arena_ = allocate_arena(static_cast<size_t>(layout->bytes));
  } catch (const Error&) {  // piece by piece, less may do; and if not, the error names the operator
    return;
  }
  layout_ = std::move(layout);
  for (const auto& [value, offset] : layout_->values) data_[value] = arena_.data + offset;
}

void PlanRun::run_routine(const Instruction& in, const library::Call& call) {
  const std::pair<int64_t, int64_t> scratch = layout_ && !layout_->scratch.empty()
                                                  ? layout_->scratch[&in - plan_.instructions.data()]
                                                  : std::pair<int64_t, int64_t>{};
  if (!scratch.second) return in.routine(call);
  struct Use {
    explicit Use(library::ScratchPool pool) { library::scratch_pool = pool; }
    ~Use() { library::scratch_pool = {}; }
  } use({arena_.data + scratch.first, arena_.data + scratch.first + scratch.second});
  in.routine(call);
}

}  // namespace tandem
