// Tensors joined along the first axis: deferred without a plan of their own.
//
// Note [Joined rows]
// td.cat and td.stack of the states of a vertex's children, or of all words of a sentence, have as many operands as the
// data says, and a plan is made for one number of operands. So tensors of one shape, joined along the first axis, are
// deferred as a call of another kind: nothing has to be computed, its operands are rows of the result. Where a cell
// takes the result, rows of all its members are gathered at once, as one operand of the cell's function, which is then
// the same for any number of them; where nothing else can, they are copied together. Gradients go back by the same rows
// (Note [Gradients of rows] in records.h). The plan of such a call is that of two of its operands: it says whether
// gradients are recorded, on what device, and the operator's name.
#include <algorithm>

#include "autobatch/batch.h"

namespace tandem {

namespace {

bool is_zero(const Argument& axis) {
  int overflow = 0;
  return axis.kind == Argument::Kind::Static && axis.object && PyLong_CheckExact(axis.object) &&
         PyLong_AsLongLongAndOverflow(axis.object, &overflow) == 0 && !overflow;
}

}  // namespace

// What a row is part of, with the axes of one member.
View Batch::joined_view(const View& row, const Joined& joined) {
  View v;
  v.data = nullptr;
  v.dtype = row.dtype;
  v.ndim = row.ndim + joined.new_axis;
  std::copy_n(row.shape, row.ndim, v.shape + joined.new_axis);
  const auto count = static_cast<int64_t>(joined.count);
  v.shape[0] = joined.new_axis ? count : count * row.shape[0];
  int64_t step = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    v.strides[i] = step;
    step *= v.shape[i];
  }
  return v;
}

bool Batch::join(OpFunction* op, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple) {
  if (op->joins == Joins::No || count < 3 || defers_vertices || call_mode.autocast) return false;
  if (arguments[0].kind != Argument::Kind::Count || arguments[0].integer != count - 2 || !is_zero(arguments[count - 1]))
    return false;
  for (int i = 1; i < count - 1; ++i)
    if (arguments[i].kind != Argument::Kind::Tensor) return false;
  const Tensor* first = arguments[1].tensor;
  const View& row = first->view;
  const bool new_axis = op->joins == Joins::Stack;
  if (row.ndim < (new_axis ? 0 : 1) || row.ndim + 2 > kMaxDims || row.numel() == 0) return false;
  const Tensor* recorded = first;
  for (int i = 1; i < count - 1; ++i) {
    const Tensor* t = arguments[i].tensor;
    const View& v = t->view;
    if (v.dtype != row.dtype || v.ndim != row.ndim || !std::equal(v.shape, v.shape + v.ndim, row.shape) ||
        !v.is_contiguous() || t->storage->device() != first->storage->device() || t->storage->sharded() ||
        t->inference != grad_mode.inference || (t->storage->pending() && !holds(t->storage)) ||
        (t->extra && t->extra->base && t->extra->history_version != t->storage->version()))
      return false;
    if (t->requires_grad) recorded = t;
  }
  Argument two[] = {arguments[0], arguments[1], arguments[1], arguments[count - 1]};
  two[0].integer = 2;
  two[1].tensor = two[2].tensor = const_cast<Tensor*>(recorded);
  const Ref<Plan> plan = find_plan(op, two, 4, false);
  if (!plan->keep || plan->waits || plan->over_devices || plan->outputs.size() != 1) return false;
  end_sequence();
  const auto number = static_cast<int32_t>(calls_.size());
  const View v = joined_view(row, {static_cast<size_t>(count - 2), new_axis});
  Call& call = add_call(op, plan, arguments, count);
  call.joins = true;
  Signature key;
  describe(call, key);
  call.kind = kinds_.number(key.data(), key.size(), key.hash());
  call.first_deferred = static_cast<int32_t>(deferred_.size());
  SavedView result;
  result = v;
  outputs.push_back(defer_result(number, 0, result, checked_bytes(v.dtype, v.ndim, v.shape), plan->device,
                                 !plan->grad_inputs.empty()));
  *returns_tuple = plan->returns_tuple;
  return true;
}

// Joined by themselves: into memory of their own.
void Batch::run_joined(const std::vector<int32_t>& members) {
  const Call& call = calls_[members[0]];
  Rows rows;
  for (int32_t member : members)
    for (const Operand& operand : operands(calls_[member])) rows.push_back(&operand);
  TensorList blocks;
  blocks.push_back(gather(rows, true, joined_of(call), true));
  blocks[0]->inference = call.inference;
  hand_out(members, std::move(blocks), members.size() > 1);
}

// Shapes of what a call gives.
std::vector<View> Batch::result_views(const Call& call) {
  if (call.joins) return {joined_view(geometry_[operands(call)[0].geometry].restored(), joined_of(call))};
  std::vector<View> views, results;
  for (const Operand& operand : operands(call)) views.push_back(geometry_[operand.geometry].restored());
  const Some<Argument> given = arguments(call);
  std::vector<InputView> inputs(given.size());
  size_t position = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].kind == Argument::Kind::Tensor) {
      inputs[i].view = &views[position++];
    } else {
      inputs[i].cell = reinterpret_cast<char*>(&given[i].integer);
      inputs[i].integer = given[i].integer;
    }
  }
  PlanRun run(*call.plan, inputs.data());
  if (!run.guards_hold()) return results;
  for (const Plan::Output& output : call.plan->outputs)
    results.push_back(deferred_view(call.plan->values[output.value], run));
  return results;
}

}  // namespace tandem
