// Groups of deferred calls run: operands are gathered, results handed out.
#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "autobatch/batch.h"
#include "tensor/device_rows.h"
#include "autobatch/group_call.h"
#include "autobatch/rows.h"
#include "callbacks.h"
#include "check.h"

#include "known_source.h"
#include "tensor/deferred.h"
#include "tensor/move.h"

namespace tandem {

namespace {

struct Eagerly {  // what happens inside runs at once; modes are set for each group
  Batch* batch = std::exchange(active_batch, nullptr);
  Capture* capture = std::exchange(active_capture, nullptr);
  GradMode grad = grad_mode;
  CallMode call = call_mode;
  Eagerly() = default;
  Eagerly(const Eagerly&) = delete;
  ~Eagerly() {
    active_batch = batch;
    active_capture = capture;
    grad_mode = grad;
    call_mode = call;
    resolve_deferred();
  }
};

}  // namespace

// -- which calls run together

void Batch::describe(const Call& call, Signature& key) {
  key.value(call.plan.get());
  key.value(call.mode);
  key.value(call.inference);
  key.value(call.joins);
  const Some<Operand> list = operands(call);
  size_t position = 0;
  for (const Argument& a : arguments(call)) {
    if (a.kind == Argument::Kind::Tensor) {
      const Operand& operand = list[position++];
      const Tensor* leaf = operand.leaf.get();
      key.value(operand.geometry);
      key.value(leaf && leaf->requires_grad && leaf->is_leaf() ? leaf : nullptr);  // a parameter
    } else if (a.kind == Argument::Kind::Complex) {
      key.value(a.real);
      key.value(a.imaginary);
    } else if (a.kind == Argument::Kind::Bool) {
      key.value(a.truth);
    } else if (a.kind != Argument::Kind::Offset && a.kind != Argument::Kind::Static) {
      key.value(a.kind == Argument::Kind::None ? 0 : a.integer);
    }
  }
}

void Batch::run_calls(std::vector<int32_t> calls) {
  if (calls.empty()) return forget_if_done();
  const Eagerly eagerly;
  const NoKnownSource looked_for;
  std::vector<int32_t> unit_of(calls_.size(), -1);
  const std::vector<Unit> units = units_of(calls, unit_of);
  std::vector<Deferred> deferred(units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    deferred[i].kind = units[i].kind;
    SmallVector<int32_t, 4>& needs = deferred[i].needs;
    const auto add_need = [&](const Operand& operand) {
      if (!operand.storage || !holds(operand.storage.get())) return;
      const int32_t before = unit_of[deferred_[operand.storage->number()].call];
      if (needs.empty() || (needs.back() != before && std::find(needs.begin(), needs.end(), before) == needs.end()))
        needs.push_back(before);
    };
    if (units[i].calls.size() == 1)
      for (const Operand& operand : operands(calls_[units[i].calls[0]])) add_need(operand);
    for (const auto& [number, position] : units[i].externals) {
      const Some<Operand> list = operands(calls_[number]);
      if (position >= 0)
        add_need(list[position]);
      else
        for (const Operand& operand : list) add_need(operand);
    }
  }
  const auto alone = static_cast<int32_t>(kinds_.size());
  for (const std::vector<int32_t>& group : order_groups(deferred, alone + static_cast<int32_t>(cell_kinds_.size()))) {
    const int32_t kind = units[group[0]].kind;
    if (kind < alone) {
      std::vector<int32_t> members;
      for (int32_t unit : group) members.push_back(units[unit].calls[0]);
      calls_[members[0]].sequence ? run_sequences(members) : run_group(members);
    } else {
      std::vector<const Unit*> members;
      for (int32_t unit : group) members.push_back(&units[unit]);
      run_cells(members, *cell_kinds_[kind - alone].function);
    }
  }
  forget_if_done();
}

// -- operands

const char* Batch::data_of(const Operand& operand) {
  return operand.leaf ? operand.leaf->view.data : operand.storage->data() + reinterpret_cast<intptr_t>(operand.data);
}

View Batch::view_of(const Operand& operand) const {
  if (operand.leaf) return operand.leaf->view;
  View v = geometry_[operand.geometry].restored();
  v.data = operand.storage->data() + reinterpret_cast<intptr_t>(operand.data);
  return v;
}

Storage* Batch::memory_of(const Operand& operand) {
  Storage* storage = operand.leaf ? operand.leaf->storage : operand.storage.get();
  return storage->row_of() ? storage->row_of() : storage;
}

bool Batch::is_held(const Tensor* view) const {
  const auto uses = view_uses_.find(view);
  return uses == view_uses_.end() || Py_REFCNT(reinterpret_cast<const PyObject*>(view)) > uses->second;
}

bool Batch::same_operand(const Operand& a, const Operand& b) const {
  if (a.leaf && a.leaf.get() == b.leaf.get()) return true;
  if (a.leaf && b.leaf) {
    const Tensor* parameter = viewed_parameter(a.leaf.get());
    if (parameter && parameter == viewed_parameter(b.leaf.get()))
      return a.leaf->view.data == b.leaf->view.data && !is_held(a.leaf.get()) && !is_held(b.leaf.get());
  }
  if (a.edge.node.get() != b.edge.node.get() || a.edge.index != b.edge.index) return false;
  return memory_of(a) == memory_of(b) && data_of(a) == data_of(b);  // shapes and strides are those of the kind
}

// Whether members have one operand, which is then passed as it is. Small ones that happen to be the same are copied all
// the same, or a group would need a plan for this and one for when they are not.
bool Batch::is_shared(const Rows& rows, bool of_vertex) const {
  const Operand& first = *rows[0];
  const Tensor* leaf = first.leaf.get();
  if (leaf && leaf->requires_grad && leaf->is_leaf()) return true;  // a parameter: members are alike in it
  constexpr int64_t kWorthAPlan = 4096;                             // bytes
  const View v = view_of(first);
  const bool weight = leaf && viewed_parameter(leaf) && v.ndim > 1;
  if (!weight && v.numel() * static_cast<int64_t>(item_size(v.dtype)) < kWorthAPlan) return false;
  if (of_vertex && !leaf) return false;  // a state
  return std::all_of(rows.begin() + 1, rows.end(), [&](const Operand* row) { return same_operand(first, *row); });
}

Batch::Rows Batch::rows_of(const std::vector<int32_t>& members, size_t position) const {
  Rows rows;
  rows.reserve(members.size());
  for (int32_t member : members) rows.push_back(&operands(calls_[member])[position]);
  return rows;
}

TensorRef Batch::gather(const std::vector<int32_t>& members, size_t position, bool stacked) {
  const Rows rows = rows_of(members, position);
  TensorRef made = gather(rows, stacked);
  if (stacked || !rows[0]->leaf) made->inference = calls_[members[0]].inference;
  return made;
}

// Whether rows lie one after the other in one block. With gaps between them they are copied: a group would need one
// plan for operands with gaps, and one for those without.
bool Batch::side_by_side(const Rows& rows, int64_t step) {
  const char* next = data_of(*rows[0]);
  const Storage* memory = memory_of(*rows[0]);
  for (const Operand* row : rows) {
    if (data_of(*row) != next || memory_of(*row) != memory) return false;
    next += step;
  }
  return true;
}

TensorRef Batch::gather(const Rows& rows, bool stacked, const Joined& joined, bool copied) {
  const Operand& first = *rows[0];
  if (!stacked && first.leaf) return first.leaf;
  const View row = view_of(first);
  Storage* memory = memory_of(first);
  View block = row;
  if (stacked) {
    const View one = joined.count ? joined_view(row, joined) : row;
    block.ndim = one.ndim + 1;
    block.shape[0] = static_cast<int64_t>(rows.size() / std::max<size_t>(joined.count, 1));
    std::copy_n(one.shape, one.ndim, block.shape + 1);
    std::copy_n(one.strides, one.ndim, block.strides + 1);
    block.strides[0] = one.numel();
  }
  TensorRef made;
  const auto item = static_cast<int64_t>(item_size(row.dtype));
  const int64_t bytes = row.numel() * item;
  const bool dense = row.is_contiguous();
  const bool in_place = !copied && (!stacked || (dense && side_by_side(rows, bytes)));
  if (in_place) {
    memory->retain();
    made = TensorRef::adopt(new_tensor(memory, block.data, block.dtype, block.ndim, block.shape, block.strides));
  } else {
    const int device = memory->device();
    made = TensorRef::adopt(new_contiguous(block.dtype, block.ndim, block.shape, device));
    if (dense && !on_device(memory)) {
      char* to = made->view.data;
      for (const Operand* operand : rows) {
        std::memcpy(to, data_of(*operand), static_cast<size_t>(bytes));
        to += bytes;
      }
    } else if (dense) {
      std::vector<const char*> places;
      places.reserve(rows.size());
      for (const Operand* operand : rows) places.push_back(data_of(*operand));
      join_device_rows(device, places, static_cast<size_t>(bytes), made->view.data);
    } else {
      View to = made->view;
      to.ndim = row.ndim;
      std::copy_n(made->view.shape + 1, row.ndim, to.shape);
      std::copy_n(made->view.strides + 1, row.ndim, to.strides);
      for (const Operand* operand : rows) {
        copy_row(view_of(*operand), to, device);
        to.data += bytes;
      }
    }
  }
  if (std::none_of(rows.begin(), rows.end(), [](const Operand* operand) { return operand->edge.node; })) return made;
  auto node = Ref<GatherNode>::adopt(new GatherNode(stacked));
  if (joined.count) node->set_row(row);
  for (const Operand* operand : rows) node->add_member(operand->edge);
  node->sequence = next_sequence();
  node->whole = stacked && in_place && made->view.data == memory->data() && made->view.is_contiguous() &&
                static_cast<size_t>(made->view.numel() * item) == memory->bytes() && node->one_block();
  set_history(made.get(), node.get(), 0);
  return made;
}

// -- groups

// The operator function's parameters: tensors, numbers, integers and how many members there are.
TensorList Batch::call_function(OpFunction* op, const std::vector<int32_t>& members, const std::vector<bool>& shared) {
  const Call& call = calls_[members[0]];
  const auto n = static_cast<int64_t>(members.size());
  CallArguments to;
  int64_t numbers = 0, ints = 0, offsets = 0;
  const bool random = call.plan->rng_advance >= 0 && n > 1;  // members have places of their own in the stream
  for (const Argument& a : arguments(call)) {
    offsets += a.kind == Argument::Kind::Offset && random;
    numbers += is_number(a.kind) && !(a.kind == Argument::Kind::Offset && random);
    ints += a.kind == Argument::Kind::Int;
  }
  to.integer(Argument::Kind::Count, static_cast<int64_t>(call.num_operands) + offsets);
  for (size_t p = 0; p < call.num_operands; ++p)
    to.tensor(shared[p] ? gather({members[0]}, p, false) : gather(members, p, true));
  for (size_t i = 0; offsets && i < call.num_arguments; ++i) {
    if (arguments(call)[i].kind != Argument::Kind::Offset) continue;
    TensorRef places = TensorRef::adopt(new_contiguous(DType::Int64, 1, &n, 0));
    for (int64_t k = 0; k < n; ++k) places->view.as<int64_t>()[k] = arguments(calls_[members[k]])[i].integer;
    if (call.plan->device) places = TensorRef::adopt(move_tensor(places.get(), call.plan->device, false));
    to.tensor(std::move(places));
  }
  to.integer(Argument::Kind::Count, numbers);
  for (const Argument& a : arguments(call)) {
    if (!is_number(a.kind) || (a.kind == Argument::Kind::Offset && random)) continue;
    Argument& number = to.list.emplace_back(a);
    if (a.kind == Argument::Kind::Seed || a.kind == Argument::Kind::Offset) number.kind = Argument::Kind::Integer;
  }
  to.integer(Argument::Kind::Count, ints + 1);
  for (const Argument& a : arguments(call))
    if (a.kind == Argument::Kind::Int) to.list.push_back(a);
  to.integer(Argument::Kind::Int, n);
  bool returns_tuple = false;
  TensorList blocks = dispatch(op, to.list.data(), static_cast<int>(to.list.size()), &returns_tuple);
  own_blocks(blocks, to);
  return blocks;
}

// A view is settled after what it looks at: the list has the last one first.
static void settle(Ref<RowNode> rows, const Ref<BlockNode>& node, uint32_t output, size_t offset) {
  SmallVector<Ref<RowNode>, 8> list;
  while (rows) {
    Ref<RowNode> next = std::move(rows->next);
    list.push_back(std::move(rows));
    rows = std::move(next);
  }
  for (size_t i = list.size(); node && i-- > 0;) list[i]->settle(node, output, offset);
  for (Ref<RowNode>& row : list) --row->uses;
}

void Batch::fulfil(const std::vector<DeferredRows>& rows, const TensorList& blocks, bool stacked, CellFunction* cell) {
  Ref<BlockNode> node;
  for (const TensorRef& block : blocks)
    if (block->requires_grad && !node) {
      node = Ref<BlockNode>::adopt(new BlockNode(blocks));
      node->sequence = next_sequence();
      if (cell) node->set_used(cell->used_in(serial_, blocks.size()));
    }
  for (size_t o = 0; o < blocks.size(); ++o) {
    Storage& memory = *blocks[o]->storage;
    const View& block = blocks[o]->view;
    const auto present = std::find_if(rows[o].begin(), rows[o].end(), [](int32_t p) { return p >= 0; });
    if (present == rows[o].end()) continue;
    const DeferredTensor& first = deferred_[*present];
    const size_t bytes = first.storage->bytes();
    TD_CHECK(static_cast<size_t>(block.numel()) * item_size(block.dtype) ==
                 bytes * (stacked ? std::max<size_t>(rows[o].size(), 2) : 1),
             "a group of ", calls_[first.call].plan->name, " gave results of another size than its members");
    size_t offset = static_cast<size_t>(block.data - memory.data());
    for (size_t k = 0; k < rows[o].size(); ++k, offset += bytes) {
      if (rows[o][k] < 0) continue;  // nobody wants it
      DeferredTensor& deferred = deferred_[rows[o][k]];
      deferred.storage->fulfil_row(memory, offset);
      settle(std::move(deferred.rows), node, static_cast<uint32_t>(o), k * bytes);
    }
  }
  ++groups;
}

void Batch::hand_out(const std::vector<int32_t>& members, TensorList blocks, bool stacked) {
  std::vector<DeferredRows> rows(blocks.size());
  for (size_t o = 0; o < blocks.size(); ++o)
    for (int32_t member : members) rows[o].push_back(calls_[member].first_deferred + static_cast<int32_t>(o));
  fulfil(rows, blocks, stacked);
  for (int32_t member : members) finish(calls_[member]);
  calls_run += static_cast<int64_t>(members.size());
}

void Batch::run_members(const std::vector<int32_t>& members) {
  for (int32_t member : members) {
    const Call& call = calls_[member];
    try {
      TensorList blocks;
      if (call.functional) {
        const std::vector<bool> none(call.num_operands, false);
        blocks = call_function(group_function(call.plan, none)->function(), {member},
                               std::vector<bool>(call.num_operands, true));
      } else {
        CallArguments to;
        size_t position = 0;
        for (const Argument& a : arguments(call)) {
          if (a.kind == Argument::Kind::Tensor)
            to.tensor(gather({member}, position++, false));
          else
            to.list.push_back(a);
        }
        bool returns_tuple = false;
        blocks = dispatch(call.op, to.list.data(), static_cast<int>(to.list.size()), &returns_tuple);
        own_blocks(blocks, to);
      }
      hand_out({member}, std::move(blocks), false);
    } catch (const Error& error) {
      std::string text = error.what();
      if (call.example >= 0) text += std::string("\n  in ") + unit + " " + std::to_string(call.example);
      Error told(error.kind, text);
      told.origin = error.origin;
      if (call.source.code) told.origin = std::make_shared<const Origin>(origin_of(call.source, call.plan->name));
      throw told;
    }
  }
}

// Members that share a large operand in parts run in parts: copying it for each would cost more than calls do. Empty
// where it is small, or too few of them share it; else members sorted by it.
std::vector<Batch::Part> Batch::parts_of(const Rows& rows) const {
  constexpr int64_t kWorthACall = 1 << 18;  // bytes
  const View v = view_of(*rows[0]);
  const int64_t bytes = v.numel() * static_cast<int64_t>(item_size(v.dtype));
  if (bytes * static_cast<int64_t>(rows.size()) < kWorthACall) return {};
  std::vector<Part> sorted;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Tensor* leaf = rows[i]->leaf.get();
    const void* owner = leaf && !is_held(leaf) ? viewed_parameter(leaf) : nullptr;
    sorted.push_back({data_of(*rows[i]), owner ? owner : rows[i]->edge.node.get(), static_cast<int32_t>(i)});
  }
  std::sort(sorted.begin(), sorted.end(), [](const Part& a, const Part& b) {
    return std::tie(a.data, a.owner, a.member) < std::tie(b.data, b.owner, b.member);
  });
  size_t parts = 0;
  for (size_t i = 0; i < sorted.size(); ++i) parts += i == 0 || !sorted[i].same(sorted[i - 1]);
  if (2 * parts > rows.size()) sorted.clear();
  return sorted;
}

bool Batch::split(const std::vector<int32_t>& members, const std::vector<bool>& shared) {
  for (size_t p = 0; p < shared.size(); ++p) {
    const std::vector<Part> sorted = shared[p] ? std::vector<Part>() : parts_of(rows_of(members, p));
    std::vector<int32_t> part;
    for (size_t i = 0; i < sorted.size(); ++i) {
      part.push_back(members[sorted[i].member]);
      if (i + 1 < sorted.size() && sorted[i].same(sorted[i + 1])) continue;
      run_group(part);
      part.clear();
    }
    if (!sorted.empty()) return true;
  }
  return false;
}

void Batch::run_group(const std::vector<int32_t>& members) {
  const Call& call = calls_[members[0]];
  grad_mode.enabled = !call.plan->grad_inputs.empty();
  grad_mode.inference = call.inference;
  call_mode = call.mode;
  if (call.joins) return run_joined(members);
  if (members.size() == 1 && !call.of_vertex) return run_members(members);
  std::vector<bool> shared(call.num_operands);
  for (size_t p = 0; p < shared.size(); ++p) shared[p] = is_shared(rows_of(members, p), call.of_vertex);
  if (split(members, shared)) return;
  std::vector<bool> flags = shared;
  flags.flip();
  const std::shared_ptr<GroupFunction> function = group_function(call.plan, flags);
  if (function->failed) return run_members(members);
  TensorList blocks;
  try {
    call_mode = CallMode{call.mode.device, 0};  // the plan's graph has the casts
    // A vertex alone runs as two: no other plan has to be compiled for it, and gradients of the second row are zeros.
    const std::vector<int32_t> twice{members[0], members[0]};
    blocks = call_function(function->function(), members.size() == 1 ? twice : members, shared);
  } catch (const PythonError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;  // an interrupt
    PyErr_Clear();                                        // no batching rule
    function->failed = true;
    call_mode = call.mode;
    return run_members(members);
  } catch (const Error&) {  // of one member: it fails again, by itself
    call_mode = call.mode;
    return run_members(members);
  }
  hand_out(members, std::move(blocks), true);
}

}  // namespace tandem
