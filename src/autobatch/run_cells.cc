// Cells of deferred calls: found, cut, numbered, and run as one call each. See Note [Cells] in cells.h.
#include <algorithm>
#include <string>
#include <utility>

#include "autobatch/batch.h"
#include "callbacks.h"
#include "check.h"

namespace tandem {

int64_t cells_worth_compiling = 16;

namespace {

constexpr uint32_t kInside = 1u << 31;

uint64_t mixed(uint64_t hash, uint64_t word) {
  const auto product = static_cast<__uint128_t>(hash ^ word) * 0xD6E8FEB86659FD93ull;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

PyObject* tuple_of(const int64_t* values, int count) {
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; ++i) PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(values[i]));
  return tuple;
}

}  // namespace

bool Batch::is_inside(uint32_t word) {
  return word & kInside;
}

// -- finding them

CellCall Batch::traced(const Call& call, const std::vector<int32_t>& place) {
  CellCall made;
  made.code = call.code;
  made.instruction = call.instruction;
  made.kind = call.kind;
  const bool alone =
      call.sequence || call.functional || call.random || call.of_vertex || call.plan->over_devices || !call.code;
  if (!alone)
    made.mode = static_cast<int32_t>(call.mode.device) << 24 | static_cast<int32_t>(call.mode.autocast) << 16 |
                call.plan->device << 2 | call.inference << 1 | call.grad;
  for (const Operand& operand : operands(call)) {
    if (!operand.storage || !holds(operand.storage.get())) continue;
    const DeferredTensor& deferred = deferred_[operand.storage->number()];
    const int32_t before = place[deferred.call];
    // Gradients must not pass by a tensor that somebody may ask for its own, nor reach one that was detached.
    const RowNode* row = operand.edge.node ? operand.edge.node->as_row() : nullptr;
    const bool joinable = !call.joins && !operand.detached && (row ? !row->seen() : !operand.edge.node);
    auto known = std::find_if(made.needs.begin(), made.needs.end(), [&](CellNeed& n) { return n.call == before; });
    if (known == made.needs.end())
      made.needs.push_back({before, joinable});
    else
      known->joinable &= joinable;
  }
  return made;
}

// In what unit.calls take from one another, and what comes from outside; `position` is that of a call in its unit, for
// calls of this unit, and -1 for others.
void Batch::describe(Unit& unit, const std::vector<int32_t>& position, CellWords& to) const {
  to.words.clear();
  to.ends.clear();
  unit.externals.clear();
  for (int32_t number : unit.calls) {
    const Call& call = calls_[number];
    to.words.push_back(static_cast<uint32_t>(call.kind));
    if (call.joins) {
      to.words.push_back(static_cast<uint32_t>(unit.externals.size()));
      unit.externals.emplace_back(number, -1);
      to.ends.push_back(to.words.size());
      continue;
    }
    const Some<const Operand> list = operands(call);
    for (size_t p = 0; p < list.size(); ++p) {
      const Operand& operand = list[p];
      if (operand.storage && holds(operand.storage.get())) {
        const DeferredTensor& deferred = deferred_[operand.storage->number()];
        if (position[deferred.call] >= 0) {
          const auto offset = reinterpret_cast<uintptr_t>(operand.data);
          to.words.push_back(kInside | static_cast<uint32_t>(position[deferred.call]) << 16 |
                             static_cast<uint32_t>(deferred.output));
          to.words.push_back(static_cast<uint32_t>(offset));
          to.words.push_back(static_cast<uint32_t>(static_cast<uint64_t>(offset) >> 32));
          continue;
        }
      }
      size_t e = 0;
      for (; e < unit.externals.size(); ++e) {
        const auto& [other_call, other_position] = unit.externals[e];
        if (other_position < 0) continue;
        if (is_one_operand(operands(calls_[other_call])[other_position], operand)) break;
      }
      if (e == unit.externals.size()) unit.externals.emplace_back(number, static_cast<int32_t>(p));
      to.words.push_back(static_cast<uint32_t>(e));
    }
    to.ends.push_back(to.words.size());
  }
}

// A cell that goes on where most others of its kind end becomes two. False where there is none.
bool Batch::cut(std::vector<Unit>& units, std::vector<int32_t>& position) {
  std::unordered_map<uint64_t, int64_t> ends;  // by the hash of a cell's words: how many end so, less those that go on
  std::vector<std::vector<uint64_t>> prefixes(units.size());
  CellWords words;
  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    if (unit.calls.size() == 1) continue;
    for (size_t i = 0; i < unit.calls.size(); ++i) position[unit.calls[i]] = static_cast<int32_t>(i);
    describe(unit, position, words);
    for (int32_t call : unit.calls) position[call] = -1;
    uint64_t hash = 0x9E3779B97F4A7C15ull;
    size_t word = 0;
    for (size_t i = 0; i < unit.calls.size(); ++i) {
      // By plan, not by kind: cells end at one place, however many children they have.
      hash = mixed(hash, reinterpret_cast<uintptr_t>(calls_[unit.calls[i]].plan.get()));
      ++word;
      while (word < words.ends[i]) hash = mixed(hash, words.words[word++]);
      prefixes[u].push_back(hash);
    }
    ++ends[hash];
  }
  for (const std::vector<uint64_t>& list : prefixes)
    for (size_t i = 0; i + 1 < list.size(); ++i)
      if (auto found = ends.find(list[i]); found != ends.end()) --found->second;
  std::vector<Unit> made;
  made.reserve(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    size_t at = 0;
    for (size_t i = 0; i + 1 < prefixes[u].size() && !at; ++i)
      if (auto found = ends.find(prefixes[u][i]); found != ends.end() && found->second >= 0) at = i + 1;
    if (!at) {
      made.push_back(std::move(units[u]));
      continue;
    }
    Unit rest;
    for (size_t i = at; i < units[u].calls.size(); ++i) rest.calls.push_back(units[u].calls[i]);
    units[u].calls.resize(at);
    made.push_back(std::move(units[u]));
    made.push_back(std::move(rest));
  }
  const bool any = made.size() > units.size();
  units = std::move(made);
  return any;
}

// Numbers kinds of cells, and takes those apart that are too few to compile something for.
void Batch::number(std::vector<Unit>& units, std::vector<int32_t>& position) {
  cell_kinds_.clear();
  std::unordered_map<uint64_t, int32_t> known;
  CellWords words;
  std::vector<int32_t> alone(kinds_.size(), 0);  // calls in no cell
  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    if (unit.calls.size() == 1) {
      unit.kind = calls_[unit.calls[0]].kind;
      if (++alone[unit.kind] == cells_worth_compiling) learn_alone(unit.calls[0]);
      continue;
    }
    for (size_t i = 0; i < unit.calls.size(); ++i) position[unit.calls[i]] = static_cast<int32_t>(i);
    describe(unit, position, words);
    for (int32_t call : unit.calls) position[call] = -1;
    uint64_t hash = words.words.size();
    for (uint32_t word : words.words) hash = mixed(hash, word);
    auto found = known.find(hash);
    while (found != known.end() && cell_kinds_[found->second].words != words.words) found = known.find(++hash);
    if (found == known.end()) {
      found = known.emplace(hash, static_cast<int32_t>(cell_kinds_.size())).first;
      CellKind& kind = cell_kinds_.emplace_back();
      kind.words = words.words;
      kind.first = static_cast<int32_t>(u);
    }
    ++cell_kinds_[found->second].count;
    unit.kind = found->second;
  }
  for (CellKind& kind : cell_kinds_) {
    kind.function = function_of(units[kind.first], kind);
    kind.function->seen += kind.count;
    if (!kind.function->made()) continue;
    const Unit& first = units[kind.first];
    if (!kind.function->learned.insert(geometry_hash(first)).second || learn(first, kind.function)) continue;
    for (int32_t call : first.calls) learn_alone(call);
  }
  std::vector<Unit> made;
  made.reserve(units.size());
  for (Unit& unit : units) {
    if (unit.calls.size() == 1) {
      made.push_back(std::move(unit));
      continue;
    }
    const CellKind& kind = cell_kinds_[unit.kind];
    CellFunction& function = *kind.function;
    // Not what comes once or twice in every batch: there is little to gain, and it would be compiled late.
    const bool worth = function.seen >= cells_worth_compiling && 4 * kind.count >= cells_worth_compiling;
    if (!function.failed && (function.made() || worth)) {
      mark_outputs(unit, function);
      unit.kind += kinds_.size();
      made.push_back(std::move(unit));
      continue;
    }
    for (int32_t call : unit.calls) {
      Unit& alone = made.emplace_back();
      alone.calls.push_back(call);
      alone.kind = calls_[call].kind;
    }
  }
  units = std::move(made);
}

std::vector<Batch::Unit> Batch::units_of(const std::vector<int32_t>& calls, std::vector<int32_t>& unit_of) {
  std::vector<CellCall> list;
  list.reserve(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    unit_of[calls[i]] = static_cast<int32_t>(i);
    list.push_back(traced(calls_[calls[i]], unit_of));
  }
  std::vector<Unit> units;
  std::vector<CallCell> cells = form_cells(list);
  units.reserve(cells.size());
  for (CallCell& cell : cells) {
    Unit& unit = units.emplace_back();
    unit.calls = std::move(cell.members);
    for (int32_t& member : unit.calls) member = calls[member];
  }
  std::vector<int32_t> position(calls_.size(), -1);
  constexpr int kMostCuts = 3;  // what goes on may itself go on where most end
  for (int i = 0; i < kMostCuts && cut(units, position); ++i) {
  }
  number(units, position);
  for (size_t u = 0; u < units.size(); ++u)
    for (int32_t call : units[u].calls) unit_of[call] = static_cast<int32_t>(u);
  return units;
}

// -- what runs them

uint64_t Batch::geometry_hash(const Unit& unit) const {
  uint64_t hash = unit.calls.size();
  for (int32_t number : unit.calls) {
    hash = mixed(hash, calls_[number].num_operands);
    for (const Operand& operand : operands(calls_[number])) {
      const SavedView& v = geometry_[operand.geometry];
      hash = mixed(hash, static_cast<uint64_t>(v.dtype) << 8 | static_cast<uint64_t>(v.ndim));
      for (int i = 0; i < v.ndim; ++i) hash = mixed(mixed(hash, v.shape()[i]), v.strides()[i]);
    }
  }
  return hash;
}

// Kept for all batches, by plans, views of results inside and words: kinds are numbers of one batch. Sizes of what
// comes from outside, and of results that are taken whole, are those that plans were made for.
std::shared_ptr<CellFunction> Batch::function_of(const Unit& unit, const CellKind& kind) {
  static auto* functions = new std::unordered_map<std::string, std::shared_ptr<CellFunction>>();  // GIL
  constexpr size_t kMost = 4096;
  if (functions->size() >= kMost) functions->clear();
  std::string key;
  const auto add = [&](const void* data, size_t size) { key.append(static_cast<const char*>(data), size); };
  const auto geometry = [&](const Operand& operand) {
    const SavedView& v = geometry_[operand.geometry];
    add(&v.dtype, sizeof v.dtype);
    add(&v.ndim, sizeof v.ndim);
    add(v.shape(), v.ndim * sizeof(int64_t));
    add(v.strides(), v.ndim * sizeof(int64_t));
  };
  std::vector<std::vector<View>> results;
  for (int32_t number : unit.calls) results.push_back(result_views(calls_[number]));
  const auto whole = [&](uint32_t from, const Operand& operand) {  // of a call inside
    const std::vector<View>& made = results[(from & ~kInside) >> 16];
    const size_t output = from & 0xFFFF;
    if (operand.data || output >= made.size()) return false;
    return geometry_[operand.geometry].same_geometry(made[output]);
  };
  const Call& first = calls_[unit.calls[0]];
  add(&first.mode, sizeof first.mode);
  key.push_back(static_cast<char>(first.inference << 1 | first.grad));
  size_t word = 0;
  for (int32_t number : unit.calls) {
    const Call& call = calls_[number];
    const Plan* plan = call.plan.get();
    add(&plan, sizeof plan);
    ++word;  // its kind
    key.push_back(static_cast<char>(call.joins));
    if (call.joins) {
      const SavedView& row = geometry_[operands(call)[0].geometry];
      key.push_back(static_cast<char>(row.ndim));
      add(&kind.words[word++], sizeof(uint32_t));
      continue;
    }
    for (const Operand& operand : operands(call)) {
      const bool inside = kind.words[word] & kInside;
      if (inside && !whole(kind.words[word], operand)) geometry(operand);
      const size_t count = inside ? 3 : 1;
      add(&kind.words[word], count * sizeof(uint32_t));
      word += count;
    }
  }
  std::shared_ptr<CellFunction>& known = (*functions)[key];
  if (known) return known;
  known = std::make_shared<CellFunction>();
  word = 0;
  for (int32_t number : unit.calls) {
    const Call& call = calls_[number];
    ++word;
    if (call.joins) {
      PyObject* joined = Py_BuildValue("(k)", static_cast<unsigned long>(kind.words[word++]));
      known->calls.push_back({call.plan, joined, {false}, true});
      continue;
    }
    PyObject* list = PyTuple_New(call.num_operands);
    for (size_t p = 0; p < call.num_operands; ++p) {
      const uint32_t from = kind.words[word++];
      PyObject* item;
      if (from & kInside && whole(from, operands(call)[p])) {
        word += 2;
        item = Py_BuildValue("ii", static_cast<int>((from & ~kInside) >> 16), static_cast<int>(from & 0xFFFF));
      } else if (from & kInside) {
        word += 2;
        const Operand& operand = operands(call)[p];
        const SavedView& v = geometry_[operand.geometry];
        const auto offset = reinterpret_cast<intptr_t>(operand.data) / static_cast<int64_t>(item_size(v.dtype));
        // -> InsideView
        item = Py_BuildValue("iiNNLi", static_cast<int>((from & ~kInside) >> 16), static_cast<int>(from & 0xFFFF),
                             tuple_of(v.shape(), v.ndim), tuple_of(v.strides(), v.ndim), static_cast<long long>(offset),
                             static_cast<int>(v.dtype));
      } else {
        item = PyLong_FromUnsignedLong(from);
      }
      PyTuple_SET_ITEM(list, static_cast<Py_ssize_t>(p), item);
    }
    known->calls.push_back({call.plan, list, std::vector<bool>(call.plan->outputs.size(), false)});
  }
  return known;
}

// Results that something besides the cell's own calls holds.
void Batch::mark_outputs(const Unit& unit, CellFunction& function) const {
  int64_t inside[kMostCellCalls * 4] = {};
  const int32_t least = calls_[unit.calls[0]].first_deferred;
  bool any = false;
  const auto slot = [&](int32_t deferred) -> int64_t* {  // by where in the cell it is made
    int32_t at = 0;
    for (int32_t number : unit.calls) {
      const Call& call = calls_[number];
      const auto count = static_cast<int32_t>(call.plan->outputs.size());
      if (deferred >= call.first_deferred && deferred < call.first_deferred + count)
        return &inside[at + deferred - call.first_deferred];
      at += count;
    }
    return nullptr;
  };
  for (int32_t number : unit.calls)
    for (const Operand& operand : operands(calls_[number]))
      if (operand.storage && holds(operand.storage.get()) && static_cast<int32_t>(operand.storage->number()) >= least)
        if (int64_t* uses = slot(static_cast<int32_t>(operand.storage->number()))) ++*uses;
  size_t at = 0;
  for (size_t i = 0; i < unit.calls.size(); ++i) {
    const Call& call = calls_[unit.calls[i]];
    for (size_t o = 0; o < call.plan->outputs.size(); ++o, ++at) {
      const bool last = i + 1 == unit.calls.size() && o + 1 == call.plan->outputs.size();
      const bool wanted = deferred_[call.first_deferred + o].storage->references() > 1 + inside[at] || (last && !any);
      any |= wanted;
      if (wanted) function.add_output(i, o);
    }
  }
}

void Batch::run_by_call(const std::vector<const Unit*>& units) {
  for (size_t i = 0; i < units[0]->calls.size(); ++i) {
    std::vector<int32_t> members;
    for (const Unit* unit : units) members.push_back(unit->calls[i]);
    run_group(members);
  }
}

bool Batch::call_cells(CellFunction& function, const Call& call, CellGroup& group, TensorList& blocks,
                       std::vector<std::vector<int32_t>>& parts) {
  if (function.failed) return false;
  const auto n = static_cast<int64_t>(std::max<size_t>(group.members, 2));  // one alone runs as two, as vertices do
  const bool inference = call.inference;
  grad_mode.enabled = group.records;
  grad_mode.inference = inference;
  call_mode = CallMode{call.mode.device, 0};  // plans' graphs have the casts
  std::vector<bool> flags(group.rows.size());
  for (size_t e = 0; e < flags.size(); ++e) {
    Rows& rows = group.rows[e];
    if (const size_t count = group.joined[e].count) {
      flags[e] = true;
      for (size_t i = 0; group.members == 1 && i < count; ++i) rows.push_back(rows[i]);
      continue;
    }
    flags[e] = !is_shared(rows, false);
    if (!flags[e]) continue;
    const std::vector<Part> sorted = parts_of(rows);
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i == 0 || !sorted[i].same(sorted[i - 1])) parts.emplace_back();
      parts.back().push_back(sorted[i].member);
    }
    if (!parts.empty()) return false;
    if (group.members == 1) rows.push_back(rows[0]);
  }
  try {
    group.program = function.program(flags);
    CallArguments to;
    to.integer(Argument::Kind::Count, static_cast<int64_t>(flags.size()));
    for (size_t e = 0; e < flags.size(); ++e) {
      to.tensor(gather(group.rows[e], flags[e], group.joined[e]));
      if (flags[e] || !group.rows[e][0]->leaf) to.owned.back()->inference = inference;
    }
    to.integer(Argument::Kind::Count, static_cast<int64_t>(group.numbers.size()));
    for (const Argument& number : group.numbers) to.list.push_back(number);
    to.integer(Argument::Kind::Count, static_cast<int64_t>(group.ints.size()) + 1);
    for (const Argument& i : group.ints) to.list.push_back(i);
    to.integer(Argument::Kind::Int, n);
    bool returns_tuple = false;
    blocks = dispatch(group.program->function(), to.list.data(), static_cast<int>(to.list.size()), &returns_tuple);
    own_blocks(blocks, to);
  } catch (const PythonError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;  // an interrupt
    PyErr_Clear();
    function.failed = true;
    return false;
  } catch (const Error&) {  // of one call: it fails again, by itself
    return false;
  }
  return true;
}

void Batch::run_cells(const std::vector<const Unit*>& units, CellFunction& function) {
  const Unit& first = *units[0];
  CellGroup group;
  group.members = units.size();
  group.rows.resize(first.externals.size());
  group.joined.resize(first.externals.size());
  for (size_t e = 0; e < group.rows.size(); ++e)
    for (const Unit* unit : units) {
      const auto& [number, position] = unit->externals[e];
      const Some<Operand> list = operands(calls_[number]);
      if (position >= 0) {
        group.rows[e].push_back(&list[position]);
        continue;
      }
      group.joined[e] = joined_of(calls_[number]);
      for (const Operand& operand : list) group.rows[e].push_back(&operand);
    }
  for (int32_t number : first.calls) {
    group.records |= !calls_[number].plan->grad_inputs.empty();
    for (const Argument& a : arguments(calls_[number])) {
      if (is_number(a.kind)) group.numbers.push_back(a);
      if (a.kind == Argument::Kind::Int) group.ints.push_back(a);
    }
  }
  std::vector<std::vector<int32_t>> parts;
  TensorList blocks;
  if (!call_cells(function, calls_[first.calls[0]], group, blocks, parts)) {
    if (parts.empty()) return run_by_call(units);
    for (const std::vector<int32_t>& part : parts) {
      std::vector<const Unit*> some;
      for (int32_t member : part) some.push_back(units[member]);
      run_cells(some, function);
    }
    return;
  }
  std::vector<DeferredRows> results;
  for (size_t i = 0; i < first.calls.size(); ++i)
    for (size_t o = 0; o < group.program->outputs[i].size(); ++o) {
      if (!group.program->outputs[i][o]) continue;
      DeferredRows& list = results.emplace_back();
      for (const Unit* unit : units) list.push_back(calls_[unit->calls[i]].first_deferred + static_cast<int32_t>(o));
    }
  fulfil(results, blocks, true, &function);
  for (const Unit* unit : units) {
    for (int32_t number : unit->calls) finish(calls_[number]);
    calls_run += static_cast<int64_t>(unit->calls.size());
  }
}

}  // namespace tandem
