#include "autobatch/frontiers.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tensor/device_rows.h"
#include "autobatch/group_call.h"
#include "autobatch/records.h"
#include "callbacks.h"
#include "capture/capture.h"
#include "check.h"
#include "known_source.h"
#include "tensor/generator.h"
#include "tensor/move.h"

namespace tandem {

namespace {

// The same numbers, sorted by a key of each, which is no larger than `most`; in the order they had where keys are
// equal.
std::vector<int64_t> sorted_by(const std::vector<int64_t>& numbers, const std::vector<int64_t>& key, int64_t most) {
  std::vector<int64_t> first(most + 2, 0), sorted(numbers.size());
  for (int64_t v : numbers) ++first[key[v] + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  for (int64_t v : numbers) sorted[first[key[v]]++] = v;
  return sorted;
}

}  // namespace

Schedule schedule_vertices(const Structure& s) {
  const int64_t n = s.size();
  std::vector<int64_t> depth(n, 0), counts(n, 0), first(n + 1, 0), users(s.children.size());
  for (int64_t child : s.children) {
    if (child < 0 || child >= n)
      fail(ErrorKind::Index, "vertex: the structure names vertex ", child, "; there are ", n);
    ++first[child + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int64_t> next(first.begin(), first.end() - 1), order;
  order.reserve(n);
  for (int64_t v = 0; v < n; ++v) {
    counts[v] = s.count(v);
    for (int64_t e = s.offsets[v]; e < s.offsets[v + 1]; ++e) users[next[s.children[e]]++] = v;
    if (counts[v] == 0) order.push_back(v);
  }
  std::vector<int64_t> waits = counts;
  int64_t deepest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t v = order[i];
    for (int64_t e = first[v]; e < first[v + 1]; ++e) {
      const int64_t user = users[e];
      depth[user] = std::max(depth[user], depth[v] + 1);
      deepest = std::max(deepest, depth[user]);
      if (--waits[user] == 0) order.push_back(user);
    }
  }
  if (static_cast<int64_t>(order.size()) < n) {
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](int64_t w) { return w > 0; }) - waits.begin();
    fail(ErrorKind::Value, "vertex: the structure has a cycle, and vertex ", stuck,
         " is on it or takes from it\n  fix: every vertex must take from vertices that can be computed before it");
  }
  std::iota(order.begin(), order.end(), 0);
  const int64_t most = n ? *std::max_element(counts.begin(), counts.end()) : 0;
  Schedule made;
  made.order = sorted_by(sorted_by(order, counts, most), depth, deepest);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t v = made.order[i];
    const bool same = i > 0 && depth[v] == depth[made.order[i - 1]] && counts[v] == counts[made.order[i - 1]];
    if (!same) made.frontiers.push_back({i, i, counts[v]});
    made.frontiers.back().end = i + 1;
  }
  return made;
}

namespace {

struct Eager {  // calls run at once
  const NotDeferred now;
  Capture* capture = std::exchange(active_capture, nullptr);
  CallMode call = call_mode;
  Eager() = default;
  Eager(const Eager&) = delete;
  ~Eager() {
    active_capture = capture;
    call_mode = call;
  }
};

struct NoRule {};  // the function cannot be batched

bool has_one_user(const Structure& s) {
  std::vector<bool> taken(s.size(), false);
  for (int64_t child : s.children) {
    if (taken[child]) return false;
    taken[child] = true;
  }
  return true;
}

class Frontiers {
 public:
  Frontiers(const Structure& structure, const VertexFunctions& functions, const TensorList& inputs,
            const TensorList& states)
      : structure_(structure),
        schedule_(schedule_vertices(structure)),
        functions_(functions),
        inputs_(inputs.size()),
        states_(states.size()),
        group_of_(structure.size()),
        one_user_(has_one_user(structure)) {
    for (const TensorRef& input : inputs) {
      TensorList one;
      one.push_back(TensorRef::share(input.get()));
      add_group(std::move(one));
    }
    if (on_device(states[0]->storage)) order_inputs();
    first_frontier_ = groups_.size();
    used_ = std::make_shared<ResultsUsed>(ResultsUsed{0, std::vector<bool>(states.size())});
    for (const auto& [count, function] : functions) functions_of_[count] = one_vertex(function, count, inputs, states);
  }

  TensorList run() {
    for (const Schedule::Frontier& frontier : schedule_.frontiers) run(frontier);
    rows_ = group_of_;
    used_rows_ = rows_.size();
    const int64_t lead[] = {structure_.size()};
    return gather(groups_[first_frontier_].blocks.size(), lead, 1);
  }

 private:
  struct Group {  // of calls that ran as one, or an input
    TensorList blocks;
    Ref<BlockNode> node;  // null where no gradient is wanted
  };
  struct Place {
    int32_t group;
    int64_t row;
  };

  void add_group(TensorList blocks) {
    Group& group = groups_.emplace_back();
    const bool wanted = grad_mode.enabled && std::any_of(blocks.begin(), blocks.end(),
                                                         [](const TensorRef& block) { return block->requires_grad; });
    if (wanted) {
      group.node = Ref<BlockNode>::adopt(new BlockNode(blocks));
      group.node->sequence = next_sequence();
      if (used_) group.node->set_used(used_);  // of a frontier
    }
    group.blocks = std::move(blocks);
    place_in_list_.push_back(-1);
  }

  void order_inputs() {
    const int64_t lead[] = {structure_.size()};
    for (size_t i = 0; i < inputs_; ++i) {
      rows_.clear();
      for (int64_t v : schedule_.order) rows_.push_back({static_cast<int32_t>(i), v});
      used_rows_ = rows_.size();
      add_group(gather(1, lead, 1));
    }
    first_input_ = inputs_;
  }

  // Where the k-th vertex of the order has its row of an input.
  Place place_of_input(size_t input, int64_t k) const {
    return {static_cast<int32_t>(first_input_ + input), first_input_ ? k : schedule_.order[k]};
  }

  struct OneVertex {
    Ref<Plan> plan;
    int64_t advance = 0;  // how many random numbers it takes
  };

  static OneVertex one_vertex(const VertexFunction& function, int64_t count, const TensorList& inputs,
                              const TensorList& states) {
    CallArguments one;
    const size_t operands = inputs.size() + (count ? states.size() : 0) + function.constants.size();
    one.integer(Argument::Kind::Count, static_cast<int64_t>(operands));
    for (const TensorRef& input : inputs) {
      const View& v = input->view;
      one.tensor(TensorRef::adopt(new_view(input.get(), v.data, v.dtype, v.ndim - 1, v.shape + 1, v.strides + 1)));
    }
    for (size_t s = 0; count && s < states.size(); ++s) {
      int64_t shape[kMaxDims] = {count};
      const View& state = states[s]->view;
      if (state.ndim + 2 > kMaxDims) fail(ErrorKind::Shape, "a state has ", state.ndim, " axes, which is too many");
      std::copy_n(state.shape, state.ndim, shape + 1);
      one.tensor(TensorRef::adopt(new_contiguous(state.dtype, state.ndim + 1, shape, states[s]->storage->device())));
    }
    for (const TensorRef& constant : function.constants) one.tensor(TensorRef::share(constant.get()));
    one.integer(Argument::Kind::Count, static_cast<int64_t>(function.numbers.size()));
    for (const Argument& number : function.numbers) one.list.push_back(number);
    one.integer(Argument::Kind::Count, static_cast<int64_t>(function.ints.size()));
    for (const Argument& i : function.ints) one.list.push_back(i);
    Generator* generator = default_generator();
    one.integer(Argument::Kind::Seed, static_cast<int64_t>(generator->seed), reinterpret_cast<PyObject*>(generator));
    one.integer(Argument::Kind::Offset, static_cast<int64_t>(generator->offset));
    OneVertex made;
    made.plan = find_plan(function.op, one.list.data(), static_cast<int>(one.list.size()), false);
    if (made.plan->rng_advance < 0) return made;
    std::vector<InputView> views(one.list.size());
    for (size_t i = 0; i < views.size(); ++i) {
      Argument& a = one.list[i];
      if (a.kind == Argument::Kind::Tensor) {
        views[i].view = &a.tensor->view;
      } else {
        views[i].cell = reinterpret_cast<char*>(&a.integer);
        views[i].integer = a.integer;
      }
    }
    PlanRun run(*made.plan, views.data());
    TD_CHECK(run.guards_hold());
    made.advance = run.slot(made.plan->rng_advance);
    return made;
  }

  void run(const Schedule::Frontier& frontier) {
    const VertexFunction& function = functions_.at(frontier.count);
    const OneVertex& one = functions_of_.at(frontier.count);
    // A vertex alone runs as two: no other plan has to be compiled for it, and gradients of the second row are zeros.
    const int64_t members = frontier.end - frontier.begin, n = std::max<int64_t>(members, 2);
    const auto position = [&](int64_t i) { return frontier.begin + std::min(i, members - 1); };
    // Inputs in order have the second row behind the first, if there is one.
    const bool follows = first_input_ && frontier.begin + n <= structure_.size();
    const auto vertex = [&](int64_t i) { return schedule_.order[position(i)]; };
    CallArguments to;
    const bool random = one.plan->rng_advance >= 0;
    const size_t states = frontier.count ? states_ : 0;
    std::vector<bool> flags(inputs_ + states + function.constants.size(), false);
    to.integer(Argument::Kind::Count, static_cast<int64_t>(flags.size() + random));
    for (size_t i = 0; i < inputs_; ++i) {
      rows_.clear();
      for (int64_t k = 0; k < n; ++k) rows_.push_back(place_of_input(i, follows ? frontier.begin + k : position(k)));
      used_rows_ = static_cast<size_t>(members);
      flags[i] = true;
      to.tensor(std::move(gather(1, &n, 1)[0]));
    }
    const int64_t lead[] = {n, frontier.count};
    if (states) {
      rows_.clear();
      for (int64_t k = 0; k < n; ++k)
        for (int64_t e = structure_.offsets[vertex(k)]; e < structure_.offsets[vertex(k) + 1]; ++e)
          rows_.push_back(group_of_[structure_.children[e]]);
      used_rows_ = static_cast<size_t>(members * frontier.count);
      distinct_rows_ = one_user_;
      TensorList gathered = gather(states, lead, 2);
      distinct_rows_ = true;
      for (size_t s = 0; s < states; ++s) {
        flags[inputs_ + s] = true;
        to.tensor(std::move(gathered[s]));
        used_->used[s] = true;
      }
    }
    for (const TensorRef& constant : function.constants) to.tensor(TensorRef::share(constant.get()));
    Generator* generator = default_generator();
    if (random) {  // members have places of their own in the stream
      TensorRef places = TensorRef::adopt(new_contiguous(DType::Int64, 1, &n));
      for (int64_t k = 0; k < n; ++k)
        places->view.as<int64_t>()[k] =
            static_cast<int64_t>(generator->offset) + std::min(k, members - 1) * one.advance;
      generator->offset += static_cast<uint64_t>(members * one.advance);
      if (one.plan->device) places = TensorRef::adopt(move_tensor(places.get(), one.plan->device, false));
      to.tensor(std::move(places));
    }
    to.integer(Argument::Kind::Count, static_cast<int64_t>(function.numbers.size()) + (random ? 1 : 2));
    for (const Argument& number : function.numbers) to.list.push_back(number);
    to.integer(Argument::Kind::Integer, static_cast<int64_t>(generator->seed));
    if (!random) to.integer(Argument::Kind::Integer, static_cast<int64_t>(generator->offset));
    to.integer(Argument::Kind::Count, static_cast<int64_t>(function.ints.size()) + 1);
    for (const Argument& i : function.ints) to.list.push_back(i);
    to.integer(Argument::Kind::Int, n);

    const std::shared_ptr<GroupFunction> batched = group_function(one.plan, flags);
    if (batched->failed) throw NoRule{};
    bool returns_tuple = false;
    TensorList blocks;
    try {
      blocks = dispatch(batched->function(), to.list.data(), static_cast<int>(to.list.size()), &returns_tuple);
    } catch (const PythonError&) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;  // an interrupt
      PyErr_Clear();
      batched->failed = true;
      throw NoRule{};
    }
    own_blocks(blocks, to);
    const auto group = static_cast<int32_t>(groups_.size());
    for (int64_t k = 0; k < members; ++k) group_of_[vertex(k)] = {group, k};
    add_group(std::move(blocks));
  }

  const TensorRef& block_of(const Place& place, size_t output) const { return groups_[place.group].blocks[output]; }

  // rows_ one after the other, seen with the leading axes given: of the first outputs of groups, or of an input.
  TensorList gather(size_t outputs, const int64_t* lead, int num_lead) {
    const Place& first = rows_[0];
    bool in_place = true;
    for (size_t i = 0; i < rows_.size(); ++i)
      in_place &= rows_[i].group == first.group && rows_[i].row == first.row + static_cast<int64_t>(i);
    TensorList made;
    std::vector<View> rows;
    for (size_t o = 0; o < outputs; ++o) {
      const View& row = rows.emplace_back(row_of(block_of(first, o)->view));
      made.push_back(in_place ? in_block(*block_of(first, o).get(), row, lead, num_lead)
                              : in_own_memory(*block_of(first, o).get(), row, lead, num_lead));
      made[o]->inference = grad_mode.inference;
    }
    if (!in_place) copy_rows(rows, made);
    record(made, rows, in_place);
    return made;
  }

  static View row_of(const View& block) {
    View row = block;
    --row.ndim;
    std::copy_n(block.shape + 1, row.ndim, row.shape);
    std::copy_n(block.strides + 1, row.ndim, row.strides);
    return row;
  }

  static size_t bytes_of(const View& row) { return static_cast<size_t>(row.numel()) * item_size(row.dtype); }

  TensorRef in_block(const Tensor& block, const View& row, const int64_t* lead, int num_lead) const {
    int64_t shape[kMaxDims], strides[kMaxDims], step = 1;
    std::copy_n(lead, num_lead, shape);
    std::copy_n(row.shape, row.ndim, shape + num_lead);
    for (int i = num_lead + row.ndim - 1; i >= 0; --i) {
      strides[i] = step;
      step *= std::max<int64_t>(shape[i], 1);
    }
    char* data = block.view.data + static_cast<size_t>(rows_[0].row) * bytes_of(row);
    block.storage->retain();
    return TensorRef::adopt(new_tensor(block.storage, data, row.dtype, num_lead + row.ndim, shape, strides));
  }

  static TensorRef in_own_memory(const Tensor& block, const View& row, const int64_t* lead, int num_lead) {
    int64_t shape[kMaxDims];
    std::copy_n(lead, num_lead, shape);
    std::copy_n(row.shape, row.ndim, shape + num_lead);
    return TensorRef::adopt(new_contiguous(row.dtype, num_lead + row.ndim, shape, block.storage->device()));
  }

  // Rows of each output to a tensor of its own. On a device, outputs with rows of one size by one launch.
  void copy_rows(const std::vector<View>& rows, const TensorList& made) {
    const int device = made[0]->storage->device();
    std::vector<const char*> from;
    SmallVector<char*, kMostJoined> to;
    for (size_t o = 0; o < rows.size(); ++o) {
      const size_t bytes = bytes_of(rows[o]);
      const auto place = [&](const Place& p) { return block_of(p, o)->view.data + static_cast<size_t>(p.row) * bytes; };
      char* at = made[o]->view.data;
      if (!on_device(made[0]->storage)) {
        for (const Place& p : rows_) {
          std::memcpy(at, place(p), bytes);
          at += bytes;
        }
        continue;
      }
      from.reserve(from.size() + rows_.size());
      for (const Place& p : rows_) from.push_back(place(p));
      to.push_back(at);
      if (o + 1 < rows.size() && to.size() < kMostJoined && bytes_of(rows[o + 1]) == bytes) continue;
      join_device_rows(device, from, bytes, to);
      from.clear();
      to.clear();
    }
  }

  // Operands made of the same rows share the list of them, where gradients of the same blocks are wanted.
  void record(const TensorList& made, const std::vector<View>& rows, bool in_place) {
    std::vector<int32_t> present;  // groups, as they come
    for (const Place& place : rows_) {
      if (place_in_list_[place.group] >= 0) continue;
      place_in_list_[place.group] = static_cast<int32_t>(present.size());
      present.push_back(place.group);
    }
    std::shared_ptr<const RowList> list;
    std::vector<bool> listed;  // of which blocks
    for (size_t o = 0; o < made.size(); ++o) {
      std::vector<bool> wanted(present.size());
      for (size_t i = 0; i < present.size(); ++i) {
        const Group& group = groups_[present[i]];
        wanted[i] = group.node && group.blocks[o]->requires_grad;
      }
      if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) continue;
      if (!list || wanted != listed) {
        const auto count = static_cast<int64_t>(rows_.size());
        list = list_rows(wanted, in_place && block_of(rows_[0], o)->view.shape[0] == count);
        listed = wanted;
      }
      auto node = Ref<RowsNode>::adopt(new RowsNode(rows[o], list));
      for (size_t i = 0; i < present.size(); ++i)
        if (wanted[i]) node->add_block(groups_[present[i]].node.get(), static_cast<uint32_t>(o));
      node->sequence = next_sequence();
      node->source = user_source();
      set_history(made[o].get(), node.get(), 0);
    }
    for (int32_t group : present) place_in_list_[group] = -1;
  }

  std::shared_ptr<const RowList> list_rows(const std::vector<bool>& wanted, bool all_of_one) const {
    std::vector<int32_t> edges(wanted.size(), -1);
    int32_t next = 0;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i]) edges[i] = next++;
    auto made = std::make_shared<RowList>();
    made->rows.reserve(rows_.size());
    for (const Place& place : rows_) made->rows.push_back({edges[place_in_list_[place.group]], place.row});
    made->used = used_rows_;
    made->distinct = distinct_rows_;
    made->whole = all_of_one && used_rows_ == rows_.size();
    const auto group = static_cast<size_t>(rows_[0].group);  // of an ordered input: used rows are side by side
    made->is_part = group >= first_input_ && first_input_ > 0 && group < first_frontier_;
    return made;
  }

  const Structure& structure_;
  const Schedule schedule_;
  const VertexFunctions& functions_;
  std::unordered_map<int64_t, OneVertex> functions_of_;
  size_t inputs_, first_input_ = 0;  // of the groups, the first that frontiers have rows of
  size_t states_, first_frontier_ = 0;
  std::shared_ptr<ResultsUsed> used_;  // states that vertices take: roots' get zeros where nothing else takes them
  std::vector<Group> groups_;          // the inputs, perhaps once more in order, then the frontiers
  std::vector<int32_t> place_in_list_;  // by group, while rows are listed
  std::vector<Place> group_of_;         // by vertex
  // What is gathered: so many of the first rows get gradients, and whether one of them may be there twice.
  std::vector<Place> rows_;
  size_t used_rows_ = 0;
  bool distinct_rows_ = true;
  const bool one_user_;  // no vertex is taken by two
};

}  // namespace

bool run_frontiers(const Structure& structure, const VertexFunctions& functions, const TensorList& inputs,
                   const TensorList& states, TensorList& results) {
  const int device = states[0]->storage->device();
  const auto there = [&](const TensorRef& t) { return t->storage->device() == device && !t->storage->sharded(); };
  bool all = std::all_of(inputs.begin(), inputs.end(), there) && std::all_of(states.begin(), states.end(), there);
  for (const auto& [count, function] : functions)
    all &= std::all_of(function.constants.begin(), function.constants.end(), there);
  if (!all) return false;
  for (const TensorRef& input : inputs) materialize(input.get());
  const Eager eager;
  const KnownSource line;
  Generator* generator = default_generator();
  const uint64_t offset = generator->offset;
  try {
    Frontiers frontiers(structure, functions, inputs, states);
    call_mode.autocast = 0;  // graphs of vertices have the casts
    results = frontiers.run();
    return true;
  } catch (const NoRule&) {
  } catch (const Error& error) {
    if (error.kind == ErrorKind::Memory || error.kind == ErrorKind::Internal) throw;
  }
  generator->offset = offset;
  return false;
}

}  // namespace tandem
