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

bool is_parameter(const Tensor* t) {
  return t->requires_grad && t->is_leaf();
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
    if (x.call != y.call || x.output != y.output || x.same_as != y.same_as || x.is_parameter != y.is_parameter ||
        x.requires_grad != y.requires_grad || x.view.data != y.view.data || !x.view.same_geometry(y.view.restored()))
      return false;
  }
  return true;
}

// -- learning them

// A call, without where its operands come from inside of a sequence. False where none may be known again.
bool Batch::describe(const Call& call, SequenceCall& to) {
  if (call.done || call.sequence || call.functional || call.random || call.of_vertex || !call.code) return false;
  to.op = call.op;
  to.plan = call.plan;
  to.code = call.code;
  to.instruction = call.instruction;
  to.source = call.source;
  to.mode = call.mode;
  to.inference = call.inference;
  to.grad = call.grad;
  to.joins = call.joins;
  to.float_type = call.float_type;
  to.device = call.plan->device;
  const bool records = !call.plan->grad_inputs.empty();
  for (const Operand& operand : operands(call)) {
    SequenceOperand& from = to.operands.emplace_back();
    from.view = geometry_[operand.geometry].restored();
    from.requires_grad = static_cast<bool>(operand.edge.node);
    const bool deferred = operand.storage && holds(operand.storage.get());
    if (!records && deferred)
      from.requires_grad = deferred_[operand.storage->number()].rows && !operand.detached;
    else if (!records && operand.leaf)
      from.requires_grad = operand.leaf->requires_grad;
    if (!deferred && operand.leaf) from.is_parameter = is_parameter(operand.leaf.get());
  }
  const Some<const Argument> given = {arguments_.data() + call.first_argument, call.num_arguments};
  to.arguments.assign(given.begin(), given.end());
  const std::vector<View> results = result_views(call);
  for (size_t o = 0; o < results.size(); ++o) {
    const View& v = results[o];
    SequenceCall::Output& result = to.outputs.emplace_back();
    result.view = v;
    result.bytes = checked_bytes(v.dtype, v.ndim, v.shape);
    result.wants_grad = records && call.plan->outputs[o].differentiable;
  }
  return !results.empty();
}

// Operands that calls from `first` on give. False where a call that is not of the cell takes from it.
bool Batch::find_inside(int32_t first, const std::vector<int32_t>& cell_of, std::vector<SequenceCall>& calls) const {
  for (size_t i = 0; i < calls.size(); ++i) {
    const Some<const Operand> list = operands(calls_[first + static_cast<int32_t>(i)]);
    for (size_t p = 0; p < list.size(); ++p) {
      const Operand& operand = list[p];
      if (!operand.storage || !holds(operand.storage.get())) continue;
      const DeferredTensor& deferred = deferred_[operand.storage->number()];
      if (deferred.call < first) continue;
      SequenceOperand& from = calls[i].operands[p];
      from.call = deferred.call - first;
      if (cell_of[i] < 0 && cell_of[from.call] >= 0) return false;
      const RowNode* row = operand.edge.node ? operand.edge.node->as_row() : nullptr;
      from.is_view = row && row->is_view();
      from.output = deferred.output;
      from.view.data = operand.data;
    }
  }
  return true;
}

// What the cell takes from outside, as its function does.
void Batch::describe_outside(const Unit& unit, Sequence& to) const {
  const int32_t first = unit.calls[0];
  int32_t num_operands = 0;
  for (const auto& [call, position] : unit.externals) {
    to.externals.emplace_back(call - first, position);
    const auto count = position < 0 ? static_cast<int32_t>(calls_[call].num_operands) : 1;
    to.operands.emplace_back(num_operands, count);
    num_operands += count;
  }
  to.taken.resize(num_operands);
  const std::vector<uint32_t>& words = cell_kinds_[unit.kind].words;
  size_t word = 0;
  to.outside_of.resize(to.cell_of.size());
  for (int32_t number : unit.calls) {
    ++word;  // the kind
    std::vector<int32_t>& outside = to.outside_of[number - first];
    if (calls_[number].joins) {
      outside.assign(calls_[number].num_operands, static_cast<int32_t>(words[word++]));
      continue;
    }
    for (size_t p = 0; p < calls_[number].num_operands; ++p) {
      const bool inside = is_inside(words[word]);
      outside.push_back(inside ? -1 : static_cast<int32_t>(words[word]));
      word += inside ? 3 : 1;
    }
  }
}

namespace {

// Which of the operands from outside are the same, and where the deferred call finds its own.
void place_operands(std::vector<SequenceCall>& calls, Sequence& to) {
  std::vector<int32_t> number_outside(to.externals.size(), -1);
  int32_t outside = 0, inside = 0;
  for (size_t i = 0; i < calls.size(); ++i)
    for (size_t p = 0; p < calls[i].operands.size(); ++p) {
      SequenceOperand& operand = calls[i].operands[p];
      const int32_t external = to.cell_of[i] < 0 ? -1 : to.outside_of[i][p];
      Sequence::Taken place;
      place.call = static_cast<int32_t>(i);
      place.position = static_cast<int32_t>(p);
      if (operand.call >= 0)
        place.inside = inside++;
      else if (external >= 0 && !calls[i].joins && number_outside[external] >= 0)
        operand.same_as = number_outside[external];
      else
        place.outside = outside++;
      if (external < 0 || operand.same_as >= 0) continue;
      if (!calls[i].joins) number_outside[external] = place.outside;
      const int32_t at = to.operands[external].first + (calls[i].joins ? place.position : 0);
      to.taken[at] = place;
      if (operand.is_parameter) to.parameters.push_back(at);
    }
}

// Results of the cell that its own calls take with gradients.
std::vector<bool> watched_in(const std::vector<SequenceCall>& calls, const std::vector<int32_t>& cell_of) {
  std::vector<bool> watched;
  std::vector<size_t> first_result(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    if (cell_of[i] < 0) continue;
    first_result[i] = watched.size();
    watched.resize(watched.size() + calls[i].outputs.size());
  }
  for (size_t i = 0; i < calls.size(); ++i)
    for (const SequenceOperand& operand : calls[i].operands)
      if (cell_of[i] >= 0 && operand.call >= 0 && cell_of[operand.call] >= 0 && operand.requires_grad)
        watched[first_result[operand.call] + operand.output] = true;
  return watched;
}

// The node of a call after others; made where there is none.
SequenceNode& node_of(SequenceCall& call, SequenceStarts& among) {
  for (const std::unique_ptr<SequenceNode>& node : among)
    if (same_call(node->call, call)) return *node;
  SequenceNode& node = *among.emplace_back(std::make_unique<SequenceNode>());
  node.call = std::move(call);
  Py_INCREF(node.call.op);
  Py_XINCREF(node.call.source.code);
  for (Argument& a : node.call.arguments)
    if (a.kind == Argument::Kind::Static) Py_XINCREF(a.object);
  return node;
}

SequenceStarts& starts_of(OpFunction* op) {
  if (!op->starts) op->starts = new SequenceStarts();
  return *static_cast<SequenceStarts*>(op->starts);
}

}  // namespace

// The calls from the first of a cell to its last, if the others among them take nothing from it.
bool Batch::learn(const Unit& unit, const std::shared_ptr<CellFunction>& function) {
  const int32_t first = unit.calls[0], last = unit.calls[unit.calls.size() - 1];
  if (num_sequences >= kMostSequences || last - first >= static_cast<int32_t>(2 * kMostCellCalls)) return false;
  auto made = std::make_unique<Sequence>();
  made->function = function;
  made->cell_of.assign(last - first + 1, -1);
  for (size_t i = 0; i < unit.calls.size(); ++i) made->cell_of[unit.calls[i] - first] = static_cast<int32_t>(i);
  made->all_members = unit.calls.size() == made->cell_of.size();
  std::vector<SequenceCall> calls(made->cell_of.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!describe(calls_[first + static_cast<int32_t>(i)], calls[i])) return false;
    if (made->cell_of[i] >= 0) made->records |= !calls[i].plan->grad_inputs.empty();
  }
  if (!find_inside(first, made->cell_of, calls)) return false;
  describe_outside(unit, *made);
  place_operands(calls, *made);
  made->watched = watched_in(calls, made->cell_of);
  SequenceStarts* among = &starts_of(calls[0].op);
  SequenceNode* node = nullptr;
  for (SequenceCall& call : calls) {
    node = &node_of(call, *among);
    made->calls.push_back(&node->call);
    among = &node->next;
  }
  if (node->end) return true;
  node->end = std::move(made);
  ++num_sequences;
  return true;
}

// A call that comes often, and in no sequence: it is known again by itself.
void Batch::learn_alone(int32_t number) {
  SequenceCall call;
  if (num_sequences >= kMostSequences || !describe(calls_[number], call)) return;
  const Some<const Operand> list = std::as_const(*this).operands(calls_[number]);
  int32_t outside = 0;
  std::vector<int32_t> number_outside(list.size());
  for (size_t p = 0; p < list.size(); ++p) {
    for (size_t q = 0; q < p && call.operands[p].same_as < 0; ++q)
      if (is_one_operand(list[p], list[q])) call.operands[p].same_as = number_outside[q];
    number_outside[p] = call.operands[p].same_as >= 0 ? call.operands[p].same_as : outside++;
  }
  SequenceStarts& starts = starts_of(call.op);
  const size_t before = starts.size();
  node_of(call, starts);
  num_sequences += starts.size() - before;
}

}  // namespace tandem
