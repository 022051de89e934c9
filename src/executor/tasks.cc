#include "executor/tasks.h"

#include <nanobind/nanobind.h>

#include <cstring>
#include <shared_mutex>

#include "check.h"
#include "executor/cancellation.h"
#include "raise.h"

namespace nb = nanobind;

namespace tandem {

namespace {

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

const Tensor* value_of(const RunState& state, int32_t cell) {
  return reinterpret_cast<const Tensor*>(state.cells.at(cell)->tensor);
}

bool same_place(const View& a, const View& b) {
  if (a.dtype != b.dtype || a.ndim != b.ndim || !a.is_contiguous() || !b.is_contiguous()) return false;
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] != b.shape[i]) return false;
  return true;
}

void execute_plan(const Plan& plan, PlanRun& run) {
  if (!plan.device && !plan.over_devices) return run.execute_without_gil();
  Gil gil;
  run.execute();
}

uint64_t scramble(uint64_t a, uint64_t b) {  // splitmix64 of both
  uint64_t z = a + 0x9E3779B97F4A7C15ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

PlanTask::PlanTask(PyObject* function, std::vector<int32_t> read, std::vector<int32_t> written)
    : read_(std::move(read)), written_(std::move(written)) {
  if (Py_TYPE(function) != OpFunctionType) fail(ErrorKind::Type, "a task needs an operator function");
  function_ = reinterpret_cast<OpFunction*>(Py_NewRef(function));
}

PlanTask::~PlanTask() {
  Gil gil;
  variants_.clear();
  Py_DECREF(reinterpret_cast<PyObject*>(function_));
}

void PlanTask::run(flow::Token* inputs, int num_inputs, flow::Token* outputs, int num_outputs,
                   const flow::Place& place) {
  auto& state = *static_cast<RunState*>(place.state);
  if (!written_.empty()) {
    std::lock_guard guard(*state.lock);
    execute(inputs, num_inputs, outputs, num_outputs, place);
  } else if (!read_.empty()) {
    std::shared_lock guard(*state.lock);
    execute(inputs, num_inputs, outputs, num_outputs, place);
  } else {
    execute(inputs, num_inputs, outputs, num_outputs, place);
  }
}

const Plan* PlanTask::compile(const std::vector<Operand>& operands, uint64_t seed, const Signature& signature) {
  Gil gil;
  const size_t count = operands.size();
  std::vector<TensorRef> tensors;
  std::vector<Argument> arguments(count + 3);
  arguments[0].kind = Argument::Kind::Count;
  arguments[0].integer = static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const View& v = *operands[i].view;
    // Compiling looks at the geometry alone; the memory stays with its owner.
    Storage* borrowed = Storage::borrow(v.data, 0, false, nullptr, nullptr, operands[i].device);
    tensors.push_back(TensorRef::adopt(new_tensor(borrowed, v.data, v.dtype, v.ndim, v.shape, v.strides)));
    arguments[i + 1].kind = Argument::Kind::Tensor;
    arguments[i + 1].tensor = tensors.back().get();
  }
  arguments[count + 1].kind = Argument::Kind::Seed;
  arguments[count + 1].integer = static_cast<int64_t>(seed);
  arguments[count + 2].kind = Argument::Kind::Offset;
  arguments[count + 2].integer = 0;
  try {
    Ref<Plan> plan = find_plan(function_, arguments.data(), static_cast<int>(arguments.size()));
    TD_CHECK(plan->grad_inputs.empty(), "a task's plan must not record gradients");
    std::lock_guard guard(mutex_);
    variants_.push_back({{signature.data(), signature.data() + signature.size()}, plan});
    return plan.get();
  } catch (const PythonError&) {
    throw nb::python_error();
  } catch (const Error& error) {
    raise_operator_error(function_, error);
    throw nb::python_error();
  }
}

void PlanTask::execute(flow::Token* inputs, int num_inputs, flow::Token* outputs, int num_outputs,
                       const flow::Place& place) {
  auto& state = *static_cast<RunState*>(place.state);
  int count = static_cast<int>(read_.size()) + num_inputs;
  constexpr int kInline = 16;
  InputView inline_views[kInline + 3];
  std::vector<InputView> many;
  InputView* views = inline_views;
  if (count > kInline) {
    many.resize(count + 3);
    views = many.data();
  }
  int64_t cells[3] = {count, static_cast<int64_t>(scramble(state.seed, place.key)), 0};
  auto number = [&](int at, int which) {
    views[at].cell = reinterpret_cast<char*>(&cells[which]);
    views[at].integer = cells[which];
  };
  number(0, 0);
  number(count + 1, 1);
  number(count + 2, 2);
  Signature signature;
  int at = 1;
  auto take = [&](const View& view, const Storage& storage) {
    views[at++].view = &view;
    signature.view(view, false, storage.device());
  };
  for (int32_t cell : read_) {
    const Tensor* t = value_of(state, cell);
    if (!t) fail(ErrorKind::Value, "a variable has no value in this session");
    take(t->view, *t->storage);
  }
  for (int i = 0; i < num_inputs; ++i) take(as_tensor(inputs[i]).view, *as_tensor(inputs[i]).storage);
  signature.value(call_mode);

  constexpr int kCandidates = 8;
  const Plan* candidates[kCandidates];
  int found = 0;
  {
    std::lock_guard guard(mutex_);
    for (auto v = variants_.rbegin(); v != variants_.rend() && found < kCandidates; ++v)
      if (v->signature.size() == signature.size() &&
          std::memcmp(v->signature.data(), signature.data(), signature.size()) == 0)
        candidates[found++] = v->plan.get();
  }
  for (int k = 0; k < found; ++k) {
    PlanRun run(*candidates[k], views);
    if (run.guards_hold()) return finish(*candidates[k], run, inputs, outputs, num_outputs, state);
  }
  std::vector<Operand> operands;
  for (int32_t cell : read_)
    operands.push_back({views[operands.size() + 1].view, value_of(state, cell)->storage->device()});
  for (int i = 0; i < num_inputs; ++i)
    operands.push_back({views[operands.size() + 1].view, as_tensor(inputs[i]).storage->device()});
  const Plan* plan = compile(operands, static_cast<uint64_t>(cells[1]), signature);
  PlanRun run(*plan, views);
  TD_CHECK(run.guards_hold());
  finish(*plan, run, inputs, outputs, num_outputs, state);
}

void PlanTask::finish(const Plan& plan, PlanRun& run, flow::Token* inputs, flow::Token* outputs, int num_outputs,
                      RunState& state) {
  TD_CHECK(plan.outputs.size() == num_outputs + written_.size(), "a task's plan gives ", plan.outputs.size(),
           " results, not ", num_outputs + written_.size());
  execute_plan(plan, run);
  int first_token = 1 + static_cast<int>(read_.size());
  auto result = [&](const Plan::Output& output) -> flow::Token {
    int source = output.same_as_input >= 0 ? output.same_as_input : output.view_of_input;
    if (output.same_as_input >= first_token) return inputs[output.same_as_input - first_token];
    View v = run.view(output.value);
    if (source >= first_token)
      return flow::Token::adopt(new TensorPayload(as_tensor(inputs[source - first_token]).storage, v));
    TD_CHECK(source < 0, "a result is a view of a variable");
    int32_t root = output.value;
    while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
    return flow::Token::adopt(new TensorPayload(Ref<Storage>::adopt(run.share_storage(root)), v));
  };
  for (int k = 0; k < num_outputs; ++k) outputs[k] = result(plan.outputs[k]);
  for (size_t k = 0; k < written_.size(); ++k) {
    flow::Token made = result(plan.outputs[num_outputs + k]);
    const TensorPayload& payload = as_tensor(made);
    VariableCell& cell = *state.cells.at(written_[k]);
    auto* old = reinterpret_cast<Tensor*>(cell.tensor);
    const int device = payload.storage->device();
    if (old && old->storage->writable() && old->storage->device() == device && same_place(old->view, payload.view)) {
      size_t bytes = static_cast<size_t>(payload.view.numel()) * item_size(payload.view.dtype);
      if (device)
        cuda::copy_on_device(device - 1, old->view.data, payload.view.data, bytes);
      else if (bytes)
        std::memcpy(old->view.data, payload.view.data, bytes);
    } else {
      Gil gil;
      PyObject* before = std::exchange(cell.tensor, reinterpret_cast<PyObject*>(tensor_of(payload).leak()));
      Py_XDECREF(before);
    }
  }
}

PythonTask::PythonTask(PyObject* function, bool blocking, bool placed)
    : function_(Py_NewRef(function)), blocking_(blocking), placed_(placed) {}

PythonTask::~PythonTask() {
  Gil gil;
  Py_DECREF(function_);
}

void PythonTask::run(flow::Token* inputs, int num_inputs, flow::Token* outputs, int num_outputs,
                     const flow::Place& place) {
  Gil gil;
  nb::list arguments;
  for (int i = 0; i < num_inputs; ++i)
    if (inputs[i])
      arguments.append(nb::steal(reinterpret_cast<PyObject*>(tensor_of(as_tensor(inputs[i])).leak())));
    else
      arguments.append(nb::none());
  nb::object cancellation = nb::cast(place.cancellation, nb::rv_policy::reference);
  nb::object results;
  if (placed_) {
    nb::handle context = static_cast<RunState*>(place.state)->context;
    results = nb::handle(function_)(arguments, cancellation, context, place.key, *place.dead);
    if (results.is_none()) {
      *place.dead = true;
      return;
    }
  } else {
    results = nb::handle(function_)(arguments, cancellation);
  }
  nb::object sequence = nb::steal(PySequence_Fast(results.ptr(), "a task must give a list of tensors"));
  if (!sequence.is_valid()) throw nb::python_error();
  TD_CHECK(PySequence_Fast_GET_SIZE(sequence.ptr()) == num_outputs, "a Python task gave another number of results");
  for (int k = 0; k < num_outputs; ++k) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence.ptr(), k);
    TD_CHECK(is_tensor(item), "a Python task must give tensors");
    auto* t = reinterpret_cast<Tensor*>(item);
    if (t->storage->pending()) fail(ErrorKind::Value, "a Python function gave a tensor that has no memory yet");
    outputs[k] = token_of(t);
  }
}

}  // namespace tandem
