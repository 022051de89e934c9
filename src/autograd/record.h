// Tape records of operators that ran a plan.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "operators/op_function.h"
#include "tensor/node.h"

namespace tandem {

// A view in the room that its axes need: records are many and live long.
class SavedView {
 public:
  SavedView& operator=(const View& v) {
    data = v.data;
    dtype = v.dtype;
    ndim = v.ndim;
    sizes_.resize(2 * ndim);
    for (int i = 0; i < ndim; ++i) {
      sizes_[i] = v.shape[i];
      sizes_[ndim + i] = v.strides[i];
    }
    return *this;
  }
  void assign(const SavedView& v, char* address) {  // its geometry, elsewhere
    data = address;
    dtype = v.dtype;
    ndim = v.ndim;
    sizes_.resize(2 * ndim);
    std::copy_n(v.sizes_.begin(), 2 * ndim, sizes_.begin());
  }
  View at(char* address) const {
    View v;
    v.data = address;
    v.dtype = dtype;
    v.ndim = ndim;
    std::copy_n(shape(), ndim, v.shape);
    std::copy_n(strides(), ndim, v.strides);
    return v;
  }
  View restored() const { return at(data); }
  bool same_geometry(const View& v) const {  // wherever they are
    if (dtype != v.dtype || ndim != v.ndim) return false;
    for (int i = 0; i < ndim; ++i)
      if (shape()[i] != v.shape[i] || strides()[i] != v.strides[i]) return false;
    return true;
  }
  const int64_t* shape() const { return &sizes_[0]; }
  const int64_t* strides() const { return &sizes_[ndim]; }

  char* data = nullptr;
  DType dtype = DType::Float32;
  int ndim = 0;

 private:
  SmallVector<int64_t, 10> sizes_;  // the shape, then the strides
};

// Enough to rebuild a tensor for backward, without keeping the Tensor object (an output saved by its own record would
// be a cycle), and to notice if it was changed meanwhile.
struct SavedTensor {
  SavedTensor() {}  // not = default, which would have emplace_back() clear all of it first
  SavedTensor(SavedTensor&&) = default;
  SavedTensor& operator=(SavedTensor&&) = default;
  Ref<Storage> storage;
  SavedView view;
  uint32_t version = 0;
  Edge edge;  // where gradients of this tensor go, for higher orders
  bool requires_grad = false;
  bool is_output = false;
  bool unwatched = false;  // saved from x.data: compares its writes only
  bool deferred = false;   // view.data is an offset into memory that came later
  uint16_t output_index = 0;
};

// The gradient after the hooks in `hooks` (a dict, or null) have seen it and perhaps replaced it.
TensorRef run_hooks(PyObject* hooks, TensorRef grad);

// Note [Joined records]
// On devices, backward of an elementwise operator (relu) is a pass over memory, and what follows often begins with
// another pass over its result: the sum for a bias, the sums of a normalisation. Where the second record gets its
// gradient from the first alone, and would run next, one operator does both, so that they are fused as in a compiled
// step. tandem/tracing/joined.py says which and makes it; plans remember the answer. It is not done where somebody
// looks at the gradient between them, nor for gradients of gradients. In the same way, where two gradients meet before
// an elementwise operator (a relu whose result goes two ways), backward of it adds them.
class PlanNode final : public Node {
 public:
  explicit PlanNode(Ref<Plan> plan) : plan_(std::move(plan)) {}
  ~PlanNode() override;
  TensorList apply(TensorList grads, bool create_graph) override;
  void release_saved() override;
  const char* name() const override { return plan_->name.c_str(); }

  // Backward with summands in place of some gradients, two tensors each; see Note [Lazy weight gradients].
  bool gives_summands() const;
  TensorList apply_lazily(TensorList grads);
  const std::vector<std::vector<Plan::Summand>>& summands() const { return plan_->summands; }

  bool on_device() const { return plan_->device != 0; }
  // What runs backward of this record and then that of `next`, whose only gradient, of `output`, comes from here, as
  // one operator; null if that saves nothing. See Note [Joined records].
  OpFunction* joined_with(const PlanNode& next, uint32_t output) const;
  // The gradients of next's inputs. There may be a second gradient of the one output here, too, which is added.
  TensorList apply_joined(OpFunction* joined, TensorRef first, TensorRef second, PlanNode& next);
  // What adds two gradients of the one output and runs backward, as one operator; null if that saves nothing.
  OpFunction* joined_with_sum() const;
  TensorList apply_sum(OpFunction* joined, TensorRef first, TensorRef second);
  PlanNode* as_plan_node() override { return this; }

  SmallVector<SavedTensor, 2> saved;
  SmallVector<int64_t, 8> ints;
  SmallVector<Argument, 1> numbers;  // Python numbers the operator was called with
  bool passed = false;               // a backward that keeps nothing has come through
  bool released = false;             // and has let go what is needed to come again
  int16_t scope = -1;                // device_scope of the call

 private:
  struct Arguments;
  void require_saved() const;
  TensorList run_backward(PyObject* function, TensorList grads, bool create_graph);
  OpFunction* join(PyObject* second, uint32_t output) const;
  void push_kept(Arguments& to, bool create_graph);
  TensorRef unpack(const SavedTensor& saved, bool create_graph);
  Ref<Plan> plan_;
};

// A leaf: adds what arrives to its .grad.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor* leaf) : leaf_(TensorRef::share(leaf)) {}
  ~AccumulateGrad() override;
  TensorList apply(TensorList grads, bool create_graph) override;
  const char* name() const override { return "accumulate_grad"; }
  bool is_accumulator() const override { return true; }
  Tensor* leaf() const { return leaf_.get(); }

 private:
  TensorRef leaf_;
};

// A record whose backward is Python: custom functions, in-place writes through views.
class PythonNode final : public Node {
 public:
  PythonNode(PyObject* function, std::string name) : function_(function), name_(std::move(name)) {
    Py_INCREF(function_);
    holds_python = true;
  }
  ~PythonNode() override;
  TensorList apply(TensorList grads, bool create_graph) override;
  void release_saved() override;
  const char* name() const override { return name_.c_str(); }
  PyObject* python_object() const override { return function_; }

 private:
  PyObject* function_;  // called with (create_graph, *grads) -> tuple of Tensor or None; null once released
  std::string name_;
};

Edge gradient_edge(Tensor* t);                            // makes the leaf's accumulator if need be
AutogradExtra& extra_of(Tensor* t);                       // makes it if need be
void set_history(Tensor* t, Node* node, uint32_t index);  // shares node
uint64_t next_sequence();

}  // namespace tandem
