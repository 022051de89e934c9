#include "autograd/engine.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <queue>
#include <utility>

#include "autograd/lazy_sum.h"
#include "autograd/record.h"
#include "autograd/record_hooks.h"
#include "autograd/shown.h"
#include "check.h"
#include "known_source.h"
#include "modes.h"
#include "operators/capturing.h"
#include "overrides.h"
#include "tensor/device_rows.h"

namespace tandem {

constinit thread_local uint64_t backward_number = 0;

namespace {

struct Pending {
  Node* node;
  int dependencies = 0;                            // edges into this node that have not delivered yet; -1 once queued
  bool needed = true;                              // leads to something asked for
  TensorList grads;                                // per output
  TensorRef second;                                // another gradient of the first output, which backward is to add
  std::vector<std::pair<uint32_t, LazySum>> lazy;  // (output, more of its gradient)
  std::vector<std::pair<uint32_t, size_t>> captures;  // (output, position in the result)
};

// Node -> Pending, without an allocation per entry. Nodes are not touched themselves: several threads may run backward
// over shared ones.
class PendingTable {
 public:
  PendingTable() : slots_(64, -1) {}
  Pending* find(Node* node) {
    for (size_t i = place(node);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i] < 0) return nullptr;
      if (entries_[slots_[i]].node == node) return &entries_[slots_[i]];
    }
  }
  Pending& insert(Node* node, bool* added = nullptr) {
    if (Pending* found = find(node)) return *found;
    if (added) *added = true;
    if ((entries_.size() + 1) * 2 > slots_.size()) grow();
    size_t i = place(node);
    while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = static_cast<int32_t>(entries_.size());
    Pending& entry = entries_.emplace_back();
    entry.node = node;
    return entry;
  }

 private:
  size_t place(Node* node) const {
    return (reinterpret_cast<uintptr_t>(node) * 0x9E3779B97F4A7C15ull >> 20) & (slots_.size() - 1);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, -1);
    for (size_t e = 0; e < entries_.size(); ++e) {
      size_t i = place(entries_[e].node);
      while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = static_cast<int32_t>(e);
    }
  }
  std::vector<int32_t> slots_;
  std::deque<Pending> entries_;
};

class Engine {
 public:
  Engine(bool retain_graph, bool create_graph) : retain_(retain_graph), create_(create_graph) {}

  // The start edges keep the whole tape alive, so bare Node pointers are safe while this runs.
  std::vector<TensorRef> run(const std::vector<Tensor*>& roots, std::vector<TensorRef> grads,
                             const std::vector<Tensor*>& inputs) {
    std::vector<TensorRef> captured(inputs.size());
    targeted_ = !inputs.empty();
    SmallVector<Edge, 4> start, targets;
    for (Tensor* root : roots) start.push_back(gradient_edge(root));
    for (size_t i = 0; i < inputs.size(); ++i) {
      Edge& target = targets.emplace_back(gradient_edge(inputs[i]));
      if (!target.node) continue;
      show_gradients(target.node.get());
      pending_.insert(target.node.get()).captures.emplace_back(target.index, i);
    }
    discover(start);
    for (size_t i = 0; i < roots.size(); ++i)
      if (start[i].node) deliver(*pending_.find(start[i].node.get()), start[i].index, std::move(grads[i]));
    for (Edge& edge : start)
      if (edge.node) make_ready(*pending_.find(edge.node.get()));

    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      Pending& state = *pending_.find(node);
      for (auto& [output, sum] : std::exchange(state.lazy, {})) add_to_output(state, output, sum.total());
      run_hooks_of(node, state);
      for (auto [output, position] : state.captures)
        if (output < state.grads.size() && state.grads[output]) captured[position] = state.grads[output];
      bool accumulates = node->is_accumulator();
      if (accumulates && targeted_) continue;
      TensorList incoming = std::move(state.grads);
      TensorList outgoing;
      const auto any = [&] {
        return std::any_of(incoming.begin(), incoming.end(), [](const TensorRef& g) { return bool(g); }) ||
               node->has_gradients();
      };
      bool runs = any() && (accumulates || leads_on(node));
      PyObject* after = nullptr;
      TensorList seen;
      if (runs) {
        incoming.resize(std::max<size_t>(incoming.size(), node->num_outputs));
        if (!node->hooks.empty()) [[unlikely]] {
          after = record_hooks(*node, kAfterRecord);
          if (PyObject* before = record_hooks(*node, kBeforeRecord)) {
            incoming = run_before_record(before, std::move(incoming));
            runs = any();  // they may have put None in place of all of them
          }
          if (after)
            for (const TensorRef& g : incoming) seen.push_back(g);
        }
      }
      if (runs) {
        OpFunction* joined = nullptr;
        PlanNode* plan_node = node->as_plan_node();
        if (PlanNode* next = follower(node, &joined)) {
          outgoing =
              plan_node->apply_joined(joined, std::move(incoming[0]), std::exchange(state.second, TensorRef()), *next);
          if (!retain_) node->release_saved();
          node = next;  // which has run now
        } else if (state.second) {
          joined = plan_node->joined_with_sum();
          outgoing = plan_node->apply_sum(joined, std::move(incoming[0]), std::exchange(state.second, TensorRef()));
        } else if (plan_node && !create_ && !anomaly_detection && !active_capture && !after &&
                   plan_node->gives_summands()) {
          outgoing = collect(*plan_node, plan_node->apply_lazily(std::move(incoming)));
        } else {
          outgoing = node->apply(std::move(incoming), create_);
        }
        if (anomaly_detection) [[unlikely]]
          check(node, outgoing);
        if (after) [[unlikely]]
          outgoing = run_after_record(after, std::move(outgoing), seen);
        if (!retain_) node->release_saved();
      }
      for (size_t i = 0; i < node->edges.size(); ++i) {
        const Edge& edge = node->edges[i];
        if (!edge.node) continue;
        Pending* next = pending_.find(edge.node.get());
        if (!next || !next->needed) continue;
        if (i < outgoing.size()) deliver(*next, edge.index, std::move(outgoing[i]));
        if (--next->dependencies == 0) make_ready(*next);
      }
    }
    return captured;
  }

 private:
  // Counts, for every node reachable from the roots, the edges that will deliver to it. With targets, nodes that lead
  // to none are left out.
  void discover(const SmallVector<Edge, 4>& start) {
    if (targeted_) return discover_needed(start);
    std::vector<Node*> open;
    auto reach = [&](Node* node) -> Pending& {
      bool added = false;
      Pending& found = pending_.insert(node, &added);
      if (added) open.push_back(node);
      return found;
    };
    for (const Edge& edge : start)
      if (edge.node) reach(edge.node.get());
    while (!open.empty()) {
      Node* node = open.back();
      open.pop_back();
      for (const Edge& edge : node->edges)
        if (edge.node) ++reach(edge.node.get()).dependencies;
    }
  }

  void discover_needed(const SmallVector<Edge, 4>& start) {
    std::vector<Node*> order;  // a node after all that it leads to
    std::vector<std::pair<Node*, size_t>> stack;
    PendingTable visited;
    auto visit = [&](Node* node) {
      bool added = false;
      visited.insert(node, &added);
      if (added) stack.emplace_back(node, 0);
    };
    for (const Edge& edge : start) {
      if (edge.node) visit(edge.node.get());
      while (!stack.empty()) {
        auto& [node, next] = stack.back();
        if (next < node->edges.size()) {
          if (Node* child = node->edges[next++].node.get()) visit(child);
        } else {
          order.push_back(node);
          stack.pop_back();
        }
      }
    }
    for (Node* node : order) {
      bool needed = !pending_.insert(node).captures.empty();
      for (const Edge& edge : node->edges)
        if (edge.node && pending_.insert(edge.node.get()).needed) needed = true;
      pending_.insert(node).needed = needed;
    }
    for (Node* node : order) {
      if (!pending_.find(node)->needed) continue;
      for (const Edge& edge : node->edges)
        if (edge.node) ++pending_.find(edge.node.get())->dependencies;
    }
  }

  bool leads_on(Node* node) {
    if (!targeted_) return true;
    for (const Edge& edge : node->edges) {
      if (!edge.node) continue;
      Pending* next = pending_.find(edge.node.get());
      if (next && next->needed) return true;
    }
    return false;
  }

  // The record that would run right after this one and can be joined with it (Note [Joined records]), marked as done.
  PlanNode* follower(Node* node, OpFunction** joined) {
    PlanNode* first = node->as_plan_node();
    if (!first || !first->hooks.empty() || !first->on_device() || create_ || anomaly_detection || active_capture ||
        node->edges.size() != 1)
      return nullptr;
    const Edge& edge = node->edges[0];
    PlanNode* second = edge.node ? edge.node->as_plan_node() : nullptr;
    if (!second || !second->hooks.empty()) return nullptr;
    Pending* state = pending_.find(second);
    if (!state || !state->needed || state->dependencies != 1 || !state->captures.empty() || !leads_on(second))
      return nullptr;
    for (const TensorRef& g : state->grads)
      if (g) return nullptr;
    if (!ready_.empty() && !Earlier()(ready_.top(), second)) return nullptr;
    *joined = first->joined_with(*second, edge.index);
    if (!*joined) return nullptr;
    state->dependencies = -1;
    return second;
  }

  void make_ready(Pending& p) {
    if (p.dependencies != 0 || !p.needed) return;
    p.dependencies = -1;
    ready_.push(p.node);
  }

  void deliver(Pending& p, uint32_t output, TensorRef grad) {
    if (!grad || !p.needed) return;
    if (output < p.grads.size() && p.grads[output] && adds_itself(p)) {
      if (p.second) add_to(p.grads[output], std::move(p.second));
      p.second = std::move(grad);
    } else {
      add_to_output(p, output, std::move(grad));
    }
  }

  void add_to_output(Pending& p, uint32_t output, TensorRef grad) {
    if (p.grads.size() <= output) p.grads.resize(output + 1);
    TensorRef& slot = p.grads[output];
    if (!slot)
      slot = std::move(grad);
    else
      add_to(slot, std::move(grad));
  }

  // Gradients as they are; summands of others go to the sums that wait at the end of their edges.
  TensorList collect(const PlanNode& node, TensorList given) {
    TensorList grads;
    size_t next = 0;
    for (size_t i = 0; i < node.edges.size(); ++i) {
      const std::vector<Plan::Summand>& kinds = node.summands()[i];
      if (kinds.empty()) {
        grads.push_back(std::move(given[next++]));
        continue;
      }
      grads.emplace_back();
      const Edge& edge = node.edges[i];
      Pending* to = edge.node ? pending_.find(edge.node.get()) : nullptr;
      for (Plan::Summand kind : kinds) {
        TensorRef first = std::move(given[next++]), second = std::move(given[next++]);
        if (!to || !to->needed) continue;
        LazySum& sum = lazy_sum(*to, edge.index);
        if (kind == Plan::Summand::Matmul)
          sum.add_matmul(std::move(first), std::move(second));
        else
          sum.add_rows(*static_cast<AccumulateGrad*>(edge.node.get())->leaf(), first, second);
      }
    }
    return grads;
  }

  static LazySum& lazy_sum(Pending& p, uint32_t output) {
    for (auto& [known, sum] : p.lazy)
      if (known == output) return sum;
    p.lazy.emplace_back(output, LazySum());
    return p.lazy.back().second;
  }

  // Whether backward of a record adds two gradients on its way (Note [Joined records]).
  bool adds_itself(const Pending& p) {
    PlanNode* node = p.node->as_plan_node();
    if (!node || !node->on_device() || create_ || anomaly_detection || active_capture) return false;
    return node->hooks.empty() && p.captures.empty() && leads_on(node) && node->joined_with_sum();
  }

  void add_to(TensorRef& slot, TensorRef grad) {
    // Add into the buffer we already hold if it is ours alone; otherwise make a new sum.
    bool ours = !create_ && !slot->in_parts && Py_REFCNT(slot.object()) == 1 && slot->storage->references() == 1 &&
                slot->storage->writable() && slot->view.is_contiguous() && slot->view.dtype == grad->view.dtype;
    const bool sharded = slot->storage->sharded() || grad->storage->sharded();
    PyObject* add = sharded ? callbacks.add_sharded : ours ? callbacks.add_ : callbacks.add;
    PyObject* args[] = {slot.object(), grad.object()};
    PyObject* sum = PyObject_Vectorcall(add, args, 2, nullptr);
    if (!sum) throw PythonError{};
    slot = TensorRef::adopt(reinterpret_cast<Tensor*>(sum));
  }

  void run_hooks_of(Node* node, Pending& state) {
    for (auto& [output, hooks] : node->hooks)
      if (output < state.grads.size() && state.grads[output])
        state.grads[output] = run_hooks(hooks, std::move(state.grads[output]));
    // A leaf's own hooks run where its gradient is added up; here where it is handed out instead.
    if (targeted_ && node->is_accumulator() && !state.grads.empty() && state.grads[0])
      state.grads[0] = run_hooks(extra_of(static_cast<AccumulateGrad*>(node)->leaf()).hooks, std::move(state.grads[0]));
  }

  void check(Node* node, const TensorList& grads) {
    if (!callbacks.check_finite) return;
    for (const TensorRef& g : grads) {
      if (!g || !is_floating(g->view.dtype)) continue;
      PyObject* name = PyUnicode_FromString(node->name());
      PyObject* where = PyUnicode_FromString(format_source(node->source).c_str());
      PyObject* args[] = {name, g.object(), where};
      PyObject* done = PyObject_Vectorcall(callbacks.check_finite, args, 3, nullptr);
      Py_XDECREF(name);
      Py_XDECREF(where);
      if (!done) throw PythonError{};
      Py_DECREF(done);
    }
  }

  struct Earlier {
    bool operator()(const Node* a, const Node* b) const {
      // Accumulators first: they free gradients and lead nowhere.
      if (a->is_accumulator() != b->is_accumulator()) return b->is_accumulator();
      return a->sequence < b->sequence;
    }
  };

  bool retain_, create_, targeted_ = false;
  PendingTable pending_;
  std::priority_queue<Node*, std::vector<Node*>, Earlier> ready_;
};

struct ModeScope {
  GradMode saved = grad_mode;
  bool disabled = std::exchange(overrides_disabled, true);
  explicit ModeScope(bool enabled) {
    grad_mode.enabled = enabled;
    grad_mode.inference = false;
  }
  ~ModeScope() {
    grad_mode = saved;
    overrides_disabled = disabled;
  }
};

}  // namespace

std::vector<TensorRef> run_backward(const std::vector<Tensor*>& roots, std::vector<TensorRef> grads,
                                    const std::vector<Tensor*>& inputs, bool retain_graph, bool create_graph) {
  for (Tensor* root : roots) run_deferred(root->storage);
  for (const TensorRef& grad : grads) run_deferred(grad->storage);
  const NotDeferred now;
  ModeScope scope(create_graph);
  std::optional<KnownSource> here;  // all that is captured from here on comes from this line
  if (active_capture) here.emplace();
  Engine engine(retain_graph, create_graph);
  struct Numbered {
    uint64_t outer = backward_number;
    Numbered() {
      static uint64_t runs = 0;  // GIL
      launch_added_rows();       // of the run around
      backward_number = ++runs;
    }
    ~Numbered() {
      forget_added_rows();
      backward_number = outer;
    }
  } numbered;
  return engine.run(roots, std::move(grads), inputs);
}

bool has_other_leaves(const std::vector<Tensor*>& roots, const std::vector<Tensor*>& inputs) {
  for (Tensor* root : roots) run_deferred(root->storage);
  SmallVector<Edge, 4> start;  // keeps the tape alive
  PendingTable visited;
  std::vector<Node*> stack;
  for (Tensor* input : inputs)
    if (Node* own = start.emplace_back(gradient_edge(input)).node.get()) {
      show_gradients(own);
      visited.insert(own);
    }
  auto visit = [&](const Edge& edge) {
    bool added = false;
    if (edge.node) visited.insert(edge.node.get(), &added);
    if (added) stack.push_back(edge.node.get());
  };
  for (Tensor* root : roots) visit(start.emplace_back(gradient_edge(root)));
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (node->is_accumulator()) return true;
    for (const Edge& edge : node->edges) visit(edge);
  }
  return false;
}

}  // namespace tandem
