// Calls written down, for the next ones to be compared with: see Note [Predicted calls].
#include <algorithm>

#include "capture/capture.h"
#include "check.h"

namespace tandem {

namespace {

constexpr size_t kMostPredictions = 4;  // of one sequence of calls, for different sizes
enum ArgumentFlags : uint8_t { kRequiresGrad = 1, kHasHistory = 2 };

// Whether an object has the same value for ever.
bool is_fixed(PyObject* o) {
  if (o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyUnicode_CheckExact(o))
    return true;
  if (!PyTuple_CheckExact(o)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
    if (!is_fixed(PyTuple_GET_ITEM(o, i))) return false;
  return true;
}

// A list is written down as it is now.
PyObject* frozen(PyObject* o) {
  if (PyTuple_CheckExact(o)) {
    if (is_fixed(o)) return Py_NewRef(o);
    PyObject* made = PyTuple_New(PyTuple_GET_SIZE(o));
    for (Py_ssize_t i = 0; made && i < PyTuple_GET_SIZE(o); ++i)
      PyTuple_SET_ITEM(made, i, frozen(PyTuple_GET_ITEM(o, i)));
    return made;
  }
  if (!PyList_CheckExact(o)) return Py_NewRef(o);
  PyObject* made = PyList_New(PyList_GET_SIZE(o));
  for (Py_ssize_t i = 0; made && i < PyList_GET_SIZE(o); ++i) PyList_SET_ITEM(made, i, frozen(PyList_GET_ITEM(o, i)));
  return made;
}

}  // namespace

bool ProgramCache::Learning::begin() {
  constexpr int kOften = 8, kMostPauses = 10;
  if (pause > 0) {
    --pause;
    return false;
  }
  if (wasted >= kOften) pause = int64_t{1} << std::min(wasted - kOften, kMostPauses);
  return true;
}

bool Prediction::alike(const Prediction& other) const {
  if (leaves.size() != other.leaves.size() || int_arguments != other.int_arguments) return false;
  for (size_t i = 0; i < leaves.size(); ++i)
    if (!slots[leaves[i]].view.same_geometry(other.slots[other.leaves[i]].view.at(nullptr))) return false;
  return true;
}

void Capture::start_learning() {
  if (!programs_ || record || programs_->watch || programs_->remote || anomaly_detection) return;
  const auto segment = static_cast<size_t>(segments);
  if (segment >= programs_->latest.size() || !programs_->latest[segment]) return;  // it may never come again
  programs_->latest[segment]->has_missed = false;
  if (!programs_->learning[segment].begin()) return;
  learning_ = std::make_shared<Prediction>();
  learning_->plans_cleared = PlanCache::num_cleared;
  leaf_slots_.clear();
  call_slots_.clear();
  deferred_learned_ = 0;
}

// As they are before the call: what it writes has another history afterwards.
void Capture::learn_arguments(const Argument* arguments, int count) {
  argument_flags_.assign(count, 0);
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    const Tensor* t = arguments[i].tensor;
    argument_flags_[i] = static_cast<uint8_t>((t->requires_grad ? kRequiresGrad : 0) | (t->history ? kHasHistory : 0));
  }
}

int32_t Capture::learn_slot(const View& view, const Storage* storage) {
  PredictedSlot& slot = learning_->slots.emplace_back();
  slot.view = view;
  slot.bytes = storage->bytes();
  slot.device = storage->device();
  return static_cast<int32_t>(learning_->slots.size()) - 1;
}

void Capture::learn_call(OpFunction* op, const Argument* arguments, PlanRun& run, const TensorList& outputs,
                         int32_t number) {
  const Call& call = calls_[number];
  const Plan& plan = *call.plan;
  if (static_cast<size_t>(number) != call_slots_.size() || plan.device || plan.over_devices) {
    learning_ = nullptr;
    return;
  }
  Prediction& to = *learning_;
  PredictedCall& made = to.calls.emplace_back();
  made.op = reinterpret_cast<OpFunction*>(Py_NewRef(reinterpret_cast<PyObject*>(op)));
  made.plan = call.plan;
  made.modes = CallModes::now();
  made.recorded = call.recorded;
  made.arguments = static_cast<int32_t>(to.arguments.size());
  made.results = static_cast<int32_t>(to.results.size());
  made.temporaries = static_cast<int32_t>(to.temporaries.size());
  made.ints = static_cast<int32_t>(to.ints.size());
  made.slots = static_cast<int32_t>(to.slots.size());
  made.key_end = key_.size();
  if (plan.rng_advance >= 0) made.advance = run.slot(plan.rng_advance);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Argument& given = arguments[i];
    const Operand& operand = call.operands[i];
    PredictedArgument& a = to.arguments.emplace_back();
    a.kind = given.kind;
    if (given.kind == Argument::Kind::Static) {
      a.object = frozen(given.object);
      a.is_fixed = is_fixed(given.object);
      if (!a.object) throw PythonError{};
    } else if (given.kind == Argument::Kind::Int || given.kind == Argument::Kind::Count) {
      a.integer = given.integer;
    }
    if (given.kind != Argument::Kind::Tensor) continue;
    a.inference = given.tensor->inference;
    a.is_written = static_cast<int>(i) < op->writes;
    if (operand.kind == Operand::Kind::Leaf) {
      const Leaf& leaf = leaves_[operand.index];
      a.is_new = static_cast<size_t>(operand.index) == leaf_slots_.size();
      if (a.is_new) {
        leaf_slots_.push_back(learn_slot(leaf.view, leaf.storage.get()));
        PredictedSlot& slot = to.slots.back();
        slot.view.data = nullptr;
        slot.is_borrowed = leaf.storage->borrowed();
        for (int32_t other = leaf.next; other >= 0; other = leaves_[other].next) {
          if (same_view(leaves_[other].view, leaf.view)) {  // somebody has written it meanwhile
            learning_ = nullptr;
            return;
          }
          slot.shares = leaf_slots_[other];
          slot.distance = leaf.view.data - leaves_[other].view.data;
        }
        to.leaves.push_back(leaf_slots_.back());
      }
      a.slot = leaf_slots_[operand.index];
    } else {
      a.slot = call_slots_[operand.index] + operand.output;
    }
    a.requires_grad = argument_flags_[i] & kRequiresGrad;
    a.has_history = argument_flags_[i] & kHasHistory;
  }
  call_slots_.push_back(static_cast<int32_t>(to.slots.size()));
  const auto base_address = [&](int32_t argument) { return arguments[argument].tensor->view.data; };
  const auto add = [&](std::vector<PredictedResult>& list, PredictedResult::Kind kind, int32_t argument,
                       const View& view, const Storage* storage) {
    PredictedResult& result = list.emplace_back();
    result.kind = kind;
    result.argument = argument;
    result.slot = learn_slot(view, storage);
    to.slots.back().view.data = nullptr;
    if (kind == PredictedResult::Kind::View) result.offset = view.data - base_address(argument);
    if (kind == PredictedResult::Kind::Fresh) {
      to.deferred.push_back(result.slot);
      ++deferred_learned_;
    }
  };
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Plan::Output& output = plan.outputs[k];
    const Tensor* t = outputs[k].get();
    if (static_cast<int>(k) < op->writes) {
      add(to.results, PredictedResult::Kind::Written, static_cast<int32_t>(k), t->view, t->storage);
      if (!t->storage->pending()) to.writes = true;
    } else if (output.same_as_input >= 0) {
      add(to.results, PredictedResult::Kind::Same, output.same_as_input, t->view, t->storage);
    } else if (output.view_of_input >= 0) {
      add(to.results, PredictedResult::Kind::View, output.view_of_input, t->view, t->storage);
    } else {
      add(to.results, PredictedResult::Kind::Fresh, -1, t->view, t->storage);
    }
  }
  for (int32_t value : call.temporaries) {
    made.plan_values.push_back(value);
    int32_t root = value;
    while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
    if (plan.values[root].kind == ValueKind::Input) {
      const int32_t source = plan.values[root].source;
      add(to.temporaries, PredictedResult::Kind::View, source, run.view(value), arguments[source].tensor->storage);
    } else {
      const DeferredTensor& deferred = deferred_[deferred_learned_];
      add(to.temporaries, PredictedResult::Kind::Fresh, -1, deferred.view, deferred.storage.get());
    }
  }
  if (!plan.grad_inputs.empty())
    for (int32_t s : plan.saved_ints) to.ints.push_back(run.slot(s));
  if (deferred_learned_ != deferred_.size()) learning_ = nullptr;
}

void Capture::finish_learning(ProgramCache::Entry& entry, const std::vector<size_t>& escaping) {
  if (!learning_) return;
  const std::shared_ptr<Prediction> made = std::move(learning_);
  if (made->calls.size() != calls_.size()) return;
  for (size_t i : escaping) made->escaping.push_back({static_cast<int32_t>(i), made->deferred[i], deferred_[i].view});
  made->int_arguments = ints_;
  PredictedCall& end = made->calls.emplace_back();
  end.arguments = static_cast<int32_t>(made->arguments.size());
  end.results = static_cast<int32_t>(made->results.size());
  end.temporaries = static_cast<int32_t>(made->temporaries.size());
  end.ints = static_cast<int32_t>(made->ints.size());
  end.slots = static_cast<int32_t>(made->slots.size());
  ++programs_->learning[segments - 1].wasted;  // this one has been counted
  std::erase_if(entry.predictions, [&](const std::shared_ptr<Prediction>& p) { return p->alike(*made); });
  entry.predictions.insert(entry.predictions.begin(), made);
  if (entry.predictions.size() > kMostPredictions) entry.predictions.pop_back();
}

}  // namespace tandem
