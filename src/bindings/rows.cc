// Batches from samples: rows of a tensor by number, and tensors of one shape on top of each other. Plain copies,
// without the dispatcher: a loader makes one such call per batch, in processes that never compile a kernel.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "device/parallel.h"
#include "tensor/copy.h"

namespace nb = nanobind;

namespace tandem {
namespace {

constexpr int64_t kLarge = 1 << 16;  // bytes from which letting go of the GIL pays

// Where the rows go: a new tensor, or `out`, which must be what the new one would be.
TensorRef target_for(const char* what, DType dtype, int64_t rows, const View& row, int skip, nb::object out) {
  if (row.ndim - skip + 1 > kMaxDims) fail(ErrorKind::Shape, what, ": at most ", kMaxDims, " axes are supported");
  int64_t shape[kMaxDims];
  shape[0] = rows;
  std::copy_n(row.shape + skip, row.ndim - skip, shape + 1);
  int ndim = row.ndim - skip + 1;
  if (out.is_none()) return TensorRef::adopt(new_contiguous(dtype, ndim, shape));
  auto tensor = nb::cast<TensorRef>(out);
  materialize(tensor.get());
  const View& v = tensor->view;
  if (v.dtype != dtype || v.ndim != ndim || !std::equal(shape, shape + ndim, v.shape) || !v.is_contiguous() ||
      !tensor->storage->writable())
    fail(ErrorKind::Shape, what, ": out is ", name(v.dtype), " ", format_shape(v.ndim, v.shape),
         "; contiguous, writable ", name(dtype), " ", format_shape(ndim, shape), " is needed");
  tensor->storage->bump_version();
  return tensor;
}

template <typename F>
void for_rows(int64_t rows, int64_t bytes, F&& body) {
  if (rows * bytes < kLarge) {
    body(int64_t{0}, rows);
    return;
  }
  nb::gil_scoped_release release;
  parallel_for(rows, static_cast<double>(bytes) * 0.1, body);
}

TensorRef take_rows(TensorRef tensor, std::vector<int64_t> indices, nb::object out) {
  materialize(tensor.get());
  const View view = tensor->view;
  if (view.ndim == 0) fail(ErrorKind::Shape, "take_rows: a tensor without axes has no rows");
  for (int64_t& i : indices) {
    if (i < -view.shape[0] || i >= view.shape[0])
      fail(ErrorKind::Index, "take_rows: index ", i, " is out of range for ", view.shape[0], " rows");
    if (i < 0) i += view.shape[0];
  }
  auto rows = static_cast<int64_t>(indices.size());
  TensorRef made = target_for("take_rows", view.dtype, rows, view, 1, out);
  View row = view;
  row.ndim = view.ndim - 1;
  std::copy_n(view.shape + 1, row.ndim, row.shape);
  std::copy_n(view.strides + 1, row.ndim, row.strides);
  auto item = static_cast<int64_t>(item_size(view.dtype));
  int64_t bytes = row.numel() * item, step = view.strides[0] * item;
  View to = row;
  std::copy_n(made->view.strides + 1, row.ndim, to.strides);
  to.data = made->view.data;
  bool plain = row.is_contiguous();
  for_rows(rows, bytes, [&](int64_t begin, int64_t end) {
    View from = row, target = to;
    for (int64_t i = begin; i < end; ++i) {
      from.data = view.data + indices[i] * step;
      target.data = to.data + i * bytes;
      if (plain)
        std::memcpy(target.data, from.data, bytes);
      else
        copy_view(from, target);
    }
  });
  return made;
}

TensorRef stack_rows(std::vector<TensorRef> tensors, nb::object out) {
  if (tensors.empty()) fail(ErrorKind::Value, "stack_rows: there are no tensors");
  for (const TensorRef& t : tensors) materialize(t.get());
  const View& first = tensors[0]->view;
  for (size_t i = 1; i < tensors.size(); ++i) {
    const View& v = tensors[i]->view;
    if (v.dtype != first.dtype || v.ndim != first.ndim || !std::equal(first.shape, first.shape + first.ndim, v.shape))
      fail(ErrorKind::Shape, "stack_rows: tensor 0 is ", name(first.dtype), " ", format_shape(first.ndim, first.shape),
           " and tensor ", i, " is ", name(v.dtype), " ", format_shape(v.ndim, v.shape));
  }
  auto rows = static_cast<int64_t>(tensors.size());
  TensorRef made = target_for("stack_rows", first.dtype, rows, first, 0, out);
  auto item = static_cast<int64_t>(item_size(first.dtype));
  int64_t bytes = first.numel() * item;
  View to = first;
  std::copy_n(made->view.strides + 1, first.ndim, to.strides);
  to.data = made->view.data;
  for_rows(rows, bytes, [&](int64_t begin, int64_t end) {
    View target = to;
    for (int64_t i = begin; i < end; ++i) {
      target.data = to.data + i * bytes;
      copy_view(tensors[i]->view, target);
    }
  });
  return made;
}

}  // namespace

void register_rows(nb::module_& m) {
  m.def("take_rows", &take_rows, nb::arg("tensor"), nb::arg("indices"), nb::arg("out") = nb::none(),
        "The rows of these numbers, copied to a new tensor or to `out`.");
  m.def("stack_rows", &stack_rows, nb::arg("tensors"), nb::arg("out") = nb::none(),
        "Tensors of one shape and type, copied on top of each other to a new tensor or to `out`.");
}

}  // namespace tandem
