// Cells that calls of a sequence became, run; or taken apart again.
#include <utility>

#include "autobatch/batch.h"
#include "check.h"

namespace tandem {

// Whether gradients must not pass by a result.
bool Batch::is_watched(const Call& cell) const {
  for (uint32_t i = 0; i < cell.num_results; ++i) {
    const DeferredTensor& deferred = deferred_[cell.first_deferred + i];
    if (!cell.sequence->watched[deferred.output]) continue;
    for (const RowNode* row = deferred.rows.get(); row; row = row->next.get())
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

// Results that are still wanted: variables of the function that made the calls have gone by now.
void Batch::mark_outputs(const std::vector<int32_t>& members, CellFunction& function) const {
  SmallVector<std::pair<size_t, size_t>, 16> made;  // by slot: (call, output)
  for (size_t i = 0; i < function.calls.size(); ++i)
    for (size_t o = 0; o < function.calls[i].outputs.size(); ++o) made.push_back({i, o});
  for (int32_t member : members)
    for (uint32_t i = 0; i < calls_[member].num_results; ++i) {
      const DeferredTensor& deferred = deferred_[calls_[member].first_deferred + i];
      if (!deferred.storage || deferred.storage->references() == 1) continue;
      const auto& [call, output] = made[deferred.output];
      function.add_output(call, output);
    }
}

void Batch::run_sequences(const std::vector<int32_t>& given) {
  std::vector<int32_t> members, watched;
  for (int32_t member : given) (is_watched(calls_[member]) ? watched : members).push_back(member);
  if (!watched.empty()) run_expanded(watched);
  if (members.empty()) return;
  const Sequence& sequence = *calls_[members[0]].sequence;
  CellFunction& function = *sequence.function;
  mark_outputs(members, function);
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
  std::vector<DeferredRows> results;
  int32_t slot = 0;
  for (const std::vector<bool>& outputs : group.program->outputs)
    for (size_t o = 0; o < outputs.size(); ++o, ++slot) {
      if (!outputs[o]) continue;
      DeferredRows& list = results.emplace_back();
      for (int32_t member : members) {
        const int32_t first = calls_[member].first_deferred,
                      end = first + static_cast<int32_t>(calls_[member].num_results);
        int32_t p = first;
        while (p < end && deferred_[p].output != slot) ++p;
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
    renumber(from);
    const auto made = static_cast<int32_t>(calls_.size());
    number_of_call[i] = made;
    unit.calls.push_back(made);
    begin_call(from, calls_[number].example);
    for (size_t p = 0; p < from.operands.size(); ++p) {
      const SequenceOperand& source = from.operands[p];
      Operand operand;
      operand.geometry = from.geometries[p];
      if (source.call >= 0 && sequence.cell_of[source.call] >= 0) {
        DeferredTensor& deferred = deferred_[calls_[number_of_call[source.call]].first_deferred + source.output];
        operand.storage = deferred.storage;
        operand.data = source.view.data;
        ++deferred.uses;
        if (source.requires_grad && !from.plan->grad_inputs.empty()) {
          RowNode* whole = deferred.rows.get();
          while (whole->next) whole = whole->next.get();  // views come before what they look at
          if (!source.is_view) {
            ++whole->uses;
            operand.edge.node = Ref<Node>::share(whole);
            operands_.push_back(std::move(operand));
            continue;
          }
          auto base = Ref<RowNode>::share(whole);
          auto row = Ref<RowNode>::adopt(
              new RowNode(whole->output(), source.view.restored(), whole->bytes(), std::move(base)));
          ++whole->uses;
          row->uses = 2;  // the list's, and the operand's
          operand.edge.node = Ref<Node>::share(row.get());
          row->next = std::move(deferred.rows);
          deferred.rows = std::move(row);
        }
      } else {
        const int32_t e = sequence.outside_of[i][p];
        const auto which = sequence.operands[e].first + (from.joins ? static_cast<int32_t>(p) : 0);
        operand = operands_[calls_[number].first_operand + which];
        use(operand);
      }
      operands_.push_back(std::move(operand));
    }
    Signature key;
    describe(calls_[made], key);
    calls_[made].kind = kinds_.number(key.data(), key.size(), key.hash());
    calls_[made].first_deferred = static_cast<int32_t>(deferred_.size());
    for (size_t o = 0; o < from.outputs.size(); ++o, ++slot) {
      const int32_t first = calls_[number].first_deferred,
                    end = first + static_cast<int32_t>(calls_[number].num_results);
      int32_t p = first;
      while (p < end && deferred_[p].output != slot) ++p;
      if (p == end) {
        defer_result(made, static_cast<int32_t>(o), from.outputs[o].view, from.outputs[o].bytes, from.device,
                     from.outputs[o].wants_grad);
        continue;
      }
      DeferredTensor moved = std::move(deferred_[p]);
      deferred_[p] = DeferredTensor();
      deferred_[p].output = -1;
      moved.call = made;
      moved.output = static_cast<int32_t>(o);
      moved.storage->renumber(deferred_.size());
      deferred_.push_back(std::move(moved));
    }
  }
  finish(calls_[number]);
  return unit;
}

}  // namespace tandem
