// Calls that follow a known sequence, until they are one: see Note [Sequences] in sequences.h.
#include <algorithm>
#include <utility>

#include "autobatch/batch.h"
#include "check.h"
#include "frames.h"
#include "tensor/default_dtype.h"

namespace tandem {

namespace {

bool is_parameter(const Tensor* t) {
  return t->requires_grad && t->is_leaf();
}

// What only reads data checks these views, before the call is deferred.
void check_inputs(const Plan& plan, PlanRun& run, const Argument* arguments, int count) {
  if (!plan.num_checks) return;
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor && !arguments[i].tensor->storage->pending()) run.check_input(i);
}

}  // namespace

// -- what comes next

bool Batch::is_same(const Operand& known, const Tensor* t, bool records) {
  if (known.leaf) return known.leaf.get() == t;
  const Node* node = records && t->requires_grad ? t->history : nullptr;
  return known.storage.get() == t->storage && known.data == t->view.data && known.edge.node.get() == node;
}

// Whether a call is what comes after those that were followed; first: after none.
bool Batch::is_next(const SequenceCall& expected, const OpFunction* op, const Argument* arguments, int count,
                    bool first) const {
  if (expected.op != op || static_cast<int>(expected.arguments.size()) != count || expected.grad != grad_mode.enabled ||
      expected.inference != grad_mode.inference || expected.mode.device != call_mode.device ||
      expected.mode.autocast != call_mode.autocast || expected.float_type != default_float)
    return false;
  const bool records = !expected.plan->grad_inputs.empty();
  SmallVector<const Tensor*, 4> fresh;  // from outside, of this call
  const SequenceOperand* operand = expected.operands.data();
  for (int i = 0; i < count; ++i) {
    const Argument& a = arguments[i];
    if (a.kind != Argument::Kind::Tensor) {
      if (!same_argument(a, expected.arguments[i])) return false;
      continue;
    }
    if (expected.arguments[i].kind != Argument::Kind::Tensor) return false;
    const Tensor* t = a.tensor;
    const SequenceOperand& known = *operand++;
    if (expected.grad && t->requires_grad != known.requires_grad) return false;
    if (!known.view.same_geometry(t->view) || t->inference != grad_mode.inference) return false;
    if (t->extra && t->extra->base && t->extra->history_version != t->storage->version()) return false;
    if (known.call >= 0) {
      const DeferredTensor& deferred = deferred_[followed_.first_deferred[known.call] + known.output];
      if (t->storage != deferred.storage.get() || t->view.data != known.view.data) return false;
      if (!records || !t->requires_grad) continue;
      const RowNode* row = t->history ? t->history->as_row() : nullptr;
      if (!row || row->is_view() != known.is_view) return false;
      continue;
    }
    if (is_parameter(t) != known.is_parameter || t->storage->sharded() ||
        (t->storage->pending() && !holds(t->storage)) || t->storage->device() != expected.device)
      return false;
    if (known.same_as < 0) {
      fresh.push_back(t);
      continue;
    }
    const size_t before = first ? 0 : followed_.outside.size();
    const auto other = static_cast<size_t>(known.same_as);
    if (other < before ? !is_same(followed_.outside[other], t, records) : fresh[other - before] != t) return false;
  }
  const Frames frames;
  return !frames.at_end() && frames.code() == expected.code && frames.instruction() == expected.instruction;
}

bool Batch::predict(OpFunction* op, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple) {
  if (op->writes || defers_vertices) return false;
  const bool goes_on = sequence_ && !sequence_end_ && followed_.example == example;
  if (goes_on)
    for (const std::unique_ptr<SequenceNode>& node : sequence_->next)
      if (is_next(node->call, op, arguments, count, false))
        return follow(*node, arguments, count, outputs, returns_tuple);
  const auto* starts = static_cast<const SequenceStarts*>(op->starts);
  if (!starts) return false;
  for (const bool alone : {false, true})
    for (const std::unique_ptr<SequenceNode>& node : *starts) {
      if (node->is_alone() != alone || !is_next(node->call, op, arguments, count, true)) continue;
      end_sequence();
      return follow(*node, arguments, count, outputs, returns_tuple);
    }
  return false;
}

// Numbers of geometries are those of a batch.
void Batch::renumber(SequenceCall& expected) {
  if (expected.batch == serial_) return;
  expected.batch = serial_;
  expected.geometries.clear();
  for (const SequenceOperand& operand : expected.operands)
    expected.geometries.push_back(number_of(operand.view.restored()));
}

bool Batch::follow(SequenceNode& node, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple) {
  SequenceCall& expected = node.call;
  const Plan& plan = *expected.plan;
  if (plan.num_checks) {
    SmallVector<InputView, 8> inputs;
    inputs.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      if (arguments[i].kind == Argument::Kind::Tensor) {
        inputs[i].view = &arguments[i].tensor->view;
      } else {
        inputs[i].cell = reinterpret_cast<char*>(&arguments[i].integer);
        inputs[i].integer = arguments[i].integer;
      }
    }
    PlanRun run(plan, inputs.data());
    if (!run.guards_hold()) return false;
    check_inputs(plan, run, arguments, count);
  }
  renumber(expected);
  if (followed_.calls.empty()) {
    followed_.source = user_source();
    followed_.example = example;
  }
  const bool records = !plan.grad_inputs.empty();
  size_t position = 0;
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    Tensor* t = arguments[i].tensor;
    const SequenceOperand& known = expected.operands[position];
    if (known.call >= 0)
      followed_.rows.push_back(records && t->requires_grad ? t->history->as_row() : nullptr);
    else if (known.same_as < 0)
      followed_.outside.push_back(operand_of(t, records, expected.geometries[position]));
    ++position;
  }
  followed_.calls.push_back(&expected);
  followed_.first_deferred.push_back(static_cast<int32_t>(deferred_.size()));
  for (size_t k = 0; k < expected.outputs.size(); ++k) {
    const SequenceCall::Output& output = expected.outputs[k];
    outputs.push_back(
        defer_result(-1, static_cast<int32_t>(k), output.view, output.bytes, expected.device, output.wants_grad));
  }
  *returns_tuple = plan.returns_tuple;
  sequence_ = &node;
  sequence_end_ = node.end.get();
  return true;
}

// -- the end

void Batch::end_sequence() {
  const Sequence* end = std::exchange(sequence_end_, nullptr);
  sequence_ = nullptr;
  if (followed_.calls.empty()) return;
  if (!end || !collapse(const_cast<Sequence&>(*end))) make_calls();
  Py_XDECREF(std::exchange(followed_.source.code, nullptr));
  followed_.clear();
}

void Batch::forget_followed() {
  sequence_ = nullptr;
  sequence_end_ = nullptr;
  for (Operand& operand : followed_.outside) release(operand);
  Py_XDECREF(std::exchange(followed_.source.code, nullptr));
  followed_.clear();
}

// An operand that a call of the sequence gives; inside: its number among these.
Batch::Operand Batch::inside_operand(size_t call, size_t position, size_t inside) {
  SequenceCall& from = *followed_.calls[call];
  const SequenceOperand& known = from.operands[position];
  const DeferredTensor& deferred = deferred_[followed_.first_deferred[known.call] + known.output];
  renumber(from);  // another scope may have followed it meanwhile: an inner one, or one of another thread
  Operand operand;
  operand.storage = deferred.storage;
  operand.data = known.view.data;
  operand.detached = !known.requires_grad && deferred.rows;
  operand.geometry = from.geometries[position];
  if (RowNode* row = followed_.rows[inside]) operand.edge.node = Ref<Node>::share(row);
  use(operand);
  return operand;
}

Batch::Call& Batch::begin_call(const SequenceCall& from, int32_t of_example) {
  Call& call = begin_call(from.op, from.plan);
  call.example = of_example;
  call.mode = from.mode;
  call.inference = from.inference;
  call.grad = from.grad;
  call.float_type = from.float_type;
  call.code = from.code;
  call.instruction = from.instruction;
  call.joins = from.joins;
  call.source = from.source;
  Py_XINCREF(call.source.code);
  for (Argument a : from.arguments) {
    if (a.kind == Argument::Kind::Static) Py_XINCREF(a.object);
    arguments_.push_back(a);
  }
  call.num_arguments = static_cast<uint32_t>(from.arguments.size());
  call.num_operands = static_cast<uint32_t>(from.operands.size());
  return call;
}

// One of the calls, as it is deferred by itself.
void Batch::make_call(size_t i, Followed::Place& place) {
  const SequenceCall& from = *followed_.calls[i];
  const auto number = static_cast<int32_t>(calls_.size());
  Call& call = begin_call(from, followed_.example);
  for (size_t p = 0; p < from.operands.size(); ++p) {
    const SequenceOperand& known = from.operands[p];
    if (known.call >= 0) {
      operands_.push_back(inside_operand(i, p, place.inside++));
    } else if (known.same_as >= 0) {
      operands_.push_back(followed_.outside[known.same_as]);
      use(operands_.back());
    } else {
      operands_.push_back(followed_.outside[place.outside++]);
      use(operands_.back());
    }
  }
  Signature key;
  describe(call, key);
  call.kind = kinds_.number(key.data(), key.size(), key.hash());
  call.first_deferred = followed_.first_deferred[i];
  for (size_t o = 0; o < from.outputs.size(); ++o) deferred_[call.first_deferred + o].call = number;
}

void Batch::make_calls() {
  Followed::Place place;
  for (size_t i = 0; i < followed_.calls.size(); ++i) make_call(i, place);
  for (Operand& operand : followed_.outside) release(operand);
}

// -- one call in place of many

// False where somebody holds a view that is used inside: its gradient may be asked for.
bool Batch::collapse(Sequence& sequence) {
  for (const RowNode* row : followed_.rows)
    if (row && row->is_view() && row->held()) return false;
  const size_t count = sequence.calls.size();
  if (!sequence.all_members) make_others(sequence);
  Call cell;  // the line is that of the first call
  const SequenceCall& first = *sequence.calls[0];
  cell.op = nullptr;
  cell.plan = sequence.calls.back()->plan;
  cell.sequence = &sequence;
  cell.example = followed_.example;
  cell.mode = first.mode;
  cell.inference = first.inference;
  cell.grad = first.grad;
  cell.source = std::exchange(followed_.source, Source());
  cell.first_operand = static_cast<int32_t>(operands_.size());
  cell.num_operands = static_cast<uint32_t>(sequence.taken.size());
  for (const Sequence::Taken& taken : sequence.taken) {
    if (taken.outside >= 0)
      operands_.push_back(std::move(followed_.outside[taken.outside]));
    else
      operands_.push_back(inside_operand(taken.call, taken.position, taken.inside));
  }
  if (!sequence.all_members)  // what only the others take
    for (Operand& operand : followed_.outside) release(operand);
  cell.first_argument = static_cast<int32_t>(arguments_.size());
  cell.kind = kind_of(sequence, cell);
  // What nobody holds any more is never computed by itself.
  const auto number = static_cast<int32_t>(calls_.size());
  auto next = static_cast<size_t>(followed_.first_deferred[0]);
  if (!sequence.all_members) next = static_cast<size_t>(followed_.first_deferred[count]);
  cell.first_deferred = static_cast<int32_t>(next);
  int32_t slot = 0;
  for (size_t i = 0; i < count; ++i) {
    if (sequence.cell_of[i] < 0) continue;
    for (size_t o = 0; o < sequence.calls[i]->outputs.size(); ++o, ++slot) {
      DeferredTensor& deferred = deferred_[followed_.first_deferred[i] + o];
      if (deferred.storage->references() == 1) {
        deferred = DeferredTensor();
        continue;
      }
      deferred.call = number;
      deferred.output = slot;
      deferred.storage->renumber(next);
      if (&deferred_[next] != &deferred) deferred_[next] = std::move(deferred);
      ++next;
    }
  }
  cell.num_results = static_cast<uint32_t>(next) - static_cast<uint32_t>(cell.first_deferred);
  deferred_.resize(next);
  calls_.push_back(std::move(cell));
  ++waiting_;
  return true;
}

// Calls between those of a cell are deferred before it, with their results in front.
void Batch::make_others(const Sequence& sequence) {
  const auto first = static_cast<size_t>(followed_.first_deferred[0]);
  std::vector<DeferredTensor> moved(std::make_move_iterator(deferred_.begin() + static_cast<std::ptrdiff_t>(first)),
                                    std::make_move_iterator(deferred_.end()));
  deferred_.resize(first);
  std::vector<int32_t> place(sequence.calls.size() + 1);
  for (const bool members : {false, true}) {
    for (size_t i = 0; i < sequence.calls.size(); ++i) {
      if ((sequence.cell_of[i] >= 0) != members) continue;
      place[i] = static_cast<int32_t>(deferred_.size());
      for (size_t o = 0; o < sequence.calls[i]->outputs.size(); ++o) {
        DeferredTensor& deferred = moved[static_cast<size_t>(followed_.first_deferred[i]) - first + o];
        deferred.storage->renumber(deferred_.size());
        deferred_.push_back(std::move(deferred));
      }
    }
    if (!members) place.back() = static_cast<int32_t>(deferred_.size());  // where those of the cell begin
  }
  followed_.first_deferred = std::move(place);
  Followed::Place at;
  for (size_t i = 0; i < sequence.calls.size(); ++i) {
    if (sequence.cell_of[i] < 0) {
      make_call(i, at);
      continue;
    }
    for (const SequenceOperand& operand : sequence.calls[i]->operands) {
      at.inside += operand.call >= 0;
      at.outside += operand.call < 0 && operand.same_as < 0;
    }
  }
}

// Cells of one sequence with the same parameters.
int32_t Batch::kind_of(Sequence& sequence, const Call& cell) {
  const auto parameter = [&](int32_t at) { return operands_[cell.first_operand + at].leaf.get(); };
  const std::vector<int32_t>& list = sequence.parameters;
  bool known = sequence.batch == serial_;
  for (size_t i = 0; known && i < list.size(); ++i) known = sequence.known[i] == parameter(list[i]);
  if (known) return sequence.kind;
  sequence.batch = serial_;
  sequence.known.clear();
  Signature key;
  key.value(&sequence);
  for (int32_t at : list) {
    sequence.known.push_back(parameter(at));
    key.value(sequence.known.back());
  }
  return sequence.kind = kinds_.number(key.data(), key.size(), key.hash());
}

}  // namespace tandem
