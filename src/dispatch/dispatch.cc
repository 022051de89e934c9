// The eager path: signature -> plan -> run -> record.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "autobatch/batch.h"
#include "autograd/record.h"
#include "capture/capture.h"
#include "check.h"
#include "known_source.h"
#include "modes.h"
#include "operators/describe.h"
#include "operators/op_function.h"
#include "operators/promotion.h"
#include "profile/profile.h"
#include "tensor/default_dtype.h"
#include "tensor/generator.h"

namespace tandem {

namespace {

constexpr size_t kMaxVariants = 64;

bool wants_grad(const Tensor* t) {
  return t->requires_grad && grad_mode.enabled;
}

// -- the slow path: describe the call to Python and let it compile a plan

Ref<Plan> compile(OpFunction* op, Argument* arguments, int count) {
  PyObject* spec = PyList_New(count);
  if (!spec) throw PythonError{};
  for (int i = 0; i < count; ++i) {
    PyObject* item = describe_argument(arguments[i]);
    if (!item) {
      Py_DECREF(spec);
      throw PythonError{};
    }
    PyList_SET_ITEM(spec, i, item);
  }
  const profile::Scope compiling(profile::Kind::Compile, profile::recording() ? PyUnicode_AsUTF8(op->name) : "");
  const KeepTracingDepth keep;
  const NotDeferred now;
  const NotObserved alone(active_capture && active_capture->record);
  PyObject* args[] = {reinterpret_cast<PyObject*>(op), spec};
  PyObject* result = PyObject_Vectorcall(callbacks.compile, args, 2, nullptr);
  Py_DECREF(spec);
  if (!result) throw PythonError{};
  Ref<Plan> plan = plan_from_python(result);
  Py_DECREF(result);
  if (!plan) throw PythonError{};
  return plan;
}

void encode(Argument* arguments, int count, Signature& signature) {
  for (int i = 0; i < count; ++i) {
    const Argument& a = arguments[i];
    switch (a.kind) {
      case Argument::Kind::Tensor:
        signature.tensor(a.tensor, wants_grad(a.tensor));
        break;
      case Argument::Kind::Float:
        signature.byte('F');
        break;
      case Argument::Kind::Complex:
        signature.byte('C');
        break;
      case Argument::Kind::Integer:
        signature.byte('I');
        break;
      case Argument::Kind::Bool:
        signature.byte('B');
        break;
      case Argument::Kind::None:
        signature.byte('n');
        break;
      case Argument::Kind::Static:
        signature.object(a.object);
        break;
      case Argument::Kind::Int:
        signature.byte('D');
        break;
      case Argument::Kind::Count:
        signature.byte('#');
        signature.value(a.integer);
        break;
      case Argument::Kind::Seed:
        signature.byte('R');
        break;
      case Argument::Kind::Offset:
        break;
    }
  }
  if (call_mode.device | call_mode.autocast | call_mode.axes_first) [[unlikely]] {
    signature.byte('@');
    signature.value(call_mode);
  }
  if (default_float != DType::Float32) [[unlikely]] {
    signature.byte('f');
    signature.byte(static_cast<char>(default_float));
  }
}

PyObject* keep_statics(Argument* arguments, int count) {
  PyObject* kept = nullptr;
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Static) continue;
    if (!kept) kept = PyList_New(0);
    if (kept) PyList_Append(kept, arguments[i].object);
  }
  return kept;
}

// -- in place

struct Range {
  const char* low;
  const char* high;
};
Range memory_range(const View& v) {
  const char *low = v.data, *high = v.data;
  int64_t item = static_cast<int64_t>(item_size(v.dtype));
  for (int i = 0; i < v.ndim; ++i) {
    if (v.shape[i] == 0) return {v.data, v.data};
    int64_t span = (v.shape[i] - 1) * v.strides[i] * item;
    (span < 0 ? low : high) += span;
  }
  return {low, high + item};
}

bool same_geometry(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.strides[i] != b.strides[i])) return false;
  return true;
}

// Several indices share an element: writing through such a view has no defined result.
bool overlaps_itself(const View& v) {
  if (v.numel() < 2) return false;
  for (int i = 0; i < v.ndim; ++i)
    if (v.shape[i] > 1 && v.strides[i] == 0) return true;
  uint8_t order[kMaxDims];
  if (classify(v, order) != LayoutClass::Strided) return false;
  int axes[kMaxDims], n = 0;  // sorted by stride, each must step over all smaller ones
  for (int i = 0; i < v.ndim; ++i)
    if (v.shape[i] > 1) axes[n++] = i;
  std::sort(axes, axes + n, [&](int a, int b) { return std::abs(v.strides[a]) < std::abs(v.strides[b]); });
  int64_t reach = 0;
  for (int k = 0; k < n; ++k) {
    if (std::abs(v.strides[axes[k]]) <= reach) return true;
    reach += std::abs(v.strides[axes[k]]) * (v.shape[axes[k]] - 1);
  }
  return false;
}

// Checks that argument k may be written; clones what would be read after it was overwritten.
void prepare_write(Argument* arguments, int count, int k, int writes, std::vector<TensorRef>& clones) {
  Argument& target = arguments[k];
  if (target.kind != Argument::Kind::Tensor)
    fail(ErrorKind::Type, "an in-place operator needs a tensor to write to, not a number");
  Tensor* t = target.tensor;
  if (t->storage->sharded() && !t->storage->writable())
    fail(ErrorKind::Value,
         "a view of a sharded tensor cannot be written: its elements may lie on other ranks\n  fix: write the tensor "
         "itself "
         "(x.copy_(td.where(mask, new, x))), or work on a clone()");
  if (!t->storage->writable())
    fail(ErrorKind::Value,
         "the tensor's memory is read-only (it came from a read-only array)\n  fix: clone() it before writing");
  if (overlaps_itself(t->view))
    fail(
        ErrorKind::Value,
        "several elements of the tensor share one memory location (it was expanded)\n  fix: clone() it before writing");
  if (t->inference && grad_mode.enabled && !grad_mode.inference)
    fail(ErrorKind::Autograd, "a tensor made in inference mode cannot be written outside it\n  fix: clone() it first");
  if (wants_grad(t)) {
    bool view_of_leaf = t->extra && t->extra->base && reinterpret_cast<Tensor*>(t->extra->base)->is_leaf() &&
                        reinterpret_cast<Tensor*>(t->extra->base)->requires_grad;
    if (t->is_leaf() || view_of_leaf)
      fail(ErrorKind::Autograd, t->is_leaf() ? "a leaf" : "a view of a leaf",
           " that requires grad cannot be written in place: its gradient would be lost"
           "\n  fix: wrap the update in `with td.no_grad():`, or work on x.clone()");
  }
  Range range = memory_range(t->view);
  for (int i = 0; i < count; ++i) {
    if (i == k || arguments[i].kind != Argument::Kind::Tensor) continue;
    Tensor* other = arguments[i].tensor;
    if (other->storage != t->storage && (other->storage->pending() || t->storage->pending())) continue;
    if (other->storage != t->storage && other->storage->data() != nullptr) {
      // Borrowed memory may be the same bytes under two Storages.
      Range r = memory_range(other->view);
      if (r.high <= range.low || range.high <= r.low) continue;
    }
    // x *= x: reading and writing the same elements is fine, but what is saved for backward must not be overwritten.
    if (i >= writes && same_geometry(other->view, t->view) && !wants_grad(t) && !wants_grad(other)) continue;
    Range r = memory_range(other->view);
    if (r.high <= range.low || range.high <= r.low) continue;
    if (i < writes)
      fail(ErrorKind::Value, "two of the tensors it writes share memory\n  fix: pass a clone() of one of them");
    PyObject* args[] = {reinterpret_cast<PyObject*>(other)};
    PyObject* copy = PyObject_Vectorcall(callbacks.clone, args, 1, nullptr);
    if (!copy) throw PythonError{};
    arguments[i].tensor = reinterpret_cast<Tensor*>(copy);
    clones.push_back(TensorRef::adopt(reinterpret_cast<Tensor*>(copy)));
  }
}

// Whether no two tensors share memory; looked at once where so many are written that looking at all pairs would be
// felt.
constexpr int kManyWrites = 8;
bool all_apart(const Argument* arguments, int count) {
  std::vector<Range> ranges;
  ranges.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    if (arguments[i].tensor->storage->pending()) return false;
    ranges.push_back(memory_range(arguments[i].tensor->view));
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].low < ranges[i - 1].high) return false;
  return true;
}

void note_writes(Argument* arguments, int writes) {
  if (writes == 0) return;
  Source now = user_source();
  for (int k = 0; k < writes; ++k) {
    Storage* storage = arguments[k].tensor->storage;
    if (arguments[k].tensor->unwatched)
      storage->bump_unwatched();
    else
      storage->bump_version();
    Source old = std::exchange(storage->mutated_at, now);
    if (k > 0) Py_XINCREF(now.code);
    Py_XDECREF(old.code);
  }
}

// A view whose base was written since: its history has to start from the base again.
void refresh_view(Tensor* t) {
  if (!grad_mode.enabled || !t->extra || !t->extra->base) return;
  if (t->extra->history_version == t->storage->version()) return;
  auto* base = reinterpret_cast<Tensor*>(t->extra->base);
  if (!base->requires_grad) {
    t->extra->history_version = t->storage->version();
    return;
  }
  PyObject* args[] = {reinterpret_cast<PyObject*>(t)};
  PyObject* done = PyObject_Vectorcall(callbacks.refresh_view, args, 1, nullptr);
  if (!done) throw PythonError{};
  Py_DECREF(done);
  t->extra->history_version = t->storage->version();
}

// After a write through a view: the base's history has to tell of it.
void rebase(Tensor* t) {
  if (!t->extra || !t->extra->base) return;
  t->extra->history_version = t->storage->version();
  PyObject* args[] = {reinterpret_cast<PyObject*>(t)};
  PyObject* done = PyObject_Vectorcall(callbacks.rebase, args, 1, nullptr);
  if (!done) throw PythonError{};
  Py_DECREF(done);
}

// -- results

void note_base(Tensor* view, Tensor* base) {
  view->inference = grad_mode.inference || base->inference;
  if (view->inference) return;
  AutogradExtra& extra = extra_of(view);
  PyObject* root = base->extra && base->extra->base ? base->extra->base : reinterpret_cast<PyObject*>(base);
  extra.base = Py_NewRef(root);
  extra.history_version = base->storage->version();
}

TensorRef make_output(const Plan& plan, const Plan::Output& output, PlanRun& run, Argument* arguments) {
  if (output.same_as_input >= 0) return TensorRef::share(arguments[output.same_as_input].tensor);
  View v = run.view(output.value);
  if (output.view_of_input >= 0) {
    Tensor* base = arguments[output.view_of_input].tensor;
    Tensor* made = new_view(base, v.data, v.dtype, v.ndim, v.shape, v.strides);
    note_base(made, base);
    return TensorRef::adopt(made);
  }
  int32_t root = output.value;
  while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
  Tensor* made = new_tensor(run.share_storage(root), v.data, v.dtype, v.ndim, v.shape, v.strides);
  made->inference = grad_mode.inference;
  return TensorRef::adopt(made);
}

SavedTensor save(Tensor* t, bool is_output, uint16_t output_index) {
  if (t->inference && !is_output)
    fail(
        ErrorKind::Autograd,
        "a tensor made in inference mode cannot be saved for backward\n  fix: clone() it outside inference mode first");
  SavedTensor saved;
  saved.storage = Ref<Storage>::share(t->storage);
  saved.view = t->view;
  saved.promised = t->storage->pending();
  saved.unwatched = t->unwatched;
  saved.version = t->storage->version_for(t->unwatched);
  saved.is_output = is_output;
  saved.output_index = output_index;
  if (!is_output && t->requires_grad) {
    saved.requires_grad = true;
    saved.edge = gradient_edge(t);
  }
  return saved;
}

Ref<PlanNode> begin_record(const Ref<Plan>& plan, Argument* arguments) {
  auto node = Ref<PlanNode>::adopt(new PlanNode(plan));
  node->sequence = next_sequence();
  node->source = user_source();
  node->scope = device_scope;
  for (int32_t i : plan->grad_inputs) node->link(gradient_edge(arguments[i].tensor));
  for (const SavedItem& item : plan->saved)
    if (item.from == SavedItem::From::Input) {
      node->saved.push_back(save(arguments[item.index].tensor, false, 0));
    } else {
      SavedTensor& saved = node->saved.emplace_back();
      if (item.copy_of >= 0 && arguments[item.copy_of].tensor->requires_grad) {
        saved.requires_grad = true;
        saved.edge = gradient_edge(arguments[item.copy_of].tensor);
      }
    }
  for (int32_t i : plan->saved_numbers) {
    Argument number = arguments[i];
    if (number.kind == Argument::Kind::Seed || number.kind == Argument::Kind::Offset)
      number.kind = Argument::Kind::Integer;
    if (number.stream == Argument::Stream::None) number.object = nullptr;
    node->numbers.push_back(number);
  }
  return node;
}

void finish_record(const Plan& plan, PlanNode* node, PlanRun& run, Argument* arguments, TensorList& outputs,
                   int32_t captured) {
  for (size_t k = 0; k < plan.saved.size(); ++k) {
    const SavedItem& item = plan.saved[k];
    if (item.from == SavedItem::From::Output) {
      bool differentiable = plan.outputs[item.index].differentiable;
      node->saved[k] = save(outputs[item.index].get(), true, static_cast<uint16_t>(item.index));
      node->saved[k].requires_grad = differentiable;
    } else if (item.from == SavedItem::From::Temporary && captured >= 0) {
      Capture::Temporary made = active_capture->temporary(captured, item.index, run, arguments);
      node->saved[k].storage = Ref<Storage>::adopt(made.storage);
      node->saved[k].view = made.view;
      node->saved[k].promised = made.storage->pending();
      node->saved[k].version = made.storage->version_for(false);
    } else if (item.from == SavedItem::From::Temporary) {
      int32_t root = item.index;
      while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
      const PlanValue& owner = plan.values[root];  // an input, where a step passes its argument on (check_index)
      node->saved[k].storage = owner.kind == ValueKind::Input
                                   ? Ref<Storage>::share(arguments[owner.source].tensor->storage)
                                   : Ref<Storage>::adopt(run.share_storage(root));
      node->saved[k].view = run.view(item.index);
      node->saved[k].version = node->saved[k].storage->version_for(false);
    }
  }
  for (int32_t s : plan.saved_ints) node->ints.push_back(run.slot(s));
  node->num_outputs = static_cast<uint32_t>(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (plan.outputs[i].differentiable && plan.outputs[i].same_as_input < 0)
      set_history(outputs[i].get(), node, static_cast<uint32_t>(i));
  }
}

void check_outputs(OpFunction* op, const TensorList& outputs) {
  if (!callbacks.check_finite) return;
  for (const TensorRef& t : outputs) {
    if (!is_floating(t->view.dtype)) continue;
    PyObject* args[] = {op->name, t.object(), Py_None};
    PyObject* done = PyObject_Vectorcall(callbacks.check_finite, args, 3, nullptr);
    if (!done) throw PythonError{};
    Py_DECREF(done);
  }
}

void advance(Generator* generator, const Plan& plan, PlanRun& run) {
  if (generator && plan.rng_advance >= 0) generator->offset += static_cast<uint64_t>(run.slot(plan.rng_advance));
}

// The results of a plan that computes nothing, if what they look at is deferred; false where it is there.
bool make_views(Batch* batch, const Plan& plan, PlanRun& run, Argument* arguments, TensorList& views) {
  for (const Plan::Output& output : plan.outputs) {
    Tensor* base = arguments[output.same_as_input >= 0 ? output.same_as_input : output.view_of_input].tensor;
    if (base->storage->batch() != batch || !batch->takes_views(base)) {
      batch->run(base->storage);
      return false;
    }
  }
  for (const Plan::Output& output : plan.outputs) {
    if (output.same_as_input >= 0) {
      views.push_back(TensorRef::share(arguments[output.same_as_input].tensor));
      continue;
    }
    Tensor* base = arguments[output.view_of_input].tensor;
    views.push_back(batch->view(base, run.view(output.value), output.differentiable));
    note_base(views[views.size() - 1].get(), base);
  }
  return true;
}

// What the plan keeps of the weights among the arguments; made anew where one of them has changed.
std::shared_ptr<Constants> constants_of(const Plan& plan, int first, Argument* arguments, int count) {
  std::shared_ptr<Constants>& known = plan.constants;
  const auto is_same = [&](const Constants::Weight& weight, const Tensor* t) {
    return weight.storage.get() == t->storage && weight.data == t->view.data && weight.version == t->storage->version();
  };
  const auto number = static_cast<size_t>(count - first);
  bool same = known && known->weights.size() == number;
  for (size_t i = 0; same && i < number; ++i)
    same = is_same(known->weights[i], arguments[first + static_cast<int>(i)].tensor);
  if (same) return known;
  auto made = std::make_shared<Constants>(plan, static_cast<size_t>(first), static_cast<size_t>(count));
  for (int i = first; i < count; ++i) {
    const Tensor* t = arguments[i].tensor;
    made->weights.push_back({Ref<Storage>::share(t->storage), t->view.data, t->storage->version()});
  }
  known = made;
  return made;
}

bool has_constants(const OpFunction* op, const Plan& plan, Argument* arguments, int count) {
  if (op->constants < 0 || op->constants >= count || plan.device || plan.over_devices) return false;
  for (int i = op->constants; i < count; ++i)
    if (arguments[i].kind != Argument::Kind::Tensor) return false;
  return true;
}

Ref<Plan> compile_for(OpFunction* op, Argument* arguments, int count, const Signature& signature, uint64_t hash,
                      const InputView* inputs) {
  Ref<Plan> plan = compile(op, arguments, count);
  PlanRun run(*plan, inputs);
  if (!run.guards_hold()) {
    if (run.overflowed()) fail(ErrorKind::Memory, "out of memory: sizes of this call do not fit 64 bits");
    TD_CHECK(false, "the new plan of ", PyUnicode_AsUTF8(op->name), " does not accept the call it was made for");
  }
  CacheEntry* entry = op->cache->find(hash, signature);  // compiling runs Python, which may have called this operator
  if (!entry) {
    entry = op->cache->insert(hash, signature);
    entry->keep = keep_statics(arguments, count);
  }
  if (entry->variants.size() >= kMaxVariants) entry->variants.pop_back();
  entry->variants.insert(entry->variants.begin(), plan);
  return plan;
}

}  // namespace

// What a capture cannot note down happens on real memory, and so does whatever reads promises outside of one.
Capture* suspend_capture_if_needed(OpFunction* op, Argument* arguments, int count) {
  Capture* capture = active_capture;
  bool fits = true;
  for (int i = 0; i < count && fits; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor) fits = capture->can_read(arguments[i].tensor);
  auto writable = [&] {
    for (int k = 0; k < op->writes && k < count; ++k)
      if (arguments[k].kind == Argument::Kind::Tensor && !capture->can_write(arguments[k].tensor)) return false;
    return true;
  };
  if (fits && writable()) return nullptr;
  capture->flush(Capture::End::Memory);
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor && arguments[i].tensor->storage->pending())
      await_promise(arguments[i].tensor->storage);
  if (writable()) return nullptr;
  active_capture = nullptr;
  return capture;
}

namespace {

// -- sharded tensors: see Note [Sharded storages]

bool any_sharded(const Argument* arguments, int count) {
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor && arguments[i].tensor->storage->sharded()) return true;
  return false;
}

// Bodies of loops are described on whole tensors; what they become is called with the sharded ones.
bool describes_body() {
  return active_capture && !active_capture->region.empty();
}

struct Owned {  // a new reference, or the exception that there is none
  PyObject* object;
  explicit Owned(PyObject* o) : object(o) {
    if (!o) throw PythonError{};
  }
  Owned(const Owned&) = delete;
  ~Owned() { Py_DECREF(object); }
};

TensorList dispatch_sharded(OpFunction* op, Argument* arguments, int count, bool* returns_tuple) {
  std::vector<TensorRef> clones;
  for (int k = 0; k < op->writes; ++k) prepare_write(arguments, count, k, op->writes, clones);
  const Owned spec(PyList_New(count)), tensors(PyList_New(count));
  for (int i = 0; i < count; ++i) {
    const bool is_tensor = arguments[i].kind == Argument::Kind::Tensor;
    PyObject* item = describe_argument(arguments[i]);
    if (!item) throw PythonError{};
    PyList_SET_ITEM(spec.object, i, item);
    PyList_SET_ITEM(tensors.object, i,
                    Py_NewRef(is_tensor ? reinterpret_cast<PyObject*>(arguments[i].tensor) : Py_None));
  }
  note_writes(arguments, op->writes);
  PyObject* args[] = {reinterpret_cast<PyObject*>(op), spec.object, tensors.object};
  const Owned made(PyObject_Vectorcall(callbacks.sharded, args, 3, nullptr));
  PyObject *list = nullptr, *is_tuple = nullptr;
  long long advance = 0;
  if (!PyArg_ParseTuple(made.object, "OOL", &list, &is_tuple, &advance)) throw PythonError{};
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Seed)
      reinterpret_cast<Generator*>(arguments[i].object)->offset += static_cast<uint64_t>(advance);
  const Owned items(PySequence_Fast(list, "results of a sharded call"));
  TensorList outputs;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.object); ++i)
    outputs.push_back(TensorRef::share(reinterpret_cast<Tensor*>(PySequence_Fast_GET_ITEM(items.object, i))));
  *returns_tuple = is_tuple == Py_True;
  if (anomaly_detection) [[unlikely]]
    check_outputs(op, outputs);
  return outputs;
}

}  // namespace

TensorList dispatch(OpFunction* op, Argument* arguments, int count, bool* returns_tuple) {
  const PromotionRule promotion(arguments, count);
  if (active_batch && !active_capture) [[unlikely]] {
    TensorList results;
    if (active_batch->predict(op, arguments, count, results, returns_tuple)) return results;
  }
  if (any_sharded(arguments, count) && !describes_body()) [[unlikely]]
    return dispatch_sharded(op, arguments, count, returns_tuple);
  struct Resume {
    Capture* capture = nullptr;
    ~Resume() {
      if (capture) active_capture = capture;
    }
  } resume;
  if (active_capture) [[unlikely]]
    resume.capture = suspend_capture_if_needed(op, arguments, count);
  Batch* batch = active_capture ? nullptr : active_batch;
  bool defers_write = false;
  if (batch && op->writes) [[unlikely]] {
    defers_write =
        op->writes == 1 && arguments[0].kind == Argument::Kind::Tensor && batch->can_write(arguments[0].tensor);
    if (!defers_write) {
      batch->run_all();
      batch = nullptr;
    }
  }
  std::vector<TensorRef> clones;
  const bool apart = op->writes > kManyWrites && all_apart(arguments, count);
  for (int k = 0; k < op->writes && !defers_write; ++k)
    prepare_write(arguments, apart ? 0 : count, k, op->writes, clones);
  // A clone that was only noted down reads the memory that this call writes, in another way: it has to be made first.
  if (active_capture && !clones.empty()) [[unlikely]]
    resume.capture = suspend_capture_if_needed(op, arguments, count);

  constexpr int kInline = 16;
  InputView inline_inputs[kInline];
  std::unique_ptr<InputView[]> many_inputs;
  InputView* inputs = inline_inputs;
  if (count > kInline) {
    many_inputs.reset(new InputView[count]);
    inputs = many_inputs.get();
  }
  Generator* generator = nullptr;
  for (int i = 0; i < count; ++i) {
    Argument& a = arguments[i];
    if (a.kind == Argument::Kind::Tensor) {
      if (a.tensor->storage->pending() && !active_capture && !(batch && a.tensor->storage->batch() == batch))
          [[unlikely]]
        await_promise(a.tensor->storage);
      if (a.tensor->extra && a.tensor->extra->base) refresh_view(a.tensor);
      inputs[i].view = &a.tensor->view;
    } else {
      if (a.kind == Argument::Kind::Seed) generator = reinterpret_cast<Generator*>(a.object);
      inputs[i].cell = reinterpret_cast<char*>(&a.integer);
      inputs[i].integer = a.integer;
    }
  }

  Signature signature;
  encode(arguments, count, signature);
  uint64_t hash = signature.hash();
  CacheEntry* entry = op->cache->find(hash, signature);

  auto finish = [&](const Ref<Plan>& plan, PlanRun& run) {
    if (batch) [[unlikely]] {
      const Batch::Fate fate = batch->fate(op, *plan, arguments, count);
      if (fate != Batch::Fate::Now) {
        *returns_tuple = plan->returns_tuple;
        if (fate == Batch::Fate::Defer) {
          advance(generator, *plan, run);
          return batch->defer(op, plan, run, arguments, count);
        }
        TensorList views;
        if (make_views(batch, *plan, run, arguments, views)) return views;
      } else {
        for (int i = 0; i < count; ++i)
          if (arguments[i].kind == Argument::Kind::Tensor) batch->run(arguments[i].tensor->storage);
      }
    }
    if (active_capture && plan->num_checks) [[unlikely]]
      active_capture->check_early(run, arguments, count);
    std::optional<KnownSource> here;  // a call that is noted asks for it up to three times
    if (active_capture) here.emplace();
    Ref<PlanNode> node;
    if (!plan->grad_inputs.empty()) node = begin_record(plan, arguments);
    advance(generator, *plan, run);  // before the GIL may be let go, so that no two calls share numbers
    int32_t captured = active_capture ? active_capture->begin(plan, arguments, count) : -1;
    note_writes(arguments, op->writes);
    TensorList outputs;
    outputs.reserve(plan->outputs.size());
    if (captured >= 0) [[unlikely]] {
      for (int k = 0; k < static_cast<int>(plan->outputs.size()); ++k) {
        outputs.push_back(active_capture->output(captured, k, run, arguments, k < op->writes));
        int32_t base = k < op->writes ? -1 : plan->outputs[k].view_of_input;
        if (base >= 0) note_base(outputs[k].get(), arguments[base].tensor);
      }
    } else {
      if (plan->kernels) [[unlikely]]
        prepare_plan(*plan);
      std::shared_ptr<Constants> constants;
      if (has_constants(op, *plan, arguments, count)) [[unlikely]] {
        constants = constants_of(*plan, op->constants, arguments, count);
        run.set_loop(&constants->state);
      }
      run.execute();
      for (const Plan::Output& output : plan->outputs) outputs.push_back(make_output(*plan, output, run, arguments));
    }
    if (node) finish_record(*plan, node.get(), run, arguments, outputs, captured);
    here.reset();
    for (int k = 0; k < op->writes; ++k) {
      Tensor* t = arguments[k].tensor;
      if (node && plan->outputs[k].differentiable) {
        set_history(t, node.get(), static_cast<uint32_t>(k));
        rebase(t);
      } else if (grad_mode.enabled && t->history) {  // what it held is overwritten by something that needs no gradient
        set_history(t, nullptr, 0);
        rebase(t);
      }
    }
    *returns_tuple = plan->returns_tuple;
    if (anomaly_detection) [[unlikely]]
      check_outputs(op, outputs);
    return outputs;
  };

  if (entry) {
    for (size_t k = 0; k < entry->variants.size(); ++k) {
      Ref<Plan> plan = entry->variants[k];
      PlanRun run(*plan, inputs);
      if (!run.guards_hold()) continue;
      if (k > 0) std::swap(entry->variants[k], entry->variants[k - 1]);
      return finish(plan, run);
    }
  }
  Ref<Plan> plan = compile_for(op, arguments, count, signature, hash, inputs);
  PlanRun run(*plan, inputs);
  TD_CHECK(run.guards_hold());
  return finish(plan, run);
}

Ref<Plan> find_plan(OpFunction* op, Argument* arguments, int count, bool prepared) {
  const PromotionRule promotion(arguments, count);
  std::vector<InputView> inputs(count);
  for (int i = 0; i < count; ++i) {
    Argument& a = arguments[i];
    if (a.kind == Argument::Kind::Tensor) {
      inputs[i].view = &a.tensor->view;
    } else {
      inputs[i].cell = reinterpret_cast<char*>(&a.integer);
      inputs[i].integer = a.integer;
    }
  }
  Signature signature;
  encode(arguments, count, signature);
  uint64_t hash = signature.hash();
  Ref<Plan> found;
  if (CacheEntry* entry = op->cache->find(hash, signature))
    for (const Ref<Plan>& plan : entry->variants)
      if (PlanRun(*plan, inputs.data()).guards_hold()) {
        found = plan;
        break;
      }
  if (!found) found = compile_for(op, arguments, count, signature, hash, inputs.data());
  if (prepared && found->kernels) prepare_plan(*found);
  return found;
}

}  // namespace tandem
