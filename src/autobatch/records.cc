#include "autobatch/records.h"

#include <algorithm>

#include "autobatch/frontiers.h"
#include "autobatch/rows.h"
#include "autograd/engine.h"
#include "callbacks.h"
#include "check.h"

namespace tandem {

namespace {

View view_of(const SavedView& saved) {
  View v;
  v.data = saved.data;
  v.dtype = saved.dtype;
  v.ndim = saved.ndim;
  std::copy_n(saved.shape(), saved.ndim, v.shape);
  std::copy_n(saved.strides(), saved.ndim, v.strides);
  return v;
}

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
  return total && backward == backward_number;
}

bool BlockNode::has_gradients() const {
  return std::any_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.current(); });
}

TensorList BlockNode::apply(TensorList, bool) {
  TensorList out;
  for (size_t i = 0; i < sums_.size(); ++i) {
    Sum& sum = sums_[i];
    if (!sum.current()) {
      sum.total = TensorRef();
      if (used_ && i < used_->used.size() && used_->used[i] && edges[i].node) writable(sum);
    }
    out.push_back(std::exchange(sum.total, TensorRef()));
  }
  return out;
}

Tensor* BlockNode::writable(Sum& sum) {
  const bool begun = sum.current();
  const bool ours = begun && Py_REFCNT(sum.total.object()) == 1 && sum.total->storage->references() == 1 &&
                    sum.total->storage->writable() && sum.total->view.is_contiguous();
  if (ours) return sum.total.get();
  TensorRef fresh = TensorRef::adopt(new_contiguous(sum.block.dtype, sum.block.ndim, sum.block.shape(), sum.device));
  if (begun)
    copy_row(sum.total->view, fresh->view, sum.device);
  else
    fill_zeros(fresh->view.data, static_cast<size_t>(fresh->view.numel()) * item_size(fresh->view.dtype), sum.device);
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
  return view_of(place_);
}

View RowNode::place() const {
  View v = view_of(place_);
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

uint32_t RowsNode::add_block(BlockNode* block, uint32_t output) {
  link({Ref<Node>::share(block), output});
  return static_cast<uint32_t>(edges.size()) - 1;
}

TensorRef RowsNode::flat(TensorRef grad) const {
  int64_t shape[kMaxDims] = {static_cast<int64_t>(rows_.size())};
  std::copy_n(row_.shape(), row_.ndim, shape + 1);
  return reshaped(grad, shape, row_.ndim + 1);
}

// Differentiable again.
void RowsNode::add_recorded(TensorRef grad) {
  const View row = view_of(row_);
  grad = flat(std::move(grad));
  const int64_t bytes = row.numel() * static_cast<int64_t>(item_size(row.dtype));
  for (size_t k = 0; k < rows_.size(); ++k) {
    if (rows_[k].edge < 0) continue;
    View place = row;
    place.data = reinterpret_cast<char*>(rows_[k].row * bytes);
    const Edge& edge = edges[rows_[k].edge];
    static_cast<BlockNode*>(edge.node.get())
        ->add_recorded(edge.index, place, called(callbacks.take_row, "OL", grad.object(), static_cast<long long>(k)));
  }
}

void RowsNode::add_by_operators(TensorRef grad, const SmallVector<Tensor*, 8>& sums) {
  std::vector<int64_t> numbers;
  for (const Row& row : rows_) numbers.push_back(row.edge);
  for (const Row& row : rows_) numbers.push_back(row.row);
  const auto bytes = static_cast<Py_ssize_t>(rows_.size() * sizeof(int64_t));
  const char* data = reinterpret_cast<const char*>(numbers.data());
  PyObject* list = PyList_New(0);
  for (Tensor* sum : sums) PyList_Append(list, reinterpret_cast<PyObject*>(sum));
  PyObject* done = PyObject_CallFunction(callbacks.add_rows, "NNNN", list, PyBytes_FromStringAndSize(data, bytes),
                                         PyBytes_FromStringAndSize(data + bytes, bytes),
                                         reinterpret_cast<PyObject*>(flat(std::move(grad)).leak()));
  if (!done) throw PythonError{};
  Py_DECREF(done);
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
  if (whole && static_cast<BlockNode*>(edges[0].node.get())->take_whole(edges[0].index, g)) return out;
  View from = view_of(row_);
  const int64_t elements = from.numel(), bytes = elements * static_cast<int64_t>(item_size(from.dtype));
  SmallVector<Tensor*, 8> sums;
  for (const Edge& edge : edges) sums.push_back(static_cast<BlockNode*>(edge.node.get())->sums_of(edge.index));
  if (g->storage->device() || rows_by_operators) {
    add_by_operators(std::move(g), sums);
    return out;
  }
  from.data = g->view.data;
  for (const Row& row : rows_) {
    char* to = row.edge < 0 ? nullptr : sums[row.edge]->view.data + row.row * bytes;
    if (!to) {
    } else if (from.dtype == DType::Float32) {
      add_floats(reinterpret_cast<const float*>(from.data), reinterpret_cast<float*>(to), elements);
    } else {
      View place = from;
      place.data = to;
      tandem::add_row(g.get(), from, sums[row.edge], place);
    }
    from.data += bytes;
  }
  return out;
}

// -- operands

GatherNode::~GatherNode() {
  for (Member& member : members_)
    if (member.row) --static_cast<RowNode*>(member.row.get())->uses;
}

void GatherNode::add_member(const Edge& edge) {
  RowNode* row = edge.node ? edge.node->as_row() : nullptr;
  if (row && row->seen()) row = nullptr;
  Member& member = members_.emplace_back();
  member.edge = -1;
  if (!edge.node) return;
  if (row) {
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
  const bool dense = rows.is_contiguous() && rows.dtype == DType::Float32;
  const int64_t elements = stacked_ ? rows.numel() / std::max<int64_t>(rows.shape[0], 1) : rows.numel();
  const BlockNode* block = nullptr;  // of the row before
  uint32_t output = 0;
  char* sums = nullptr;
  for (size_t k = 0; k < members_.size(); ++k) {
    const Member& member = members_[k];
    if (!member.row && member.edge < 0) continue;
    if (auto* row = static_cast<RowNode*>(member.row.get());
        row && !create_graph && dense && row->dense() && row->dtype() == DType::Float32) {
      if (row->block() != block || row->output() != output) {
        block = row->block(), output = row->output();
        sums = row->block()->sums_of(output)->view.data;
      }
      add_floats(reinterpret_cast<const float*>(rows.data) + static_cast<int64_t>(k) * elements,
                 reinterpret_cast<float*>(sums + row->offset()), elements);
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
  return out;
}

}  // namespace tandem
