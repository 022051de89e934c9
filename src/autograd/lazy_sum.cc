#include "autograd/lazy_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "callbacks.h"
#include "tensor/device_rows.h"

namespace tandem {

namespace {

constexpr int64_t kRows = 512;  // writing and adding up the result is then a few hundredths of the matmul
constexpr int64_t kDeviceRows = 8192;

TensorRef called(PyObject* function, PyObject* a, PyObject* b, PyObject* c) {
  PyObject* args[] = {a, b, c};
  PyObject* made = PyObject_Vectorcall(function, args, 3, nullptr);
  if (!made) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(made));
}

TensorRef contiguous(TensorRef t) {
  if (t->view.is_contiguous()) return t;
  PyObject* args[] = {t.object()};
  PyObject* made = PyObject_Vectorcall(callbacks.contiguous, args, 1, nullptr);
  if (!made) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(made));
}

TensorRef room(const TensorRef& t) {
  const int64_t shape[] = {kRows, t->view.shape[1]};
  return TensorRef::adopt(new_contiguous(t->view.dtype, 2, shape));
}

void append(TensorRef from, const TensorRef& to, int64_t row) {
  from = contiguous(std::move(from));
  const size_t bytes = static_cast<size_t>(from->view.shape[1]) * item_size(from->view.dtype);
  std::memcpy(to->view.data + static_cast<size_t>(row) * bytes, from->view.data,
              static_cast<size_t>(from->view.shape[0]) * bytes);
}

TensorRef first_rows(const TensorRef& t, int64_t count) {
  if (count == t->view.shape[0]) return t;
  const int64_t shape[] = {count, t->view.shape[1]};
  return TensorRef::adopt(new_view(t.get(), t->view.data, t->view.dtype, 2, shape, t->view.strides));
}

// One row, and one of zeros: no program has to be compiled for a single one.
TensorRef with_zeros(TensorRef t) {
  const int64_t shape[] = {2, t->view.shape[1]};
  const int device = t->storage->device();
  TensorRef made = TensorRef::adopt(new_contiguous(t->view.dtype, 2, shape, device));
  const size_t bytes = static_cast<size_t>(shape[1]) * item_size(t->view.dtype);
  if (device)
    join_device_rows(device, {contiguous(std::move(t))->view.data}, bytes, made->view.data);
  else
    append(std::move(t), made, 0);
  fill_zeros(made->view.data + bytes, bytes, device);
  return made;
}

bool alike(const TensorRef& a, const TensorRef& b) {
  return a->view.dtype == b->view.dtype && a->view.shape[1] == b->view.shape[1];
}

TensorRef zeros_like(const Tensor& t, DType dtype) {
  TensorRef made = TensorRef::adopt(new_contiguous(dtype, t.view.ndim, t.view.shape, t.storage->device()));
  fill_zeros(made->view.data, static_cast<size_t>(made->view.numel()) * item_size(dtype), t.storage->device());
  return made;
}

}  // namespace

// -- on devices

void LazySum::Pieces::add(TensorRef t) {
  rows_ += t->view.shape[0];
  list_.push_back(std::move(t));
}

bool LazySum::Pieces::takes(const TensorRef& t) const {
  if (list_.empty()) return true;
  const View &a = t->view, &b = list_[0]->view;
  return a.dtype == b.dtype && a.ndim == b.ndim && std::equal(a.shape + 1, a.shape + a.ndim, b.shape + 1);
}

TensorRef LazySum::Pieces::join() {
  const std::vector<TensorRef> list = std::exchange(list_, {});
  const int64_t rows = std::exchange(rows_, 0);
  if (list.size() == 1) return TensorRef::share(list[0].get());
  View whole = list[0]->view;
  whole.shape[0] = rows;
  const int device = list[0]->storage->device();
  TensorRef made = TensorRef::adopt(new_contiguous(whole.dtype, whole.ndim, whole.shape, device));
  const size_t bytes = static_cast<size_t>(whole.numel() / rows) * item_size(whole.dtype);
  std::vector<TensorRef> dense;  // until the launch
  std::vector<const char*> places;
  places.reserve(rows);
  for (const TensorRef& t : list) {
    const TensorRef& piece = dense.emplace_back(contiguous(TensorRef::share(t.get())));
    for (int64_t k = 0; k < piece->view.shape[0]; ++k) places.push_back(piece->view.data + static_cast<size_t>(k) * bytes);
  }
  join_device_rows(device, places, bytes, made->view.data);
  return made;
}

void LazySum::add_on_device(Pieces& a, TensorRef first, Pieces& b, TensorRef second) {
  const int64_t rows = first->view.shape[0];
  if (rows == 0) return;
  if (!a.takes(first) || !b.takes(second) || a.rows() + rows > kDeviceRows) multiply_collected(), add_collected();
  a.add(std::move(first));
  b.add(std::move(second));
}

// -- matmuls

void LazySum::multiply(const TensorRef& left, const TensorRef& right) {
  if (left->view.shape[0] == 1) return multiply(with_zeros(left), with_zeros(right));
  total_ = called(callbacks.add_matmul, total_ ? total_.object() : Py_None, left.object(), right.object());
}

void LazySum::multiply_collected() {
  if (lefts_.rows()) multiply(lefts_.join(), rights_.join());
  if (!used_) return;
  multiply(first_rows(left_, used_), first_rows(right_, used_));
  used_ = 0;
}

void LazySum::add_matmul(TensorRef left, TensorRef right) {
  const int64_t rows = left->view.shape[0];
  if (on_device(left->storage)) return add_on_device(lefts_, std::move(left), rights_, std::move(right));
  if (rows >= kRows || (used_ && !(alike(left, left_) && alike(right, right_)))) return multiply(left, right);
  if (used_ + rows > kRows) multiply_collected();
  if (!used_ && !has_room_) {  // perhaps the only one
    left_ = std::move(left), right_ = std::move(right);
  } else {
    if (!has_room_) {
      TensorRef first_left = std::exchange(left_, room(left)), first_right = std::exchange(right_, room(right));
      append(std::move(first_left), left_, 0);
      append(std::move(first_right), right_, 0);
      has_room_ = true;
    }
    append(std::move(left), left_, used_);
    append(std::move(right), right_, used_);
  }
  used_ += rows;
}

// -- rows of a table

void LazySum::add_rows(const Tensor& table, const TensorRef& index, const TensorRef& updates) {
  if (!rows_) rows_ = zeros_like(table, updates->view.dtype);
  if (on_device(rows_->storage))
    return add_on_device(indices_, TensorRef::share(index.get()), updates_, TensorRef::share(updates.get()));
  add_at(index, updates);
}

void LazySum::add_at(const TensorRef& index, const TensorRef& updates) {
  PyObject* args[] = {rows_.object(), index.object(), updates.object()};
  PyObject* done = PyObject_Vectorcall(callbacks.add_at, args, 3, nullptr);
  if (!done) throw PythonError{};
  Py_DECREF(done);
}

void LazySum::add_collected() {
  if (indices_.rows()) add_at(indices_.join(), updates_.join());
}

TensorRef LazySum::total() {
  multiply_collected();
  add_collected();
  if (!rows_) return std::move(total_);
  if (!total_) return std::move(rows_);
  PyObject* args[] = {total_.object(), rows_.object()};
  PyObject* sum = PyObject_Vectorcall(callbacks.add_, args, 2, nullptr);
  if (!sum) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(sum));
}

}  // namespace tandem
