#include "autograd/lazy_sum.h"

#include <cstring>
#include <utility>

#include "callbacks.h"

namespace tandem {

namespace {

constexpr int64_t kRows = 512;  // writing and adding up the result is then a few hundredths of the matmul

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
  TensorRef made = TensorRef::adopt(new_contiguous(t->view.dtype, 2, shape));
  const size_t bytes = static_cast<size_t>(shape[1]) * item_size(t->view.dtype);
  append(std::move(t), made, 0);
  std::memset(made->view.data + bytes, 0, bytes);
  return made;
}

bool alike(const TensorRef& a, const TensorRef& b) {
  return a->view.dtype == b->view.dtype && a->view.shape[1] == b->view.shape[1];
}

}  // namespace

void LazySum::multiply(const TensorRef& left, const TensorRef& right) {
  if (left->view.shape[0] == 1) return multiply(with_zeros(left), with_zeros(right));
  total_ = called(callbacks.add_matmul, total_ ? total_.object() : Py_None, left.object(), right.object());
}

void LazySum::multiply_collected() {
  if (!used_) return;
  multiply(first_rows(left_, used_), first_rows(right_, used_));
  used_ = 0;
}

void LazySum::add_matmul(TensorRef left, TensorRef right) {
  const int64_t rows = left->view.shape[0];
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

void LazySum::add_rows(const Tensor& table, const TensorRef& index, const TensorRef& updates) {
  if (!rows_) {
    rows_ = TensorRef::adopt(new_contiguous(updates->view.dtype, table.view.ndim, table.view.shape));
    std::memset(rows_->view.data, 0, static_cast<size_t>(rows_->view.numel()) * item_size(rows_->view.dtype));
  }
  PyObject* args[] = {rows_.object(), index.object(), updates.object()};
  PyObject* done = PyObject_Vectorcall(callbacks.add_at, args, 3, nullptr);
  if (!done) throw PythonError{};
  Py_DECREF(done);
}

TensorRef LazySum::total() {
  multiply_collected();
  if (!rows_) return std::move(total_);
  if (!total_) return std::move(rows_);
  PyObject* args[] = {total_.object(), rows_.object()};
  PyObject* sum = PyObject_Vectorcall(callbacks.add_, args, 2, nullptr);
  if (!sum) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(sum));
}

}  // namespace tandem
