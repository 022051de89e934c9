#include "autobatch/sequences.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "autobatch/batch.h"
#include "check.h"
#include "frames.h"
#include "tensor/default_dtype.h"

namespace tandem {

namespace {

View unsaved(const SavedView& saved) {
  View v;
  v.data = saved.data;
  v.dtype = saved.dtype;
  v.ndim = saved.ndim;
  std::copy_n(saved.shape(), saved.ndim, v.shape);
  std::copy_n(saved.strides(), saved.ndim, v.strides);
  return v;
}

bool same_geometry(const SavedView& a, const View& b) {
  return a.dtype == b.dtype && a.ndim == b.ndim && std::equal(a.shape(), a.shape() + a.ndim, b.shape) &&
         std::equal(a.strides(), a.strides() + a.ndim, b.strides);
}

bool is_parameter(const Tensor* t) {
  return t->requires_grad && t->is_leaf();
}

std::vector<InputView> inputs_of(std::vector<View>& views, Argument* arguments, size_t count) {
  std::vector<InputView> inputs(count);
  size_t position = 0;
  for (size_t i = 0; i < count; ++i) {
    if (arguments[i].kind == Argument::Kind::Tensor) {
      inputs[i].view = &views[position++];
    } else {
      inputs[i].cell = reinterpret_cast<char*>(&arguments[i].integer);
      inputs[i].integer = arguments[i].integer;
    }
  }
  return inputs;
}

size_t num_sequences = 0;  // GIL

}  // namespace

bool same_argument(const Argument& a, const Argument& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Argument::Kind::Tensor:
    case Argument::Kind::None:
      return true;
    case Argument::Kind::Bool:
      return a.truth == b.truth;
    case Argument::Kind::Complex:
      return std::memcmp(&a.real, &b.real, sizeof a.real) == 0 &&
             std::memcmp(&a.imaginary, &b.imaginary, sizeof a.imaginary) == 0;
    case Argument::Kind::Static:
      if (a.object == b.object) return true;
      return a.object && b.object && PyLong_CheckExact(a.object) && PyLong_CheckExact(b.object) &&
             PyObject_RichCompareBool(a.object, b.object, Py_EQ) == 1;
    case Argument::Kind::Seed:
    case Argument::Kind::Offset:
      return false;
    default:
      return a.integer == b.integer;
  }
}

bool same_call(const SequenceCall& a, const SequenceCall& b) {
  if (a.op != b.op || a.plan.get() != b.plan.get() || a.code != b.code || a.instruction != b.instruction ||
      std::memcmp(&a.mode, &b.mode, sizeof a.mode) != 0 || a.inference != b.inference || a.grad != b.grad ||
      a.joins != b.joins || a.float_type != b.float_type || a.arguments.size() != b.arguments.size() ||
      a.operands.size() != b.operands.size())
    return false;
  for (size_t i = 0; i < a.arguments.size(); ++i)
    if (!same_argument(a.arguments[i], b.arguments[i])) return false;
  for (size_t i = 0; i < a.operands.size(); ++i) {
    const SequenceOperand &x = a.operands[i], &y = b.operands[i];
    if (x.call != y.call || x.output != y.output || x.is_parameter != y.is_parameter ||
        x.requires_grad != y.requires_grad || x.view.data != y.view.data || !same_geometry(x.view, unsaved(y.view)))
      return false;
  }
  return true;
}

// -- learning them

// The calls from the first of a cell to its last, if the others among them take nothing from it.
void Batch::learn(const Unit& unit, const std::shared_ptr<CellFunction>& function) {
  const int32_t first = unit.calls.front(), last = unit.calls.back();
  if (num_sequences >= kMostSequences || last - first >= static_cast<int32_t>(2 * kMostCellCalls)) return;
  auto made = std::make_unique<Sequence>();
  made->function = function;
  made->cell_of.assign(last - first + 1, -1);
  for (size_t i = 0; i < unit.calls.size(); ++i) made->cell_of[unit.calls[i] - first] = static_cast<int32_t>(i);
  std::vector<SequenceCall> calls(last - first + 1);
  for (int32_t number = first; number <= last; ++number) {
    const Call& call = calls_[number];
    if (call.done || call.sequence || call.functional || call.random || call.of_vertex || !call.code) return;
    SequenceCall& to = calls[number - first];
    to.op = call.op;
    to.plan = call.plan;
    to.code = call.code;
    to.instruction = call.instruction;
    to.source = call.source;
    to.mode = call.mode;
    to.inference = call.inference;
    to.grad = call.grad;
    to.joins = call.joins;
    to.float_type = default_float;
    const bool records = !call.plan->grad_inputs.empty();
    if (made->cell_of[number - first] >= 0) made->records |= records;
    for (const Operand& operand : operands(call)) {
      SequenceOperand& from = to.operands.emplace_back();
      from.view = unsaved(geometry_[operand.geometry]);
      from.requires_grad = static_cast<bool>(operand.edge.node);
      if (operand.storage && holds(operand.storage.get())) {
        const Promise& promise = promises_[operand.storage->number()];
        if (!records) from.requires_grad = static_cast<bool>(promise.rows);
        if (promise.call >= first) {
          if (made->cell_of[number - first] < 0 && made->cell_of[promise.call - first] >= 0) return;
          from.call = promise.call - first;
          RowNode* row = operand.edge.node ? operand.edge.node->as_row() : nullptr;
          from.is_view = row && row->is_view();
          from.output = promise.output;
          from.view.data = operand.data;
        }
      } else if (operand.leaf) {
        if (!records) from.requires_grad = operand.leaf->requires_grad;
        from.is_parameter = is_parameter(operand.leaf.get());
      }
    }
    const Some<Argument> given = arguments(calls_[number]);
    to.arguments.assign(given.begin(), given.end());
    to.device = call.plan->device;
    const std::vector<View> results = result_views(call);
    if (results.empty()) return;
    for (size_t o = 0; o < results.size(); ++o) {
      const View& v = results[o];
      SequenceCall::Output& result = to.outputs.emplace_back();
      result.view = v;
      result.bytes = checked_bytes(v.dtype, v.ndim, v.shape);
      result.wants_grad = records && call.plan->outputs[o].differentiable;
    }
  }
  int32_t num_operands = 0;
  for (const auto& [call, position] : unit.externals) {
    made->externals.emplace_back(call - first, position);
    const auto count = position < 0 ? static_cast<int32_t>(calls_[call].num_operands) : 1;
    made->operands.emplace_back(num_operands, count);
    num_operands += count;
  }
  const std::vector<uint32_t>& words = cell_kinds_[unit.kind].words;
  size_t word = 0;
  made->outside_of.resize(calls.size());
  for (int32_t number : unit.calls) {
    ++word;  // the kind
    if (calls_[number].joins) {
      made->outside_of[number - first].assign(calls_[number].num_operands, static_cast<int32_t>(words[word++]));
      continue;
    }
    for (size_t p = 0; p < calls_[number].num_operands; ++p) {
      const bool inside = is_inside(words[word]);
      made->outside_of[number - first].push_back(inside ? -1 : static_cast<int32_t>(words[word]));
      word += inside ? 3 : 1;
    }
  }

  std::vector<size_t> first_result(calls.size());
  for (int32_t number : unit.calls) {
    first_result[number - first] = made->watched.size();
    made->watched.resize(made->watched.size() + calls[number - first].outputs.size());
  }
  for (int32_t number : unit.calls)
    for (const SequenceOperand& operand : calls[number - first].operands)
      if (operand.call >= 0 && made->cell_of[operand.call] >= 0 && operand.requires_grad)
        made->watched[first_result[operand.call] + operand.output] = true;
  if (!calls[0].op->starts) calls[0].op->starts = new SequenceStarts();
  std::vector<std::unique_ptr<SequenceNode>>* among = static_cast<SequenceStarts*>(calls[0].op->starts);
  SequenceNode* node = nullptr;
  for (SequenceCall& call : calls) {
    const auto known = std::find_if(among->begin(), among->end(),
                                    [&](const std::unique_ptr<SequenceNode>& n) { return same_call(n->call, call); });
    if (known != among->end()) {
      node = known->get();
    } else {
      node = among->emplace_back(std::make_unique<SequenceNode>()).get();
      node->call = std::move(call);
      Py_INCREF(node->call.op);
      Py_XINCREF(node->call.source.code);
      for (Argument& a : node->call.arguments)
        if (a.kind == Argument::Kind::Static) Py_XINCREF(a.object);
    }
    made->calls.push_back(&node->call);
    among = &node->next;
  }
  if (node->end) return;
  node->end = std::move(made);
  ++num_sequences;
}

// -- following them

// Numbers are those of a batch, and so are parameters: the first that come.
void Batch::renumber(SequenceCall& expected, const Argument* arguments) {
  if (expected.batch == serial_) return;
  expected.batch = serial_;
  expected.geometries.clear();
  for (SequenceOperand& operand : expected.operands) {
    while (arguments->kind != Argument::Kind::Tensor) ++arguments;
    operand.parameter = (arguments++)->tensor;
    expected.geometries.push_back(number_of(unsaved(operand.view)));
  }
  expected.kind = -1;
}

bool Batch::is_next(const SequenceCall& expected, const OpFunction* op, const Argument* arguments, int count) const {
  if (expected.op != op || static_cast<int>(expected.arguments.size()) != count || expected.grad != grad_mode.enabled ||
      expected.inference != grad_mode.inference || expected.mode.device != call_mode.device ||
      expected.mode.autocast != call_mode.autocast || expected.float_type != default_float)
    return false;
  size_t position = 0;
  for (int i = 0; i < count; ++i) {
    const Argument& a = arguments[i];
    if (a.kind != Argument::Kind::Tensor) {
      if (!same_argument(a, expected.arguments[i])) return false;
      continue;
    }
    if (expected.arguments[i].kind != Argument::Kind::Tensor) return false;
    const Tensor* t = a.tensor;
    const SequenceOperand& operand = expected.operands[position++];
    if (expected.grad && t->requires_grad != operand.requires_grad) return false;
    if (!same_geometry(operand.view, t->view) || t->inference != grad_mode.inference) return false;
    if (t->extra && t->extra->base && t->extra->history_version != t->storage->version()) return false;
    if (operand.call >= 0) {
      const int32_t promise = calls_[sequence_first_ + operand.call].first_promise + operand.output;
      if (t->storage != promises_[promise].storage.get() || t->view.data != operand.view.data) return false;
      RowNode* row = expected.grad && t->requires_grad && t->history ? t->history->as_row() : nullptr;
      if (row && !expected.plan->grad_inputs.empty() && row->is_view() != operand.is_view) return false;
    } else if (is_parameter(t) != operand.is_parameter || t->storage->sharded() ||
               (t->storage->pending() && !holds(t->storage)) || t->storage->device() != expected.device ||
               (operand.is_parameter && expected.batch == serial_ && t != operand.parameter)) {
      return false;
    }
  }
  const Frames frames;
  return !frames.at_end() && frames.code() == expected.code && frames.instruction() == expected.instruction;
}

bool Batch::predict(OpFunction* op, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple) {
  if (sequence_end_) collapse();
  if (op->writes || defers_vertices) return false;
  std::vector<std::unique_ptr<SequenceNode>>* among = sequence_ ? &sequence_->next : nullptr;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (among) {
      for (const std::unique_ptr<SequenceNode>& node : *among)
        if (is_next(node->call, op, arguments, count)) return follow(*node, arguments, count, outputs, returns_tuple);
    }
    sequence_ = nullptr;
    sequence_first_ = static_cast<int32_t>(calls_.size());
    among = attempt == 0 ? static_cast<SequenceStarts*>(op->starts) : nullptr;
  }
  return false;
}

bool Batch::follow(SequenceNode& node, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple) {
  SequenceCall& expected = node.call;
  const Plan& plan = *expected.plan;
  if (plan.num_checks) {
    std::vector<View> views;
    for (int i = 0; i < count; ++i)
      if (arguments[i].kind == Argument::Kind::Tensor) views.push_back(arguments[i].tensor->view);
    const std::vector<InputView> inputs = inputs_of(views, arguments, static_cast<size_t>(count));
    PlanRun run(plan, inputs.data());
    if (!run.guards_hold()) return false;
    for (int i = 0; i < count; ++i)
      if (arguments[i].kind == Argument::Kind::Tensor && !arguments[i].tensor->storage->pending()) run.check_input(i);
  }
  renumber(expected, arguments);
  const auto number = static_cast<int32_t>(calls_.size());
  Call& call = begin_call(expected.op, expected.plan);
  call.code = expected.code;
  call.instruction = expected.instruction;
  call.joins = expected.joins;
  if (!sequence_ || sequence_first_ == number) call.source = user_source();
  const bool records = !plan.grad_inputs.empty();
  size_t position = 0;
  for (int i = 0; i < count; ++i) {
    Argument& a = arguments_.emplace_back(arguments[i]);
    if (a.kind == Argument::Kind::Static) Py_XINCREF(a.object);
    if (a.kind == Argument::Kind::Tensor) {
      operands_.push_back(operand_of(a.tensor, records, expected.geometries[position++]));
      a.tensor = nullptr;
    }
  }
  call.num_operands = static_cast<uint32_t>(position);
  call.num_arguments = static_cast<uint32_t>(count);
  if (expected.kind < 0) {
    Signature key;
    describe(call, key);
    expected.kind = kinds_.number(key.data(), key.size(), key.hash());
  }
  call.kind = expected.kind;
  call.first_promise = static_cast<int32_t>(promises_.size());
  for (size_t k = 0; k < expected.outputs.size(); ++k) {
    const SequenceCall::Output& output = expected.outputs[k];
    outputs.push_back(promise(number, static_cast<int32_t>(k), unsaved(output.view), output.bytes, expected.device,
                              output.wants_grad));
  }
  *returns_tuple = plan.returns_tuple;
  sequence_ = &node;
  if (node.end) sequence_end_ = node.end.get();
  return true;
}

// -- one call in place of many

void Batch::collapse() {
  Sequence& sequence = *std::exchange(sequence_end_, nullptr);
  sequence_ = nullptr;
  const int32_t first = sequence_first_;
  const size_t count = sequence.calls.size();
  if (calls_.size() != first + count) return;
  for (size_t i = 0; i < count; ++i) {
    if (calls_[first + i].example != calls_[first].example) return;
    if (sequence.cell_of[i] < 0) continue;
    const Some<Operand> list = operands(calls_[first + i]);
    for (size_t p = 0; p < list.size(); ++p) {
      const int32_t from = sequence.calls[i]->operands[p].call;
      if (from < 0 || sequence.cell_of[from] < 0) continue;
      const RowNode* row = list[p].edge.node ? list[p].edge.node->as_row() : nullptr;
      if (row && row->is_view() && row->held()) return;
    }
  }
  Collapsed& kept = collapsed_;
  kept.clear();
  const auto first_operand = static_cast<size_t>(calls_[first].first_operand);
  const auto first_argument = static_cast<size_t>(calls_[first].first_argument);
  const auto first_promise = static_cast<size_t>(calls_[first].first_promise);
  Call cell;  // the line is that of the first call
  cell.op = nullptr;
  cell.plan = sequence.calls.back()->plan;
  cell.sequence = &sequence;
  cell.example = calls_[first].example;
  cell.mode = calls_[first].mode;
  cell.inference = calls_[first].inference;
  cell.grad = calls_[first].grad;
  cell.source = calls_[first].source;
  Py_XINCREF(cell.source.code);
  for (const auto& [call, position] : sequence.externals) {
    const Some<Operand> list = operands(calls_[first + call]);
    if (position >= 0)
      kept.operands.push_back(std::move(list[position]));
    else
      for (Operand& operand : list) kept.operands.push_back(std::move(operand));
  }
  const size_t num_operands = kept.operands.size();
  for (size_t i = 0; i < count; ++i) {
    Call& call = calls_[first + i];
    const bool member = sequence.cell_of[i] >= 0;
    for (Operand& operand : operands(call)) {
      if (member) {
        release(operand);
        operand = Operand();
      } else {
        kept.operands.push_back(std::move(operand));
      }
    }
    for (Argument& a : arguments(call)) {
      if (!member)
        kept.arguments.push_back(a);
      else if (a.kind == Argument::Kind::Static)
        Py_CLEAR(a.object);
    }
    if (!member) continue;
    Py_CLEAR(call.op);
    Py_XDECREF(std::exchange(call.source.code, nullptr));
    --waiting_;
  }
  // What nobody holds any more is never computed by itself.
  int32_t slot = 0;
  for (size_t i = 0; i < count; ++i) {
    Call& call = calls_[first + i];
    const size_t results = sequence.calls[i]->outputs.size();
    for (size_t o = 0; o < results; ++o) {
      Promise& promise = promises_[call.first_promise + o];
      if (sequence.cell_of[i] < 0) {
        kept.promises.push_back(std::move(promise));
      } else if (promise.storage->references() > 1) {
        sequence.function->add_output(sequence.cell_of[i], o);
        promise.output = slot + static_cast<int32_t>(o);
        kept.results.push_back(std::move(promise));
      }
    }
    if (sequence.cell_of[i] >= 0) slot += static_cast<int32_t>(results);
    if (sequence.cell_of[i] < 0) kept.calls.push_back(std::move(call));
  }
  calls_.resize(first);
  operands_.resize(first_operand);
  arguments_.resize(first_argument);
  promises_.resize(first_promise);
  size_t operand = num_operands, argument = 0, promise = 0;
  const auto add_promise = [&](Promise& p) {
    p.call = static_cast<int32_t>(calls_.size());
    p.storage->renumber(promises_.size());
    promises_.push_back(std::move(p));
  };
  for (Call& call : kept.calls) {
    call.first_operand = static_cast<int32_t>(operands_.size());
    call.first_argument = static_cast<int32_t>(arguments_.size());
    call.first_promise = static_cast<int32_t>(promises_.size());
    for (uint32_t p = 0; p < call.num_operands; ++p) operands_.push_back(std::move(kept.operands[operand++]));
    for (uint32_t p = 0; p < call.num_arguments; ++p) arguments_.push_back(kept.arguments[argument++]);
    for (size_t o = 0; o < call.plan->outputs.size(); ++o) add_promise(kept.promises[promise++]);
    calls_.push_back(std::move(call));
  }
  cell.first_operand = static_cast<int32_t>(operands_.size());
  cell.num_operands = static_cast<uint32_t>(num_operands);
  cell.first_argument = static_cast<int32_t>(arguments_.size());
  cell.first_promise = static_cast<int32_t>(promises_.size());
  cell.num_results = static_cast<uint32_t>(kept.results.size());
  for (size_t e = 0; e < num_operands; ++e) operands_.push_back(std::move(kept.operands[e]));
  for (Promise& p : kept.results) add_promise(p);
  if (sequence.batch != serial_) {
    sequence.batch = serial_;
    Signature key;
    key.value(&sequence);
    sequence.kind = kinds_.number(key.data(), key.size(), key.hash());
  }
  cell.kind = sequence.kind;
  calls_.push_back(std::move(cell));
  ++waiting_;
  kept.clear();
}

// -- running them

// Whether gradients must not pass by a result.
bool Batch::is_watched(const Call& cell) const {
  for (uint32_t i = 0; i < cell.num_results; ++i) {
    const Promise& promise = promises_[cell.first_promise + i];
    if (!cell.sequence->watched[promise.output]) continue;
    for (const RowNode* row = promise.rows.get(); row; row = row->next.get())
      if (row->held()) return true;
  }
  return false;
}

void Batch::run_expanded(const std::vector<int32_t>& members) {
  std::vector<Unit> units;
  for (int32_t member : members) units.push_back(expanded(member));
  std::vector<const Unit*> list;
  for (const Unit& unit : units) list.push_back(&unit);
  run_by_call(list);
}

void Batch::run_sequences(const std::vector<int32_t>& given) {
  std::vector<int32_t> members, watched;
  for (int32_t member : given) (is_watched(calls_[member]) ? watched : members).push_back(member);
  if (!watched.empty()) run_expanded(watched);
  if (members.empty()) return;
  const Sequence& sequence = *calls_[members[0]].sequence;
  CellFunction& function = *sequence.function;
  CellGroup group;
  group.members = members.size();
  group.records = sequence.records;
  group.rows.resize(sequence.externals.size());
  group.joined.resize(sequence.externals.size());
  for (size_t e = 0; e < group.rows.size(); ++e) {
    const auto& [call, position] = sequence.externals[e];
    const auto& [first, count] = sequence.operands[e];
    if (position < 0) group.joined[e] = {static_cast<size_t>(count), sequence.calls[call]->op->joins == Joins::Stack};
    group.rows[e].reserve(members.size() * count);
    for (int32_t member : members)
      for (int32_t i = 0; i < count; ++i) group.rows[e].push_back(&operands(calls_[member])[first + i]);
  }
  for (size_t i = 0; i < sequence.calls.size(); ++i) {
    if (sequence.cell_of[i] < 0) continue;
    for (const Argument& a : sequence.calls[i]->arguments) {
      if (is_number(a.kind)) group.numbers.push_back(a);
      if (a.kind == Argument::Kind::Int) group.ints.push_back(a);
    }
  }
  std::vector<std::vector<int32_t>> parts;
  TensorList blocks;
  if (!call_cells(function, calls_[members[0]], group, blocks, parts)) {
    if (parts.empty()) return run_expanded(members);
    for (const std::vector<int32_t>& part : parts) {
      std::vector<int32_t> some;
      for (int32_t member : part) some.push_back(members[member]);
      run_sequences(some);
    }
    return;
  }
  std::vector<PromiseRows> results;
  int32_t slot = 0;
  for (const CellFunction::Call& call : function.calls)
    for (size_t o = 0; o < call.outputs.size(); ++o, ++slot) {
      if (!call.outputs[o]) continue;
      PromiseRows& list = results.emplace_back();
      for (int32_t member : members) {
        const int32_t first = calls_[member].first_promise,
                      end = first + static_cast<int32_t>(calls_[member].num_results);
        int32_t p = first;
        while (p < end && promises_[p].output != slot) ++p;
        list.push_back(p < end ? p : -1);
      }
    }
  fulfil(results, blocks, true, &function);
  for (int32_t member : members) finish(calls_[member]);
  calls_run += static_cast<int64_t>(members.size() * function.calls.size());
}

// The calls of a cell that were made one, apart again: where one of them fails, or their function cannot be made.
Batch::Unit Batch::expanded(int32_t number) {
  Unit unit;
  const Sequence& sequence = *calls_[number].sequence;
  std::vector<int32_t> number_of_call(sequence.calls.size(), -1);
  int32_t slot = 0;
  for (size_t i = 0; i < sequence.calls.size(); ++i) {
    if (sequence.cell_of[i] < 0) continue;
    SequenceCall& from = *sequence.calls[i];
    TD_CHECK(from.batch == serial_, "a cell of another batch");
    const auto made = static_cast<int32_t>(calls_.size());
    number_of_call[i] = made;
    unit.calls.push_back(made);
    begin_call(from.op, from.plan);
    const Call& cell = calls_[number];
    Call& call = calls_[made];
    call.example = cell.example;
    call.mode = from.mode;
    call.inference = from.inference;
    call.grad = from.grad;
    call.joins = from.joins;
    call.source = from.source;
    Py_XINCREF(call.source.code);
    for (Argument a : from.arguments) {
      if (a.kind == Argument::Kind::Static) Py_XINCREF(a.object);
      arguments_.push_back(a);
    }
    call.num_arguments = static_cast<uint32_t>(from.arguments.size());
    call.num_operands = static_cast<uint32_t>(from.operands.size());
    for (size_t p = 0; p < from.operands.size(); ++p) {
      const SequenceOperand& source = from.operands[p];
      Operand operand;
      operand.geometry = from.geometries[p];
      if (source.call >= 0 && sequence.cell_of[source.call] >= 0) {
        Promise& promise = promises_[calls_[number_of_call[source.call]].first_promise + source.output];
        operand.storage = promise.storage;
        operand.data = source.view.data;
        ++promise.uses;
        if (source.requires_grad && !from.plan->grad_inputs.empty()) {
          RowNode* whole = promise.rows.get();
          while (whole->next) whole = whole->next.get();  // views come before what they look at
          if (!source.is_view) {
            ++whole->uses;
            operand.edge.node = Ref<Node>::share(whole);
            operands_.push_back(std::move(operand));
            continue;
          }
          auto base = Ref<RowNode>::share(whole);
          auto row =
              Ref<RowNode>::adopt(new RowNode(whole->output(), unsaved(source.view), whole->bytes(), std::move(base)));
          ++whole->uses;
          row->uses = 2;  // the list's, and the operand's
          operand.edge.node = Ref<Node>::share(row.get());
          row->next = std::move(promise.rows);
          promise.rows = std::move(row);
        }
      } else {
        const int32_t e = sequence.outside_of[i][p];
        const auto which = sequence.operands[e].first + (from.joins ? static_cast<int32_t>(p) : 0);
        operand = operands_[calls_[number].first_operand + which];
        if (RowNode* row = operand.edge.node ? operand.edge.node->as_row() : nullptr) ++row->uses;
        if (operand.storage && holds(operand.storage.get())) ++promises_[operand.storage->number()].uses;
      }
      operands_.push_back(std::move(operand));
    }
    Signature key;
    describe(calls_[made], key);
    calls_[made].kind = kinds_.number(key.data(), key.size(), key.hash());
    calls_[made].first_promise = static_cast<int32_t>(promises_.size());
    for (size_t o = 0; o < from.outputs.size(); ++o, ++slot) {
      const int32_t first = calls_[number].first_promise,
                    end = first + static_cast<int32_t>(calls_[number].num_results);
      int32_t p = first;
      while (p < end && promises_[p].output != slot) ++p;
      if (p == end) {
        promise(made, static_cast<int32_t>(o), unsaved(from.outputs[o].view), from.outputs[o].bytes, from.device,
                from.outputs[o].wants_grad);
        continue;
      }
      Promise moved = std::move(promises_[p]);
      promises_[p] = Promise();
      promises_[p].output = -1;
      moved.call = made;
      moved.output = static_cast<int32_t>(o);
      moved.storage->renumber(promises_.size());
      promises_.push_back(std::move(moved));
    }
  }
  finish(calls_[number]);
  return unit;
}

}  // namespace tandem
