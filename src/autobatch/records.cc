#include "autobatch/records.h"

#include <algorithm>

#include "tensor/device_rows.h"
#include "autobatch/rows.h"
#include "autograd/engine.h"
#include "autograd/shown.h"
#include "callbacks.h"
#include "check.h"

namespace tandem {

namespace {

View row_of(const View& block, int64_t k) {
  View row;
  row.data = block.data + k * block.strides[0] * static_cast<int64_t>(item_size(block.dtype));
  row.dtype = block.dtype;
  row.ndim = block.ndim - 1;
  std::copy_n(block.shape + 1, row.ndim, row.shape);
  std::copy_n(block.strides + 1, row.ndim, row.strides);
  return row;
}

PyObject* tuple_of(const int64_t* values, int count) {
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; ++i) PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(values[i]));
  return tuple;
}

void add_floats(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

TensorRef called(PyObject* function, const char* format, auto... arguments) {
  PyObject* result = PyObject_CallFunction(function, format, arguments...);
  if (!result) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(result));
}

TensorRef reshaped(const TensorRef& t, const int64_t* shape, int ndim) {
  PyObject* made = PyObject_CallMethod(t.object(), "reshape", "(N)", tuple_of(shape, ndim));
  if (!made) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(made));
}

}  // namespace

// -- blocks

BlockNode::BlockNode(const TensorList& blocks) : sums_(blocks.size()) {
  num_outputs = static_cast<uint32_t>(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    sums_[i].block = blocks[i]->view;
    sums_[i].device = blocks[i]->storage->device();
    link(gradient_edge(blocks[i].get()));
  }
}

bool BlockNode::Sum::current() const {
  return (total || !pieces.empty()) && backward == backward_number;
}

bool BlockNode::has_gradients() const {
  return std::any_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.current(); });
}

TensorList BlockNode::apply(TensorList, bool) {
  TensorList out;
  launch_added_rows();
  for (size_t i = 0; i < sums_.size(); ++i) {
    Sum& sum = sums_[i];
    if (sum.current()) {
      join_pieces(sum);
    } else {
      sum.clear();
      if (used_ && i < used_->used.size() && used_->used[i] && edges[i].node) writable(sum);
    }
    out.push_back(std::exchange(sum.total, TensorRef()));
  }
  return out;
}

void BlockNode::take_rows(uint32_t output, int64_t first, TensorRef grad) {
  Sum& sum = sums_[output];
  if (!sum.current()) {
    sum.clear();
    sum.backward = backward_number;
  }
  sum.pieces.emplace_back(first, std::move(grad));
}

// Where pieces are all that there is, and all of it, they are joined; else they are added to what there is.
void BlockNode::join_pieces(Sum& sum) {
  if (sum.pieces.empty()) return;
  auto pieces = std::exchange(sum.pieces, {});
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const int64_t rows = sum.block.shape()[0];
  const View block = sum.block.restored();
  const size_t bytes = static_cast<size_t>(block.numel() / rows) * item_size(block.dtype);
  int64_t next = 0;
  for (const auto& [first, grad] : pieces) {
    if (next < 0 || first != next) next = -1;
    if (next >= 0) next += grad->view.shape[0];
  }
  if (next != rows || sum.total) {
    char* total = writable(sum)->view.data;
    for (const auto& [first, grad] : pieces) {
      std::vector<AddedRow> one{{total + static_cast<size_t>(first) * bytes, grad->view.data}};
      add_device_rows(sum.device, one, block.dtype, grad->view.numel());
    }
    return;
  }
  TensorRef made = TensorRef::adopt(new_contiguous(block.dtype, block.ndim, block.shape, sum.device));
  std::vector<const char*> places;
  places.reserve(rows);
  for (const auto& [first, grad] : pieces)
    for (int64_t k = 0; k < grad->view.shape[0]; ++k) places.push_back(grad->view.data + static_cast<size_t>(k) * bytes);
  join_device_rows(sum.device, places, bytes, made->view.data);
  sum.total = std::move(made);
}

bool BlockNode::note_added(uint32_t output) {
  return std::exchange(sums_[output].launch, next_added_rows()) != next_added_rows();
}

Tensor* BlockNode::writable(Sum& sum) {
  if (sum.backward == backward_number) join_pieces(sum);
  const bool begun = sum.current();
  const bool ours = begun && Py_REFCNT(sum.total.object()) == 1 && sum.total->storage->references() == 1 &&
                    sum.total->storage->writable() && sum.total->view.is_contiguous();
  if (ours) return sum.total.get();
  TensorRef fresh = TensorRef::adopt(new_contiguous(sum.block.dtype, sum.block.ndim, sum.block.shape(), sum.device));
  if (begun) {
    launch_added_rows();
    copy_row(sum.total->view, fresh->view, sum.device);
  } else {
    fill_zeros(fresh->view.data, static_cast<size_t>(fresh->view.numel()) * item_size(fresh->view.dtype), sum.device);
  }
  sum.total = std::move(fresh);
  sum.backward = backward_number;
  return sum.total.get();
}

void BlockNode::add(uint32_t output, const View& place, const Tensor* grad, const View& from) {
  Tensor* total = writable(sums_[output]);
  View to = place;
  to.data = total->view.data + reinterpret_cast<intptr_t>(place.data);
  add_row(grad, from, total, to);
}

void BlockNode::add_recorded(uint32_t output, const View& place, TensorRef grad) {
  Sum& sum = sums_[output];
  launch_added_rows();
  join_pieces(sum);
  if (place.dtype != sum.block.dtype)
    fail(ErrorKind::Unsupported,
         "gradients of gradients do not pass through a view of another type inside td.autobatch"
         "\n  fix: leave out td.autobatch where create_graph=True");
  const int64_t offset = reinterpret_cast<intptr_t>(place.data) / static_cast<int64_t>(item_size(place.dtype));
  PyObject* before = sum.current() ? sum.total.object() : Py_None;
  TensorRef made =
      called(callbacks.place_row, "OONNNL", before, grad.object(), tuple_of(sum.block.shape(), sum.block.ndim),
             tuple_of(place.shape, place.ndim), tuple_of(place.strides, place.ndim), static_cast<long long>(offset));
  sum.total = std::move(made);
  sum.backward = backward_number;
}

bool BlockNode::take_whole(uint32_t output, TensorRef& grad) {
  Sum& sum = sums_[output];
  if (sum.current() || grad->view.dtype != sum.block.dtype) return false;
  // Rows may be views of another shape than the results that they are all of.
  sum.total = TensorRef::adopt(
      new_view(grad.get(), grad->view.data, grad->view.dtype, sum.block.ndim, sum.block.shape(), sum.block.strides()));
  grad = TensorRef();
  sum.backward = backward_number;
  return true;
}

// -- rows

View RowNode::in_row() const {
  return place_.restored();
}

View RowNode::place() const {
  View v = place_.restored();
  v.data += offset_;
  return v;
}

// The gradient of the tensor that this one is a view of: zeros but for what this one sees of it.
TensorRef RowNode::for_base(TensorRef grad, bool create_graph) const {
  const View outer = base_->in_row(), inner = in_row();
  const auto item = static_cast<int64_t>(item_size(inner.dtype));
  if (create_graph) {
    const int64_t count = static_cast<int64_t>(bytes_) / item;
    const TensorRef flat = called(callbacks.place_row, "OONNNL", Py_None, grad.object(), tuple_of(&count, 1),
                                  tuple_of(inner.shape, inner.ndim), tuple_of(inner.strides, inner.ndim),
                                  static_cast<long long>(reinterpret_cast<intptr_t>(inner.data) / item));
    return called(callbacks.take_view, "ONNL", flat.object(), tuple_of(outer.shape, outer.ndim),
                  tuple_of(outer.strides, outer.ndim),
                  static_cast<long long>(reinterpret_cast<intptr_t>(outer.data) / item));
  }
  Storage* memory = Storage::allocate(bytes_, grad->storage->device());
  TensorRef made = TensorRef::adopt(new_tensor(memory, memory->data() + reinterpret_cast<intptr_t>(outer.data),
                                               outer.dtype, outer.ndim, outer.shape, outer.strides));
  fill_zeros(memory->data(), bytes_, memory->device());
  View to = inner;
  to.data = memory->data() + reinterpret_cast<intptr_t>(inner.data);
  add_row(grad.get(), grad->view, made.get(), to);
  return made;
}

void RowNode::settle(const Ref<BlockNode>& block, uint32_t output, size_t offset) {
  block_ = block;
  output_ = output;
  offset_ = offset;
  sequence = next_sequence();
  through_base_ = base_ && base_->seen();
  if (through_base_)
    link({Ref<Node>::share(base_.get()), 0});
  else
    link({Ref<Node>::share(block.get()), output_});
}

void RowNode::add_passing(GatherNode* gather) {
  for (RowNode* row = this; row; row = row->base_.get())
    if (row->passing_.empty() || row->passing_.back() != gather) row->passing_.push_back(gather);
}

void RowNode::remove_passing(GatherNode* gather) {
  for (RowNode* row = this; row; row = row->base_.get()) std::erase(row->passing_, gather);
}

void RowNode::show() {
  for (GatherNode* gather : std::exchange(passing_, {})) gather->lead_through(this);
}

void lead_through(RowNode* row) {
  row->show();
}

bool RowNode::shows(const RowNode* other) const {
  for (const RowNode* row = this; row; row = row->base_.get())
    if (row == other) return true;
  return false;
}

TensorList RowNode::apply(TensorList grads, bool create_graph) {
  TensorList out;
  out.resize(1);
  TD_CHECK(block_, "a gradient arrives at a call that has not run");
  if (through_base_) {
    out[0] = for_base(std::move(grads[0]), create_graph);
  } else if (create_graph) {
    block_->add_recorded(output_, place(), std::move(grads[0]));
  } else {
    block_->add(output_, place(), grads[0].get(), grads[0]->view);
  }
  return out;
}

// -- rows side by side

void RowsNode::add_block(BlockNode* block, uint32_t output) {
  link({Ref<Node>::share(block), output});
}

TensorRef RowsNode::flat(TensorRef grad) const {
  int64_t shape[kMaxDims] = {static_cast<int64_t>(list_->rows.size())};
  std::copy_n(row_.shape(), row_.ndim, shape + 1);
  return reshaped(grad, shape, row_.ndim + 1);
}

// Differentiable again.
void RowsNode::add_recorded(TensorRef grad) {
  const View row = row_.restored();
  grad = flat(std::move(grad));
  const int64_t bytes = row.numel() * static_cast<int64_t>(item_size(row.dtype));
  for (size_t k = 0; k < list_->used; ++k) {
    const RowList::Row& at = list_->rows[k];
    if (at.block < 0) continue;
    View place = row;
    place.data = reinterpret_cast<char*>(at.row * bytes);
    block(at)->add_recorded(edges[at.block].index, place,
                            called(callbacks.take_row, "OL", grad.object(), static_cast<long long>(k)));
  }
}

// Rows of these outputs are going to be added by one launch, unless it adds to one of them already.
template <typename Outputs>
static void note_added(const Outputs& outputs) {
  bool fresh = true;
  for (const auto& [block, output] : outputs) fresh &= block->note_added(output);
  if (fresh) return;
  launch_added_rows();
  for (const auto& [block, output] : outputs) block->note_added(output);
}

void RowsNode::add_on_device(TensorRef grad) {
  const View row = row_.restored();
  const int64_t elements = row.numel(), bytes = elements * static_cast<int64_t>(item_size(row_.dtype));
  if (list_->is_part) {
    View part = row;
    ++part.ndim;
    std::copy_n(row.shape, row.ndim, part.shape + 1);
    std::copy_n(row.strides, row.ndim, part.strides + 1);
    part.shape[0] = static_cast<int64_t>(list_->used);
    part.strides[0] = elements;
    const RowList::Row& first = list_->rows[0];
    return block(first)->take_rows(
        edges[first.block].index, first.row,
        TensorRef::adopt(new_view(grad.get(), grad->view.data, part.dtype, part.ndim, part.shape, part.strides)));
  }
  SmallVector<std::pair<BlockNode*, uint32_t>, 16> outputs;
  for (const Edge& edge : edges) outputs.push_back({static_cast<BlockNode*>(edge.node.get()), edge.index});
  SmallVector<char*, 16> sums;
  for (const auto& [block, output] : outputs) sums.push_back(block->sums_of(output)->view.data);
  note_added(outputs);
  std::vector<AddedRow> added;
  added.reserve(list_->used);
  const char* from = grad->view.data;
  for (size_t k = 0; k < list_->used; ++k, from += bytes)
    if (const RowList::Row& at = list_->rows[k]; at.block >= 0) added.push_back({sums[at.block] + at.row * bytes, from});
  add_device_rows_later(std::move(grad), added, row_.dtype, elements, list_->distinct);
}

TensorList RowsNode::apply(TensorList grads, bool create_graph) {
  TensorList out;
  out.resize(edges.size());
  TensorRef g = std::move(grads[0]);
  if (create_graph) {
    add_recorded(std::move(g));
    return out;
  }
  if (!g->view.is_contiguous()) g = called(callbacks.contiguous, "O", g.object());
  if (list_->whole && static_cast<BlockNode*>(edges[0].node.get())->take_whole(edges[0].index, g)) return out;
  View from = row_.restored();
  const int64_t elements = from.numel(), bytes = elements * static_cast<int64_t>(item_size(from.dtype));
  TD_CHECK(g->view.dtype == from.dtype && g->view.numel() == elements * static_cast<int64_t>(list_->rows.size()),
           "a gradient of another dtype or size");
  if (on_device(g->storage)) {
    add_on_device(std::move(g));
    return out;
  }
  SmallVector<Tensor*, 8> sums;
  for (const Edge& edge : edges) sums.push_back(static_cast<BlockNode*>(edge.node.get())->sums_of(edge.index));
  from.data = g->view.data;
  for (size_t k = 0; k < list_->used; ++k) {
    const RowList::Row& row = list_->rows[k];
    char* to = row.block < 0 ? nullptr : sums[row.block]->view.data + row.row * bytes;
    if (!to) {
    } else if (from.dtype == DType::Float32) {
      add_floats(reinterpret_cast<const float*>(from.data), reinterpret_cast<float*>(to), elements);
    } else {
      View place = from;
      place.data = to;
      tandem::add_row(g.get(), from, sums[row.block], place);
    }
    from.data += bytes;
  }
  return out;
}

// -- operands

GatherNode::~GatherNode() {
  for (Member& member : members_) {
    if (!member.row) continue;
    auto* row = static_cast<RowNode*>(member.row.get());
    --row->uses;
    if (member.passes) row->remove_passing(this);
  }
}

void GatherNode::lead_through(const RowNode* row) {
  whole = false;
  for (Member& member : members_) {
    if (!member.row || !static_cast<RowNode*>(member.row.get())->shows(row)) continue;
    auto* own = static_cast<RowNode*>(member.row.get());
    --own->uses;
    member.edge = static_cast<int32_t>(edges.size());
    link({std::move(member.row), 0});
    if (std::exchange(member.passes, false)) own->remove_passing(this);
  }
  for (Member& member : members_)  // which may look at the same
    if (member.passes) static_cast<RowNode*>(member.row.get())->add_passing(this);
}

void GatherNode::add_member(const Edge& edge) {
  RowNode* row = edge.node ? edge.node->as_row() : nullptr;
  if (row && row->watched()) row = nullptr;
  Member& member = members_.emplace_back();
  member.edge = -1;
  if (!edge.node) return;
  if (row) {
    member.passes = row->seen();
    if (member.passes) row->add_passing(this);
    member.row = edge.node;
    ++row->uses;
  }
  if (row) row->block()->note_use(row->output());
  Node* target = row ? row->block() : edge.node.get();
  const uint32_t index = row ? row->output() : edge.index;
  for (size_t i = edges.size(); i-- > 0 && edges.size() - i <= 8;) {  // mostly that of the row before
    if (edges[i].node.get() != target || edges[i].index != index) continue;
    if (!row) break;  // an edge takes one gradient: the engine adds them
    member.edge = static_cast<int32_t>(i);
    return;
  }
  member.edge = static_cast<int32_t>(edges.size());
  link({Ref<Node>::share(target), index});
}

bool GatherNode::one_block() const {
  return edges.size() == 1 &&
         std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.row && m.edge == 0; });
}

TensorRef GatherNode::flat(TensorRef grad, bool create_graph) const {
  int64_t shape[kMaxDims] = {static_cast<int64_t>(members_.size())};
  std::copy_n(row_.shape(), row_.ndim, shape + 1);
  if (create_graph) return reshaped(grad, shape, row_.ndim + 1);
  if (!grad->view.is_contiguous()) grad = called(callbacks.contiguous, "O", grad.object());
  int64_t strides[kMaxDims] = {}, step = 1;
  for (int i = row_.ndim; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return TensorRef::adopt(new_view(grad.get(), grad->view.data, grad->view.dtype, row_.ndim + 1, shape, strides));
}

TensorList GatherNode::apply(TensorList grads, bool create_graph) {
  TensorList out;
  out.resize(edges.size());
  TensorRef g = std::move(grads[0]);
  if (joined_) g = flat(std::move(g), create_graph);
  const View rows = g->view;
  if (whole && !create_graph && rows.is_contiguous()) {
    auto* first = static_cast<RowNode*>(members_[0].row.get());
    if (first->block()->take_whole(first->output(), g)) return out;
  }
  const bool device = on_device(g->storage);
  const bool dense = rows.is_contiguous() && (device || rows.dtype == DType::Float32);
  std::vector<AddedRow> added;  // on a device,
  std::vector<std::pair<BlockNode*, uint32_t>> outputs;  // of these
  const int64_t elements = stacked_ ? rows.numel() / std::max<int64_t>(rows.shape[0], 1) : rows.numel();
  BlockNode* block = nullptr;  // of the row before
  uint32_t output = 0;
  char* sums = nullptr;
  for (size_t k = 0; k < members_.size(); ++k) {
    const Member& member = members_[k];
    if (!member.row && member.edge < 0) continue;
    if (auto* row = static_cast<RowNode*>(member.row.get());
        row && !create_graph && dense && row->dense() && row->dtype() == rows.dtype) {
      if (row->block() != block || row->output() != output) {
        block = row->block(), output = row->output();
        sums = row->block()->sums_of(output)->view.data;
        if (device) outputs.emplace_back(block, output);
      }
      const auto at = static_cast<int64_t>(k) * elements;
      if (device)
        added.push_back({sums + row->offset(), rows.data + at * static_cast<int64_t>(item_size(rows.dtype))});
      else
        add_floats(rows.as<float>() + at, reinterpret_cast<float*>(sums + row->offset()), elements);
      continue;
    }
    const View from = stacked_ ? row_of(rows, static_cast<int64_t>(k)) : rows;
    if (member.row && !create_graph) {
      auto* row = static_cast<RowNode*>(member.row.get());
      row->block()->add(row->output(), row->place(), g.get(), from);
      continue;
    }
    TensorRef own =
        stacked_ ? create_graph
                       ? called(callbacks.take_row, "OL", g.object(), static_cast<long long>(k))
                       : TensorRef::adopt(new_view(g.get(), from.data, from.dtype, from.ndim, from.shape, from.strides))
                 : g;
    if (member.row) {
      auto* row = static_cast<RowNode*>(member.row.get());
      row->block()->add_recorded(row->output(), row->place(), std::move(own));
    } else {
      out[member.edge] = std::move(own);
    }
  }
  if (added.empty()) return out;
  std::sort(outputs.begin(), outputs.end());
  outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
  note_added(outputs);
  add_device_rows_later(std::move(g), added, rows.dtype, elements, false);
  return out;
}

}  // namespace tandem
