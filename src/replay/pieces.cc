#include "replay/pieces.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int32_t kLast = INT32_MAX;
constexpr size_t kWorthDividing = 48;  // instructions
// Parts of the calls that the last piece but one waits for: the first pieces are small, to begin soon.
constexpr double kCuts[] = {0.04, 0.12, 0.25, 0.45, 0.7, 1.0};

int32_t root_of(const Plan& plan, int32_t value) {
  while (plan.values[value].kind == ValueKind::View) value = plan.values[value].source;
  return value;
}

// With how many calls captured each of the instructions can run, and how many suffice for most of those that write no
// input.
std::vector<int32_t> when_ready(const Plan& plan, const std::vector<const Instruction*>& list, const KnownInputs& known,
                                int32_t& most) {
  struct Times {
    int32_t written = 0, read = 0;
  };
  std::vector<Times> inputs(known.calls.size()), values(plan.values.size());
  const auto source = [&](int32_t root) {
    return plan.values[root].kind == ValueKind::Input ? plan.values[root].source : -1;
  };
  const auto times = [&](int32_t root) -> Times& { return source(root) >= 0 ? inputs[source(root)] : values[root]; };
  const auto each = [&](const Instruction& in, auto f) {  // f(root of an operand, whether it is written)
    const bool kernel = in.kind == Instruction::Kind::Kernel;
    for (size_t k = 0; k < in.values.size(); ++k)
      f(root_of(plan, in.values[k]), !kernel && k >= static_cast<size_t>(in.num_inputs));
    for (int32_t v : in.writes) f(root_of(plan, v), true);
  };
  std::vector<int32_t> result, early;
  for (const Instruction* in : list) {
    int32_t ready = in->waits ? kLast : 1;  // others wait for it in turn: it cannot be begun and given up
    each(*in, [&](int32_t root, bool written) {
      ready = std::max(ready, times(root).written);
      if (source(root) >= 0) ready = std::max(ready, written ? kLast : known.calls[source(root)]);
      if (written) ready = std::max(ready, times(root).read);
    });
    each(*in, [&](int32_t root, bool written) {
      int32_t& time = written ? times(root).written : times(root).read;
      time = std::max(time, ready);
    });
    result.push_back(ready);
    if (ready != kLast) early.push_back(ready);
  }
  // What reads nothing, as zeros that gradients are added to, could run at once, but would lie there until it is
  // needed.
  std::vector<int32_t> first_use(plan.values.size(), kLast);
  for (size_t k = list.size(); k-- > 0;) {
    bool reads = false;
    int32_t needed = kLast;
    std::vector<int32_t> written;
    each(*list[k], [&](int32_t root, bool writes) {
      if (writes) written.push_back(root);
    });
    each(*list[k], [&](int32_t root, bool) {
      reads |= source(root) >= 0 || std::find(written.begin(), written.end(), root) == written.end();
      needed = std::min(needed, first_use[root]);
    });
    if (!reads) result[k] = std::max(result[k], needed);
    each(*list[k], [&](int32_t root, bool) { first_use[root] = std::min(first_use[root], result[k]); });
  }
  std::sort(early.begin(), early.end());
  most = early.empty() ? 0 : early[early.size() * 9 / 10];
  return result;
}

}  // namespace

std::vector<Piece> divide(const Plan& plan, const KnownInputs* known) {
  std::vector<Piece> pieces;
  if (!known || plan.instructions.size() < kWorthDividing) {
    Piece& all = pieces.emplace_back();
    for (const Instruction& in : plan.instructions) {
      all.instructions.push_back(&in);
      all.done.emplace_back();
    }
    return pieces;
  }
  std::vector<const Instruction*> list;
  for (const Instruction& in : plan.instructions)
    if (in.kind != Instruction::Kind::Free) list.push_back(&in);
  int32_t end = 0;
  const std::vector<int32_t> ready = when_ready(plan, list, *known, end);
  int32_t from = 0;
  const auto take = [&](int32_t upto) {
    Piece piece;
    piece.after = upto;
    for (size_t k = 0; k < ready.size(); ++k)
      if (ready[k] > from && ready[k] <= upto) piece.instructions.push_back(list[k]);
    from = upto;
    if (!piece.instructions.empty()) pieces.push_back(std::move(piece));
  };
  for (double cut : kCuts) take(static_cast<int32_t>(cut * end));
  take(kLast);
  pieces.back().after = kLast;

  // What the plan gives back goes after its last use in the new order.
  std::vector<std::pair<size_t, size_t>> last(plan.values.size(), {SIZE_MAX, 0});
  for (size_t p = 0; p < pieces.size(); ++p)
    for (size_t k = 0; k < pieces[p].instructions.size(); ++k)
      for (int32_t v : pieces[p].instructions[k]->values) last[root_of(plan, v)] = {p, k};
  for (Piece& piece : pieces) piece.done.resize(piece.instructions.size());
  for (const Instruction& in : plan.instructions)
    if (in.kind == Instruction::Kind::Free)
      for (int32_t v : in.values)
        if (auto [p, k] = last[v]; p != SIZE_MAX) pieces[p].done[k].push_back(v);
  return pieces;
}

}  // namespace tandem
