// The tape: one Node per recorded operator call, linked to the nodes (or leaves) that made its inputs.
#pragma once
#include <cstdint>
#include <vector>

#include "small_vector.h"
#include "tensor/tensor.h"

namespace tandem {

class Node;
class PlanNode;
class RowNode;  // autobatch/records.h

struct Edge {  // "input i of this node was output `index` of `node`"; no node: nothing to differentiate
  Ref<Node> node;
  uint32_t index = 0;
};

using TensorList = SmallVector<TensorRef, 4>;

// Note [Cycles through records]
// A context of a Python function, or a hook, may hold a tensor whose history holds it: a cycle through records, which
// Python's collector sees only if tensors show it what records hold. A tensor shows what it alone holds: records that
// nobody else refers to, as far as they lead to Python objects (holds_python). Other records are not looked at, so that
// collections do not walk along tapes.
class Node {
 public:
  virtual ~Node();
  // Records come and go by the thousand: their memory is kept for others of their size (GIL).
  static void* operator new(size_t size);
  static void operator delete(void* memory, size_t size) noexcept;
  // Gradients of the inputs, given those of the outputs (null where none arrived); both in order of edges/outputs.
  virtual TensorList apply(TensorList grads, bool create_graph) = 0;
  virtual void release_saved() {}  // after backward without retain_graph
  virtual const char* name() const = 0;
  virtual bool is_accumulator() const { return false; }
  virtual bool has_gradients() const { return false; }  // by another way than along edges (autobatch/records.h)
  virtual PlanNode* as_plan_node() { return nullptr; }
  virtual RowNode* as_row() { return nullptr; }
  virtual PyObject* python_object() const { return nullptr; }  // borrowed: what a record in Python holds

  // See Note [Cycles through records].
  bool is_shared() const { return references_ > 1; }
  int64_t references() const { return references_; }
  void link(Edge edge) {
    if (edge.node && edge.node->holds_python) holds_python = true;
    edges.push_back(std::move(edge));
  }
  int visit(visitproc visit, void* arg);

  void retain() noexcept { ++references_; }
  void release() noexcept {
    if (--references_ == 0) dispose(this);
  }

  SmallVector<Edge, 2> edges;
  uint32_t num_outputs = 1;
  std::vector<std::pair<uint32_t, PyObject*>> hooks;  // (output, callable or list owned): run on that output's gradient
  bool holds_python = false;                          // this record, or one before it, holds Python objects
  uint64_t sequence = 0;                              // later calls have higher numbers: backward goes from high to low
  Source source;

 protected:
  Node() = default;

 private:
  static void dispose(Node* node) noexcept;  // iterative: a chain of 100,000 records must not recurse
  int64_t references_ = 1;
};

// Stored beside a tensor when needed.
struct AutogradExtra {
  PyObject* grad = nullptr;     // owned Tensor
  Node* accumulator = nullptr;  // borrowed: the leaf's AccumulateGrad while some tape holds it
  PyObject* hooks = nullptr;    // owned dict: id -> callable, for leaves
  PyObject* after = nullptr;    // owned dict: id -> callable, which gets the leaf once its .grad is up to date
  bool retains_grad = false;
  // A differentiable view: in-place writes through it must reach the base's history. See Note [Views and in-place].
  PyObject* base = nullptr;      // owned Tensor
  uint32_t history_version = 0;  // base's storage version when `history` of this view was made
};

}  // namespace tandem
