#include "autobatch/frontiers.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "autobatch/device_rows.h"
#include "autobatch/group_call.h"
#include "autobatch/records.h"
#include "callbacks.h"
#include "capture/capture.h"
#include "check.h"
#include "known_source.h"
#include "tensor/generator.h"
#include "tensor/move.h"

namespace tandem {

bool orders_inputs = false;

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

class Frontiers {
 public:
  Frontiers(const Structure& structure, const VertexFunctions& functions, const TensorList& inputs,
            const TensorList& states)
      : structure_(structure),
        schedule_(schedule_vertices(structure)),
        functions_(functions),
        inputs_(inputs.size()),
        states_(states.size()),
        group_of_(structure.size()) {
    for (const TensorRef& input : inputs) {
      TensorList one;
      one.push_back(TensorRef::share(input.get()));
      add_group(std::move(one));
    }
    if (orders_inputs || states[0]->storage->device()) order_inputs();
    first_frontier_ = groups_.size();
    used_ = std::make_shared<ResultsUsed>(ResultsUsed{0, std::vector<bool>(states.size())});
    for (const auto& [count, function] : functions) functions_of_[count] = one_vertex(function, count, inputs, states);
  }

  TensorList run() {
    for (const Schedule::Frontier& frontier : schedule_.frontiers) run(frontier);
    TensorList results;
    const size_t outputs = groups_[first_frontier_].blocks.size();
    for (size_t o = 0; o < outputs; ++o) {
      rows_.clear();
      for (int64_t v = 0; v < structure_.size(); ++v) rows_.push_back(group_of_[v]);
      const int64_t lead[] = {structure_.size()};
      results.push_back(gather(o, lead, 1));
    }
    return results;
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
    edge_of_.push_back(-1);
  }

  void order_inputs() {
    const int64_t lead[] = {structure_.size()};
    for (size_t i = 0; i < inputs_; ++i) {
      rows_.clear();
      for (int64_t v : schedule_.order) rows_.push_back({static_cast<int32_t>(i), v});
      TensorList one;
      one.push_back(gather(0, lead, 1));
      add_group(std::move(one));
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
    const auto vertex = [&](int64_t i) { return schedule_.order[position(i)]; };
    CallArguments to;
    const bool random = one.plan->rng_advance >= 0;
    const size_t states = frontier.count ? states_ : 0;
    std::vector<bool> flags(inputs_ + states + function.constants.size(), false);
    to.integer(Argument::Kind::Count, static_cast<int64_t>(flags.size() + random));
    for (size_t i = 0; i < inputs_; ++i) {
      rows_.clear();
      for (int64_t k = 0; k < n; ++k) rows_.push_back(place_of_input(i, position(k)));
      flags[i] = true;
      to.tensor(gather(0, &n, 1));
    }
    const int64_t lead[] = {n, frontier.count};
    for (size_t s = 0; s < states; ++s) {
      rows_.clear();
      for (int64_t k = 0; k < n; ++k)
        for (int64_t e = structure_.offsets[vertex(k)]; e < structure_.offsets[vertex(k) + 1]; ++e)
          rows_.push_back(group_of_[structure_.children[e]]);
      flags[inputs_ + s] = true;
      to.tensor(gather(s, lead, 2));
      used_->used[s] = true;
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

  // rows_ one after the other, seen with the leading axes given. Of inputs (output 0) or of groups.
  TensorRef gather(size_t output, const int64_t* lead, int num_lead) {
    const Place& first = rows_[0];
    const Tensor& block = *groups_[first.group].blocks[output].get();
    View row = block.view;
    --row.ndim;
    std::copy_n(block.view.shape + 1, row.ndim, row.shape);
    std::copy_n(block.view.strides + 1, row.ndim, row.strides);
    const auto bytes = static_cast<size_t>(row.numel()) * item_size(row.dtype);
    int64_t shape[kMaxDims];
    std::copy_n(lead, num_lead, shape);
    std::copy_n(row.shape, row.ndim, shape + num_lead);
    const int ndim = num_lead + row.ndim;
    bool in_place = true, wanted = false;
    for (size_t i = 0; i < rows_.size(); ++i) {
      in_place &= rows_[i].group == first.group && rows_[i].row == first.row + static_cast<int64_t>(i);
      const Group& group = groups_[rows_[i].group];
      wanted |= group.node && group.blocks[output]->requires_grad;
    }
    TensorRef made;
    if (in_place) {
      int64_t strides[kMaxDims], step = 1;
      for (int i = ndim - 1; i >= 0; --i) {
        strides[i] = step;
        step *= std::max<int64_t>(shape[i], 1);
      }
      char* data = block.view.data + static_cast<size_t>(first.row) * bytes;
      block.storage->retain();
      made = TensorRef::adopt(new_tensor(block.storage, data, row.dtype, ndim, shape, strides));
    } else if (const int device = block.storage->device()) {
      made = TensorRef::adopt(new_contiguous(row.dtype, ndim, shape, device));
      std::vector<const char*> rows;
      rows.reserve(rows_.size());
      for (const Place& place : rows_)
        rows.push_back(groups_[place.group].blocks[output]->view.data + static_cast<size_t>(place.row) * bytes);
      join_device_rows(device, rows, bytes, made->view.data);
    } else {
      made = TensorRef::adopt(new_contiguous(row.dtype, ndim, shape));
      char* to = made->view.data;
      for (const Place& place : rows_) {
        std::memcpy(to, groups_[place.group].blocks[output]->view.data + static_cast<size_t>(place.row) * bytes, bytes);
        to += bytes;
      }
    }
    made->inference = grad_mode.inference;
    if (wanted) record(made.get(), row, output, in_place);
    return made;
  }

  void record(Tensor* made, const View& row, size_t output, bool in_place) {
    auto node = Ref<RowsNode>::adopt(new RowsNode(row, rows_.size()));
    for (const Place& place : rows_) {
      const Group& group = groups_[place.group];
      const bool wanted = group.node && group.blocks[output]->requires_grad;
      int32_t& edge = edge_of_[place.group];
      if (wanted && edge < 0)
        edge = static_cast<int32_t>(node->add_block(group.node.get(), static_cast<uint32_t>(output)));
      node->add_row(wanted ? edge : -1, place.row);
    }
    for (const Place& place : rows_) edge_of_[place.group] = -1;
    node->side_by_side = in_place;
    node->whole =
        in_place && groups_[rows_[0].group].blocks[output]->view.shape[0] == static_cast<int64_t>(rows_.size());
    node->sequence = next_sequence();
    node->source = user_source();
    set_history(made, node.get(), 0);
  }

  const Structure& structure_;
  const Schedule schedule_;
  const VertexFunctions& functions_;
  std::unordered_map<int64_t, OneVertex> functions_of_;
  size_t inputs_, first_input_ = 0;  // of the groups, the first that frontiers have rows of
  size_t states_, first_frontier_ = 0;
  std::shared_ptr<ResultsUsed> used_;  // states that vertices take: roots' get zeros where nothing else takes them
  std::vector<Group> groups_;          // the inputs, perhaps once more in order, then the frontiers
  std::vector<int32_t> edge_of_;
  std::vector<Place> group_of_;  // by vertex
  std::vector<Place> rows_;
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
