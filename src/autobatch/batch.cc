#include "autobatch/batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "check.h"
#include "frames.h"
#include "tensor/default_dtype.h"
#include "tensor/deferred.h"

namespace tandem {

constinit thread_local Batch* active_batch = nullptr;

void run_deferred(const Storage* storage) {
  Batch* batch = storage->batch();
  if (batch && batch->thread == std::this_thread::get_id()) batch->run(storage);
}

Batch::~Batch() {
  drop();
  constexpr size_t kMostKept = 1 << 18;
  if (calls_.capacity() <= kMostKept) exchange_memory();
}

// Touching fresh memory takes longer than deferring a call.
void Batch::exchange_memory() {
  struct Kept {
    std::vector<Call> calls;
    std::vector<Operand> operands;
    std::vector<Argument> arguments;
    std::vector<DeferredTensor> deferred;
    Numbered kinds, geometries;
    std::vector<SavedView> geometry;
  };
  static auto* kept = new Kept();  // GIL
  std::swap(calls_, kept->calls);
  std::swap(operands_, kept->operands);
  std::swap(arguments_, kept->arguments);
  std::swap(deferred_, kept->deferred);
  std::swap(kinds_, kept->kinds);
  std::swap(geometries_, kept->geometries);
  std::swap(geometry_, kept->geometry);
}

void Batch::drop() {
  forget_followed();
  for (DeferredTensor& p : deferred_)
    if (p.storage && p.storage->pending()) p.storage->forget_batch();
  track_deferred();
  for (Call& call : calls_)
    if (!call.done) finish(call);
  waiting_ = 0;
  forget_if_done();
}

int32_t Numbered::number(const uint8_t* data, size_t size, uint64_t hash) {
  size_t i = hash & (slots_.size() - 1);
  for (; slots_[i] >= 0; i = (i + 1) & (slots_.size() - 1)) {
    const Key& known = keys_[slots_[i]];
    if (known.hash == hash && known.size == size && std::memcmp(bytes_.data() + known.begin, data, size) == 0)
      return slots_[i];
  }
  const auto number = static_cast<int32_t>(keys_.size());
  keys_.push_back({hash, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(size)});
  bytes_.insert(bytes_.end(), data, data + size);
  slots_[i] = number;
  if (2 * keys_.size() > slots_.size()) {
    slots_.assign(slots_.size() * 2, -1);
    for (size_t k = 0; k < keys_.size(); ++k) {
      size_t j = keys_[k].hash & (slots_.size() - 1);
      while (slots_[j] >= 0) j = (j + 1) & (slots_.size() - 1);
      slots_[j] = static_cast<int32_t>(k);
    }
  }
  return number;
}

void Numbered::clear() {
  keys_.clear();
  bytes_.clear();
  std::fill(slots_.begin(), slots_.end(), -1);
}

int32_t Batch::number_of(const View& v) {
  Signature key;
  key.byte(static_cast<uint8_t>(v.dtype));
  key.bytes(v.shape, v.ndim * sizeof(int64_t));
  key.bytes(v.strides, v.ndim * sizeof(int64_t));
  const int32_t number = geometries_.number(key.data(), key.size(), key.hash());
  if (number == static_cast<int32_t>(geometry_.size())) {
    geometry_.emplace_back() = v;
    geometry_.back().data = nullptr;
  }
  return number;
}

Batch::Operand Batch::operand_of(Tensor* t, bool wants_grad, int32_t geometry) {
  Operand operand;
  if (wants_grad && t->requires_grad) operand.edge = gradient_edge(t);
  if (holds(t->storage)) {
    operand.storage = Ref<Storage>::share(t->storage);
    operand.data = t->view.data;
    operand.detached = !t->requires_grad && deferred_[t->storage->number()].rows;
  } else {
    operand.leaf = TensorRef::share(t);
  }
  operand.geometry = geometry < 0 ? number_of(t->view) : geometry;
  use(operand);
  return operand;
}

void Batch::use(Operand& operand) {
  if (RowNode* row = operand.edge.node ? operand.edge.node->as_row() : nullptr) ++row->uses;
  if (operand.storage && holds(operand.storage.get())) ++deferred_[operand.storage->number()].uses;
  if (operand.leaf && viewed_parameter(operand.leaf.get())) ++view_uses_[operand.leaf.get()];
}

void Batch::release(Operand& operand) {
  if (RowNode* row = operand.edge.node ? operand.edge.node->as_row() : nullptr) --row->uses;
  if (operand.storage && holds(operand.storage.get())) --deferred_[operand.storage->number()].uses;
  if (operand.leaf && viewed_parameter(operand.leaf.get()) && --view_uses_[operand.leaf.get()] == 0)
    view_uses_.erase(operand.leaf.get());
}

void Batch::finish(Call& call) {
  call.done = true;
  --waiting_;
  for (Operand& operand : operands(call)) {
    release(operand);
    operand = Operand();
  }
  for (Argument& a : arguments(call))
    if (a.kind == Argument::Kind::Static) Py_CLEAR(a.object);
  Py_XDECREF(std::exchange(call.source.code, nullptr));
  Py_CLEAR(call.op);
  call.plan = nullptr;
}

void Batch::forget_if_done() {
  if (waiting_ > 0) return;
  calls_.clear();
  operands_.clear();
  arguments_.clear();
  deferred_.clear();
  view_uses_.clear();
  kinds_.clear();
  geometries_.clear();
  geometry_.clear();
  begin_numbers();
}

void Batch::begin_numbers() {
  static uint64_t last = 0;  // GIL
  serial_ = ++last;
}

Batch::Fate Batch::fate(const OpFunction* op, const Plan& plan, const Argument* arguments, int count) const {
  if (op->writes) return count > 0 && op->writes == 1 && plan.outputs.size() == 1 ? Fate::Defer : Fate::Now;
  bool views = true, computed = true;
  for (const Plan::Output& output : plan.outputs) {
    const bool is_view = output.same_as_input >= 0 || output.view_of_input >= 0;
    views &= is_view;
    computed &= !is_view;
  }
  if (views && plan.instructions.empty()) return Fate::View;
  if (!computed || !plan.keep || plan.waits) return Fate::Now;
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor && arguments[i].tensor->inference != grad_mode.inference)
      return Fate::Now;
  return Fate::Defer;
}

bool Batch::can_write(const Tensor* t) {
  end_sequence();
  if (!holds(t->storage) || (t->extra && t->extra->base) || !t->view.is_contiguous()) return false;
  const DeferredTensor& deferred = deferred_[t->storage->number()];
  return t->storage->references() == 2 + deferred.uses;  // the batch, calls, and this tensor
}

View Batch::deferred_view(const PlanValue& value, PlanRun& run) {
  View v;
  v.data = nullptr;
  v.dtype = value.dtype;
  v.ndim = static_cast<int>(value.shape.size());
  for (int i = 0; i < v.ndim; ++i) v.shape[i] = run.slot(value.shape[i]);
  int64_t step = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    v.strides[i] = step;
    step *= std::max<int64_t>(v.shape[i], 1);
  }
  return v;
}

// Elements of a result lie side by side.
TensorRef Batch::defer_result(int32_t call, int32_t output, const SavedView& v, size_t bytes, int device,
                              bool wants_grad) {
  Storage* storage = Storage::deferred_row(bytes, device, this, deferred_.size());
  DeferredTensor& made = deferred_.emplace_back();
  made.storage = Ref<Storage>::share(storage);
  made.call = call;
  made.output = output;
  TensorRef t = TensorRef::adopt(new_tensor(storage, nullptr, v.dtype, v.ndim, v.shape(), v.strides()));
  t->inference = grad_mode.inference;
  if (wants_grad) {
    auto row = Ref<RowNode>::adopt(new RowNode(static_cast<uint32_t>(output), v, bytes));
    row->uses = 1;
    set_history(t.get(), row.get(), 0);
    made.rows = std::move(row);
  }
  return t;
}

Batch::Call& Batch::begin_call(OpFunction* op, const Ref<Plan>& plan) {
  Call& call = calls_.emplace_back();
  ++waiting_;
  Py_INCREF(op);
  call.op = op;
  call.plan = plan;
  call.example = example;
  call.mode = call_mode;
  call.inference = grad_mode.inference;
  call.grad = grad_mode.enabled;
  call.float_type = default_float;
  call.of_vertex = defers_vertices;
  call.first_operand = static_cast<int32_t>(operands_.size());
  call.first_argument = static_cast<int32_t>(arguments_.size());
  return call;
}

// A call that nothing is known of.
Batch::Call& Batch::add_call(OpFunction* op, const Ref<Plan>& plan, const Argument* arguments, int count) {
  Call& call = begin_call(op, plan);
  call.source = user_source();
  call.functional = op->writes > 0;
  if (const Frames frames; !frames.at_end()) {
    call.code = frames.code();
    call.instruction = frames.instruction();
  }
  const bool records = !plan->grad_inputs.empty();
  for (int i = 0; i < count; ++i) {
    Argument a = arguments[i];
    if (a.kind == Argument::Kind::Static) Py_XINCREF(a.object);
    if (a.kind == Argument::Kind::Seed || a.kind == Argument::Kind::Offset) {
      call.random = true;
      if (plan->rng_advance >= 0) call.functional = true;  // the generator has moved on already
      a.object = nullptr;
    }
    if (a.kind == Argument::Kind::Tensor) {
      operands_.push_back(operand_of(a.tensor, records));
      ++call.num_operands;
      a.tensor = nullptr;
    }
    arguments_.push_back(a);
    ++call.num_arguments;
  }
  return call;
}

TensorList Batch::defer(OpFunction* op, const Ref<Plan>& plan, PlanRun& run, Argument* arguments, int count) {
  if (plan->num_checks)  // see Note [Early checks] in capture/capture.h
    for (int i = 0; i < count; ++i)
      if (arguments[i].kind == Argument::Kind::Tensor && !arguments[i].tensor->storage->pending()) run.check_input(i);
  end_sequence();
  const auto number = static_cast<int32_t>(calls_.size());
  Call& call = add_call(op, plan, arguments, count);
  const bool records = !plan->grad_inputs.empty();
  Signature key;
  describe(call, key);
  call.kind = kinds_.number(key.data(), key.size(), key.hash());
  call.first_deferred = static_cast<int32_t>(deferred_.size());
  TensorList outputs;
  for (size_t k = 0; k < plan->outputs.size(); ++k) {
    const Plan::Output& output = plan->outputs[k];
    const bool wants_grad = records && output.differentiable;
    const View v = deferred_view(plan->values[output.value], run);
    const size_t bytes = checked_bytes(v.dtype, v.ndim, v.shape);
    SavedView result;
    result = v;
    TensorRef made = defer_result(number, static_cast<int32_t>(k), result, bytes, run.device(), wants_grad);
    if (!op->writes) {
      outputs.push_back(std::move(made));
      continue;
    }
    Tensor* target = arguments[k].tensor;  // becomes what the call computes
    std::swap(target->storage, made->storage);
    std::copy_n(made->view.strides, made->view.ndim, target->view.strides);
    target->view.data = nullptr;
    set_history(target, made->history, 0);
    outputs.push_back(TensorRef::share(target));
  }
  return outputs;
}

// Gradients of a view go straight to the block: not where elements of its base share memory, nor past a record that is
// not ours.
bool Batch::takes_views(const Tensor* of) const {
  if (!of->requires_grad || !grad_mode.enabled) return true;
  if (!of->history || !of->history->as_row()) return false;
  for (int i = 0; i < of->view.ndim; ++i)
    if (of->view.strides[i] == 0 && of->view.shape[i] > 1) return false;
  return true;
}

TensorRef Batch::view(Tensor* of, const View& g, bool differentiable) {
  TensorRef made = TensorRef::adopt(new_view(of, g.data, g.dtype, g.ndim, g.shape, g.strides));
  made->inference = grad_mode.inference || of->inference;
  if (!differentiable || !of->requires_grad || !grad_mode.enabled) return made;
  RowNode* base = of->history->as_row();
  auto shared = Ref<RowNode>::share(base);
  auto row = Ref<RowNode>::adopt(new RowNode(base->output(), g, base->bytes(), std::move(shared)));
  ++base->uses;
  row->uses = 1;
  set_history(made.get(), row.get(), 0);
  Ref<RowNode>& rows = deferred_[of->storage->number()].rows;
  row->next = std::move(rows);
  rows = std::move(row);
  return made;
}

void Batch::run(const Storage* wanted) {
  if (!holds(wanted)) return;
  end_sequence();
  const int32_t last = deferred_[wanted->number()].call;
  std::vector<uint8_t> needed(last + 1);
  needed[last] = true;
  run_needed(needed);
}

// Calls marked, and those they take from, which come before them.
void Batch::run_needed(std::vector<uint8_t>& needed) {
  std::vector<int32_t> list;
  for (auto c = static_cast<int32_t>(needed.size()) - 1; c >= 0; --c) {
    if (!needed[c] || calls_[c].done) continue;
    list.push_back(c);
    for (const Operand& operand : operands(calls_[c]))
      if (operand.storage && holds(operand.storage.get())) needed[deferred_[operand.storage->number()].call] = true;
  }
  std::reverse(list.begin(), list.end());
  run_calls(std::move(list));
}

void Batch::run_waiting() {
  end_sequence();
  std::vector<int32_t> list;
  for (size_t c = 0; c < calls_.size(); ++c)
    if (!calls_[c].done) list.push_back(static_cast<int32_t>(c));
  run_calls(std::move(list));
}

void Batch::run_all() {
  end_sequence();
  if (waiting_ == 0) return;
  std::vector<uint8_t> needed(calls_.size());
  for (const DeferredTensor& p : deferred_)
    if (p.storage && p.storage->pending() && p.storage->references() > 1 + p.uses) needed[p.call] = true;
  run_needed(needed);
}

}  // namespace tandem
