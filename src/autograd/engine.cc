#include "autograd/engine.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "autograd/mode.h"
#include "autograd/record.h"
#include "check.h"

namespace tandem {

namespace {

struct Pending {
  int dependencies = 0;             // edges into this node that have not delivered yet
  bool needed = true;               // leads to something asked for
  TensorList grads;                 // per output
  std::vector<std::pair<uint32_t, size_t>> captures;  // (output, position in the result)
};

class Engine {
 public:
  Engine(bool retain_graph, bool create_graph) : retain_(retain_graph), create_(create_graph) {}

  std::vector<TensorRef> run(const std::vector<Tensor*>& roots, std::vector<TensorRef> grads, const std::vector<Tensor*>& inputs) {
    std::vector<TensorRef> captured(inputs.size());
    std::vector<Edge> start;
    for (Tensor* root : roots) start.push_back(gradient_edge(root));
    std::vector<Edge> targets;
    for (size_t i = 0; i < inputs.size(); ++i) {
      targets.push_back(gradient_edge(inputs[i]));
      if (targets.back().node) pending_[targets.back().node.get()].captures.emplace_back(targets.back().index, i);
    }
    discover(start, !inputs.empty());
    for (size_t i = 0; i < roots.size(); ++i) deliver(start[i], std::move(grads[i]));
    for (Edge& edge : start) make_ready(edge.node);

    while (!ready_.empty()) {
      Ref<Node> node = ready_.top();
      ready_.pop();
      Pending& state = pending_[node.get()];
      run_hooks(node.get(), state);
      for (auto [output, position] : state.captures)
        if (output < state.grads.size() && state.grads[output]) captured[position] = state.grads[output];
      bool accumulate = node->is_accumulator();
      if (accumulate && !inputs.empty()) continue;
      TensorList incoming = std::move(state.grads);
      TensorList outgoing;
      bool any = std::any_of(incoming.begin(), incoming.end(), [](const TensorRef& g) { return bool(g); });
      bool wanted = accumulate || !only_captures(node.get());
      if (any && wanted) {
        incoming.resize(std::max<size_t>(incoming.size(), node->num_outputs));
        outgoing = node->apply(std::move(incoming), create_);
        if (anomaly_detection) [[unlikely]] check(node.get(), outgoing);
        if (!retain_) node->release_saved();
      }
      for (size_t i = 0; i < node->edges.size(); ++i) {
        const Edge& edge = node->edges[i];
        if (!edge.node) continue;
        auto found = pending_.find(edge.node.get());
        if (found == pending_.end() || !found->second.needed) continue;
        if (i < outgoing.size() && outgoing[i]) deliver(edge, std::move(outgoing[i]));
        if (--found->second.dependencies == 0) make_ready(edge.node);
      }
    }
    return captured;
  }

 private:
  // Counts, for every node reachable from the roots, the edges that will deliver to it. With targets, nodes that lead to none
  // are left out.
  void discover(const std::vector<Edge>& start, bool targeted) {
    std::vector<Node*> order;  // reverse topological: a node after all that it leads to
    std::unordered_map<Node*, int> state;
    for (const Edge& edge : start) {
      if (!edge.node || state.count(edge.node.get())) continue;
      std::vector<std::pair<Node*, size_t>> stack{{edge.node.get(), 0}};
      state[edge.node.get()] = 1;
      while (!stack.empty()) {
        auto& [node, next] = stack.back();
        if (next < node->edges.size()) {
          Node* child = node->edges[next++].node.get();
          if (child && !state.count(child)) {
            state[child] = 1;
            stack.emplace_back(child, 0);
          }
        } else {
          order.push_back(node);
          stack.pop_back();
        }
      }
    }
    for (Node* node : order) {
      Pending& p = pending_[node];
      p.needed = !targeted || !p.captures.empty();
      if (targeted)
        for (const Edge& edge : node->edges)
          if (edge.node && pending_[edge.node.get()].needed) p.needed = true;
    }
    for (Node* node : order) {
      if (!pending_[node].needed) continue;
      for (const Edge& edge : node->edges)
        if (edge.node) ++pending_[edge.node.get()].dependencies;
    }
    targeted_ = targeted;
  }

  bool only_captures(Node* node) {
    if (!targeted_) return false;
    for (const Edge& edge : node->edges) {
      if (!edge.node) continue;
      auto found = pending_.find(edge.node.get());
      if (found != pending_.end() && found->second.needed) return false;
    }
    return true;
  }

  void make_ready(const Ref<Node>& node) {
    if (!node) return;
    Pending& p = pending_[node.get()];
    if (p.dependencies == 0 && p.needed) {
      p.dependencies = -1;  // queued
      ready_.push(node);
    }
  }

  void deliver(const Edge& edge, TensorRef grad) {
    if (!edge.node || !grad) return;
    Pending& p = pending_[edge.node.get()];
    if (!p.needed) return;
    if (p.grads.size() <= edge.index) p.grads.resize(edge.index + 1);
    TensorRef& slot = p.grads[edge.index];
    if (!slot) {
      slot = std::move(grad);
      return;
    }
    // Add into the buffer we already hold if it is ours alone; otherwise make a new sum.
    bool ours = !create_ && Py_REFCNT(slot.object()) == 1 && slot->storage->references() == 1 && slot->storage->writable() &&
                slot->view.is_contiguous() && slot->view.dtype == grad->view.dtype;
    PyObject* args[] = {slot.object(), grad.object()};
    PyObject* sum = PyObject_Vectorcall(ours ? callbacks.add_ : callbacks.add, args, 2, nullptr);
    if (!sum) throw PythonError{};
    slot = TensorRef::adopt(reinterpret_cast<Tensor*>(sum));
  }

  void run_hooks(Node* node, Pending& state) {
    for (auto& [output, hooks] : node->hooks) {
      if (output >= state.grads.size() || !state.grads[output]) continue;
      PyObject* list = PyDict_Values(hooks);
      if (!list) throw PythonError{};
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
        PyObject* args[] = {state.grads[output].object()};
        PyObject* result = PyObject_Vectorcall(PyList_GET_ITEM(list, i), args, 1, nullptr);
        if (!result) {
          Py_DECREF(list);
          throw PythonError{};
        }
        if (is_tensor(result)) state.grads[output] = TensorRef::adopt(reinterpret_cast<Tensor*>(result));
        else Py_DECREF(result);
      }
      Py_DECREF(list);
    }
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
    bool operator()(const Ref<Node>& a, const Ref<Node>& b) const {
      // Accumulators first: they free gradients and lead nowhere.
      if (a->is_accumulator() != b->is_accumulator()) return b->is_accumulator();
      return a->sequence < b->sequence;
    }
  };

  bool retain_, create_, targeted_ = false;
  std::unordered_map<Node*, Pending> pending_;
  std::priority_queue<Ref<Node>, std::vector<Ref<Node>>, Earlier> ready_;
};

struct ModeScope {
  GradMode saved = grad_mode;
  explicit ModeScope(bool enabled) { grad_mode.enabled = enabled; grad_mode.inference = false; }
  ~ModeScope() { grad_mode = saved; }
};

}  // namespace

std::vector<TensorRef> run_backward(const std::vector<Tensor*>& roots, std::vector<TensorRef> grads,
                                    const std::vector<Tensor*>& inputs, bool retain_graph, bool create_graph) {
  ModeScope scope(create_graph);
  Engine engine(retain_graph, create_graph);
  return engine.run(roots, std::move(grads), inputs);
}

}  // namespace tandem
