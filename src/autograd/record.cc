#include "autograd/record.h"

#include "autograd/record_hooks.h"
#include "check.h"
#include "known_source.h"
#include "modes.h"
#include "operators/capturing.h"
#include "operators/signature.h"

namespace tandem {

// -- nodes

Node::~Node() {
  for (auto& [output, hook] : hooks) Py_XDECREF(hook);
  Py_XDECREF(source.code);
}

void Node::dispose(Node* first) noexcept {
  // A record owns its predecessors; deleting a long chain by recursion would overflow the stack, so nodes that become
  // free while one is deleted wait in a list, each with the next one in place of its number.
  struct Disposal {
    bool runs;
    Node* waiting;
  };
  constinit thread_local Disposal disposal{};
  Disposal& own = disposal;
  if (own.runs) {
    first->sequence = reinterpret_cast<uintptr_t>(std::exchange(own.waiting, first));
    return;
  }
  own.runs = true;
  delete first;
  while (Node* node = own.waiting) {
    own.waiting = reinterpret_cast<Node*>(static_cast<uintptr_t>(node->sequence));
    delete node;
  }
  own.runs = false;
}

namespace {
constexpr size_t kStep = 64, kSizes = 12, kMostSpare = 1 << 16;
struct Spare {
  Spare* next;
};
Spare* spare_records[kSizes];
size_t num_spare[kSizes];
}  // namespace

void* Node::operator new(size_t size) {
  const size_t k = (size + kStep - 1) / kStep;
  if (k >= kSizes) return ::operator new(size);
  if (!spare_records[k]) return ::operator new(k * kStep);
  --num_spare[k];
  return std::exchange(spare_records[k], spare_records[k]->next);
}

void Node::operator delete(void* memory, size_t size) noexcept {
  const size_t k = (size + kStep - 1) / kStep;
  if (k >= kSizes || num_spare[k] >= kMostSpare) return ::operator delete(memory);
  ++num_spare[k];
  spare_records[k] = new (memory) Spare{spare_records[k]};
}

uint64_t next_sequence() {
  static uint64_t counter = 0;
  return ++counter;
}

AutogradExtra& extra_of(Tensor* t) {
  if (!t->extra) t->extra = new AutogradExtra();
  return *t->extra;
}

void set_history(Tensor* t, Node* node, uint32_t index) {
  if (node) node->retain();
  Node* old = std::exchange(t->history, node);
  t->output_index = static_cast<uint16_t>(index);
  t->requires_grad = node != nullptr;
  if (old) old->release();
}

Edge gradient_edge(Tensor* t) {
  if (!t->requires_grad) return {};
  if (t->history) return {Ref<Node>::share(t->history), t->output_index};
  AutogradExtra& extra = extra_of(t);
  if (extra.accumulator) return {Ref<Node>::share(extra.accumulator), 0};
  auto node = Ref<Node>::adopt(new AccumulateGrad(t));
  extra.accumulator = node.get();
  return {std::move(node), 0};
}

TensorRef run_hooks(PyObject* hooks, TensorRef grad) {
  if (!hooks || PyDict_GET_SIZE(hooks) == 0) return grad;
  const NoKnownSource looked_for;
  PyObject* list = PyDict_Values(hooks);
  if (!list) throw PythonError{};
  struct Release {
    PyObject* object;
    ~Release() { Py_DECREF(object); }
  } release{list};
  const GradientKind kind(grad.get());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* args[] = {grad.object()};
    PyObject* result = PyObject_Vectorcall(PyList_GET_ITEM(list, i), args, 1, nullptr);
    if (!result) throw PythonError{};
    if (is_tensor(result)) {
      grad = TensorRef::adopt(reinterpret_cast<Tensor*>(result));
    } else {
      const bool none = result == Py_None;
      const std::string type = Py_TYPE(result)->tp_name;
      Py_DECREF(result);
      if (!none) fail(ErrorKind::Type, "a hook returned a ", type, "; it must return a gradient or None");
    }
    kind.check(grad.get());  // it may have given the tensor other data
  }
  return grad;
}

// -- records of plans

PlanNode::~PlanNode() = default;

void PlanNode::release_saved() {
  passed = true;
  released =
      released || !saved.empty();  // a record that needs no tensors (of a sum, of a view) can be gone through again
  saved.clear();
}

TensorRef PlanNode::unpack(const SavedTensor& s, bool create_graph) {
  if (s.version != s.storage->version_for(s.unwatched))
    fail(ErrorKind::Autograd, "backward of ", name(), " needs a tensor that was changed in place after it was saved",
         "\n  saved at ", format_source(source), "\n  changed at ", format_source(s.storage->mutated_at),
         "\n  fix: change a clone() instead, or use the out-of-place form of the operator");
  s.storage->retain();
  char* data =
      s.deferred && !s.storage->pending() ? s.storage->data() + reinterpret_cast<intptr_t>(s.view.data) : s.view.data;
  Tensor* t = new_tensor(s.storage.get(), data, s.view.dtype, s.view.ndim, s.view.shape(), s.view.strides());
  if (create_graph && s.requires_grad) {
    if (s.is_output)
      set_history(t, this, s.output_index);
    else if (s.edge.node && s.edge.node->is_accumulator()) {
      Py_DECREF(reinterpret_cast<PyObject*>(t));  // a leaf: the very tensor, so that gradients reach it
      return TensorRef::share(static_cast<AccumulateGrad*>(s.edge.node.get())->leaf());
    } else
      set_history(t, s.edge.node.get(), s.edge.index);
  }
  return TensorRef::adopt(t);
}

// See Note [Tensors in parts].
static TensorRef dense(const TensorRef& t) {
  PyObject* args[] = {t.object()};
  PyObject* made = PyObject_Vectorcall(callbacks.to_dense, args, 1, nullptr);
  if (!made) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(made));
}

// Arguments of backward functions, and what keeps them alive.
struct PlanNode::Arguments {
  void push(TensorRef t) {
    if (t->in_parts) [[unlikely]]
      t = dense(t);
    Argument& a = list.emplace_back();
    a.kind = Argument::Kind::Tensor;
    a.tensor = t.get();
    owned.push_back(std::move(t));
  }
  void count(size_t n) {
    Argument& a = list.emplace_back();
    a.kind = Argument::Kind::Count;
    a.integer = static_cast<int64_t>(n);
  }
  void gradients(TensorList& grads, size_t n) {
    count(n);
    for (size_t i = 0; i < n; ++i) {
      if (grads[i])
        push(std::move(grads[i]));
      else
        list.emplace_back().kind = Argument::Kind::None;
    }
  }
  TensorList run(PyObject* op) {
    bool returns_tuple = false;
    return dispatch(reinterpret_cast<OpFunction*>(op), list.data(), static_cast<int>(list.size()), &returns_tuple);
  }

  SmallVector<TensorRef, 8> owned;
  SmallVector<Argument, 20> list;
};

void PlanNode::require_saved() const {
  if (released)
    fail(ErrorKind::Autograd, "backward through ", name(),
         " a second time: what it saved was freed by the first backward", "\n  recorded at ", format_source(source),
         "\n  fix: pass retain_graph=True to the first backward");
}

void PlanNode::push_kept(Arguments& to, bool create_graph) {
  to.count(saved.size());
  for (const SavedTensor& s : saved) to.push(unpack(s, create_graph));
  to.count(ints.size());
  for (int64_t v : ints) {
    Argument& a = to.list.emplace_back();
    a.kind = Argument::Kind::Int;
    a.integer = v;
  }
  to.count(numbers.size());
  for (const Argument& a : numbers) to.list.push_back(a);
}

namespace {

struct OnTask {  // backward of what was called for a task of a cluster is for that task
  explicit OnTask(int16_t scope) {
    if (scope >= kFirstTask) device_scope = scope;
  }
  ~OnTask() { device_scope = before; }
  const int16_t before = device_scope;
};

}  // namespace

TensorList PlanNode::run_backward(PyObject* function, TensorList grads, bool create_graph) {
  require_saved();
  const OnTask on_task(scope);
  // Parameters of a backward function: gradients, saved tensors, ints, numbers (tandem/tracing/compile.py).
  Arguments arguments;
  arguments.gradients(grads, plan_->outputs.size());
  push_kept(arguments, create_graph);
  return arguments.run(function);
}

TensorList PlanNode::apply(TensorList grads, bool create_graph) {
  return run_backward(create_graph ? plan_->backward_twice : plan_->backward, std::move(grads), create_graph);
}

// Rows of a table are added in place, so it is known how large it is where it is a leaf.
bool PlanNode::gives_summands() const {
  if (!plan_->backward_lazily) return false;
  for (size_t i = 0; i < plan_->summands.size(); ++i)
    for (Plan::Summand kind : plan_->summands[i])
      if (kind == Plan::Summand::Rows && edges[i].node && !edges[i].node->is_accumulator()) return false;
  return true;
}

TensorList PlanNode::apply_lazily(TensorList grads) {
  return run_backward(plan_->backward_lazily, std::move(grads), false);
}

OpFunction* PlanNode::joined_with(const PlanNode& next, uint32_t output) const {
  return next.plan_->device == plan_->device ? join(next.plan_->backward, output) : nullptr;
}

OpFunction* PlanNode::joined_with_sum() const {
  return join(Py_None, 0);
}

OpFunction* PlanNode::join(PyObject* second, uint32_t output) const {
  if (!plan_->device || !callbacks.join_backward) return nullptr;
  if (plan_->outputs.size() != 1 || plan_->grad_inputs.size() != 1) return nullptr;
  for (const Plan::Joined& j : plan_->joined)
    if (j.other == second && j.output == output)
      return j.both == Py_None ? nullptr : reinterpret_cast<OpFunction*>(j.both);
  constexpr size_t kMost = 64;  // enough for the layers of a model; more would be searched through at each call
  if (plan_->joined.size() >= kMost) return nullptr;
  PyObject* position = PyLong_FromUnsignedLong(output);
  if (!position) throw PythonError{};
  PyObject* args[] = {plan_->backward, second, position};
  PyObject* made = PyObject_Vectorcall(callbacks.join_backward, args, 3, nullptr);
  Py_DECREF(position);
  if (!made) throw PythonError{};
  plan_->joined.push_back({Py_NewRef(second), output, made});
  return made == Py_None ? nullptr : reinterpret_cast<OpFunction*>(made);
}

TensorList PlanNode::apply_joined(OpFunction* joined, TensorRef first, TensorRef second, PlanNode& next) {
  require_saved();
  next.require_saved();
  Arguments arguments;
  arguments.count(second ? 2 : 1);
  arguments.push(std::move(first));
  if (second) arguments.push(std::move(second));
  push_kept(arguments, false);
  next.push_kept(arguments, false);
  return arguments.run(reinterpret_cast<PyObject*>(joined));
}

TensorList PlanNode::apply_sum(OpFunction* joined, TensorRef first, TensorRef second) {
  require_saved();
  Arguments arguments;
  arguments.count(2);
  arguments.push(std::move(first));
  arguments.push(std::move(second));
  push_kept(arguments, false);
  return arguments.run(reinterpret_cast<PyObject*>(joined));
}

// -- leaves

AccumulateGrad::~AccumulateGrad() {
  if (leaf_ && leaf_->extra && leaf_->extra->accumulator == this) leaf_->extra->accumulator = nullptr;
}

static TensorRef call_binary(PyObject* function, PyObject* a, PyObject* b) {
  PyObject* args[] = {a, b};
  PyObject* result = PyObject_Vectorcall(function, args, 2, nullptr);
  if (!result) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(result));
}

// Without gaps, in the order of the other's axes: a gradient that lies so is as good for an update as a contiguous one.
static bool lies_like(const View& v, const View& other) {
  uint8_t order[kMaxDims];
  if (v.ndim != other.ndim || classify(v, order) == LayoutClass::Strided) return false;
  for (int i = 0; i < v.ndim; ++i)
    if (v.shape[i] != 1 && v.strides[i] != other.strides[i]) return false;
  return true;
}

static void run_after(PyObject* hooks, Tensor* leaf) {
  if (!hooks || PyDict_GET_SIZE(hooks) == 0) return;
  const NoKnownSource looked_for;
  PyObject* list = PyDict_Values(hooks);
  if (!list) throw PythonError{};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* args[] = {reinterpret_cast<PyObject*>(leaf)};
    PyObject* result = PyObject_Vectorcall(PyList_GET_ITEM(list, i), args, 1, nullptr);
    if (!result) {
      Py_DECREF(list);
      throw PythonError{};
    }
    Py_DECREF(result);
  }
  Py_DECREF(list);
}

// A capture refers to memory of deferred tensors, too.
static bool is_only_reference(const Tensor* t) {
  const int64_t others = active_capture && t->storage->pending() && !t->storage->batch() ? 1 : 0;
  return t->storage->references() == 1 + others;
}

TensorList AccumulateGrad::apply(TensorList grads, bool create_graph) {
  if (!grads[0]) return {};
  TensorRef g = std::move(grads[0]);
  AutogradExtra& extra = extra_of(leaf_.get());
  g = run_hooks(extra.hooks, std::move(g));
  if (leaf_->storage->sharded() || g->storage->sharded()) [[unlikely]]
    g = call_binary(callbacks.sharded_grad, leaf_.object(), g.object());
  // Operators may let go of the GIL, and another thread may then change or drop the gradient.
  const auto current = [&] { return TensorRef::share(reinterpret_cast<Tensor*>(extra.grad)); };
  if (!extra.grad) {
    // Nobody else holds it: take it as it is. Otherwise copy, or two leaves would share one gradient.
    bool sole = g->in_parts ||  // whose parts are never written in place
                (Py_REFCNT(g.object()) == 1 && is_only_reference(g.get()) && !(g->extra && g->extra->base) &&
                 (g->view.is_contiguous() || lies_like(g->view, leaf_->view)));
    if (!sole && !create_graph) {
      PyObject* args[] = {g.object()};
      PyObject* copy = PyObject_Vectorcall(callbacks.clone, args, 1, nullptr);
      if (!copy) throw PythonError{};
      g = TensorRef::adopt(reinterpret_cast<Tensor*>(copy));
    }
  }
  if (!extra.grad) {
    note_rebinding(leaf_.object(), nullptr, nullptr);
    extra.grad = reinterpret_cast<PyObject*>(g.leak());
  } else if (create_graph || reinterpret_cast<Tensor*>(extra.grad)->in_parts) {  // a sum with it may be dense
    const TensorRef before = current();
    TensorRef sum = call_binary(callbacks.add, before.object(), g.object());
    note_rebinding(leaf_.object(), nullptr, extra.grad);
    PyObject* old = std::exchange(extra.grad, reinterpret_cast<PyObject*>(sum.leak()));
    Py_XDECREF(old);
  } else {
    const TensorRef before = current();
    call_binary(callbacks.add_, before.object(), g.object());
  }
  run_after(extra.after, leaf_.get());
  return {};
}

// -- Python backward

int Node::visit(visitproc visit, void* arg) {
  if (!holds_python || is_shared()) return 0;
  std::vector<Node*> open{this};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (!node->holds_python || node->is_shared()) continue;
    Py_VISIT(node->python_object());
    for (auto& [output, hook] : node->hooks) Py_VISIT(hook);
    for (Edge& edge : node->edges)
      if (edge.node) open.push_back(edge.node.get());
  }
  return 0;
}

PythonNode::~PythonNode() {
  Py_XDECREF(function_);
}

void PythonNode::release_saved() {
  Py_CLEAR(function_);
}

TensorList PythonNode::apply(TensorList grads, bool create_graph) {
  const NoKnownSource looked_for;
  if (!function_)
    fail(ErrorKind::Autograd, "backward through ", name_,
         " a second time: what it saved was freed by the first backward", "\n  recorded at ", format_source(source),
         "\n  fix: pass retain_graph=True to the first backward");
  PyObject* args = PyTuple_New(static_cast<Py_ssize_t>(grads.size()) + 1);
  if (!args) throw PythonError{};
  PyTuple_SET_ITEM(args, 0, Py_NewRef(create_graph ? Py_True : Py_False));
  for (size_t i = 0; i < grads.size(); ++i)
    PyTuple_SET_ITEM(args, static_cast<Py_ssize_t>(i) + 1,
                     grads[i] ? reinterpret_cast<PyObject*>(grads[i].leak()) : Py_NewRef(Py_None));
  PyObject* result = PyObject_Call(function_, args, nullptr);
  Py_DECREF(args);
  if (!result) throw PythonError{};
  TensorList out;
  out.resize(edges.size());
  if (is_tensor(result)) {
    if (edges.size() == 1)
      out[0] = TensorRef::adopt(reinterpret_cast<Tensor*>(result));
    else {
      Py_DECREF(result);
      fail(ErrorKind::Autograd, "backward of ", name_, " returned one gradient for ", edges.size(), " inputs");
    }
    return out;
  }
  if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != static_cast<Py_ssize_t>(edges.size())) {
    Py_ssize_t n = PyTuple_Check(result) ? PyTuple_GET_SIZE(result) : 1;
    bool none = result == Py_None;
    Py_DECREF(result);
    if (none && edges.size() <= 1) return out;
    fail(ErrorKind::Autograd, "backward of ", name_, " returned ", n, " gradients for ", edges.size(), " inputs",
         "\n  fix: return one gradient (or None) for each argument of forward");
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    PyObject* g = PyTuple_GET_ITEM(result, static_cast<Py_ssize_t>(i));
    if (is_tensor(g)) out[i] = TensorRef::share(reinterpret_cast<Tensor*>(g));
  }
  Py_DECREF(result);
  return out;
}

}  // namespace tandem
