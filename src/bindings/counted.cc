// Results whose size depends on the data, each in one call: counted, allocated and filled without going back to Python.
// Where that is not possible (memory of devices, inside compiled functions, where gradients are wanted) they give None,
// and Python takes the way through operators.
#include <algorithm>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/strided.h"
#include "modes.h"

namespace nb = nanobind;

namespace tandem {
namespace {

constexpr int64_t kLarge = 1 << 15;  // elements from which letting go of the GIL pays

bool usable(const TensorRef& t) {
  if (active_capture || !t->storage->on_host()) return false;
  if (t->requires_grad && grad_mode.enabled) return false;
  materialize(t.get());
  return true;
}

template <typename F>
void run(int64_t size, F&& body) {
  if (size < kLarge) {
    body();
    return;
  }
  nb::gil_scoped_release release;
  body();
}

// Routines by name, looked up once.
struct Routine {
  explicit Routine(const char* name) : function(library::find(name)) {}
  library::Function function;

  int64_t operator()(std::initializer_list<View> inputs, std::initializer_list<View> outputs,
                     std::initializer_list<int64_t> ints = {}) const {
    int64_t result[8] = {};
    library::Call call{std::data(inputs),
                       static_cast<int>(inputs.size()),
                       std::data(outputs),
                       static_cast<int>(outputs.size()),
                       std::data(ints),
                       static_cast<int>(ints.size()),
                       nullptr,
                       0,
                       result};
    run(std::data(inputs)->numel(), [&] { function(call); });
    return result[0];
  }
};

int64_t count_set(const View& x) {
  static const Routine count("nonzero_count");
  return count({x}, {});
}

nb::object nonzero(TensorRef x, bool as_tuple) {
  static const Routine find("nonzero");
  if (!usable(x)) return nb::none();
  const int64_t shape[] = {count_set(x->view), x->view.ndim};
  TensorRef rows = TensorRef::adopt(new_contiguous(DType::Int64, 2, shape));
  find({x->view}, {rows->view});
  if (!as_tuple) return nb::cast(rows);
  nb::object made = nb::steal(PyTuple_New(x->view.ndim));
  for (int d = 0; d < x->view.ndim; ++d) {
    char* data = rows->view.data + d * static_cast<int64_t>(sizeof(int64_t));
    Tensor* column = new_view(rows.get(), data, DType::Int64, 1, shape, rows->view.strides);
    PyTuple_SET_ITEM(made.ptr(), d, reinterpret_cast<PyObject*>(column));
  }
  return made;
}

nb::object masked_select(TensorRef x, TensorRef mask) {
  static const Routine compress("compress");
  if (!usable(x) || !usable(mask)) return nb::none();
  const View &from = x->view, &set = mask->view;
  if (set.dtype != DType::Bool || set.ndim == 0 || set.ndim > from.ndim ||
      !std::equal(set.shape, set.shape + set.ndim, from.shape))
    return nb::none();
  int64_t shape[kMaxDims] = {count_set(set)};
  const int rest = from.ndim - set.ndim;
  std::copy_n(from.shape + set.ndim, rest, shape + 1);
  TensorRef made = TensorRef::adopt(new_contiguous(from.dtype, rest + 1, shape));
  if (made->view.numel()) compress({from, set}, {made->view});
  return nb::cast(made);
}

nb::object bincount(TensorRef x, int64_t minlength) {
  static const Routine count("bincount");
  if (!usable(x) || x->view.dtype != DType::Int64 || x->view.ndim != 1) return nb::none();
  int64_t low = 0, high = -1;
  const View& view = x->view;
  run(view.numel(), [&] {
    const int64_t* from = view.as<int64_t>();
    const int64_t stride = view.strides[0];
    for (int64_t i = 0; i < view.shape[0]; ++i) {
      low = std::min(low, from[i * stride]);
      high = std::max(high, from[i * stride]);
    }
  });
  if (low < 0) return nb::none();
  const int64_t size = std::max(high + 1, minlength);
  TensorRef made = TensorRef::adopt(new_contiguous(DType::Int64, 1, &size));
  count({view}, {made->view}, {0});
  return nb::cast(made);
}

// Where a run of equal elements begins, and the runs' values. NaN differs from itself.
template <typename T>
int64_t count_runs(const T* x, int64_t n) {
  int64_t changes = n > 0;
  for (int64_t i = 1; i < n; ++i) changes += x[i] != x[i - 1];
  return changes;
}

nb::object unique_consecutive(TensorRef x, bool inverse, bool counts) {
  if (!usable(x) || x->view.ndim != 1 || !(x->view.is_contiguous())) return nb::none();
  const View& view = x->view;
  const int64_t n = view.shape[0];
  TensorRef values, numbers, sizes;
  const auto fill = [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, library::Half> || std::is_same_v<T, library::BFloat16>) {
      return;
    } else {
      const T* from = view.as<T>();
      int64_t runs = 0;
      run(n, [&] { runs = count_runs(from, n); });
      values = TensorRef::adopt(new_contiguous(view.dtype, 1, &runs));
      if (inverse) numbers = TensorRef::adopt(new_contiguous(DType::Int64, 1, &n));
      if (counts) sizes = TensorRef::adopt(new_contiguous(DType::Int64, 1, &runs));
      T* to = values->view.as<T>();
      int64_t* number = inverse ? numbers->view.as<int64_t>() : nullptr;
      int64_t* size = counts ? sizes->view.as<int64_t>() : nullptr;
      run(n, [&] {
        int64_t at = -1, start = 0;
        if (!number && !size && n > 0) {  // without branches, which would be mispredicted
          at = 0;
          for (int64_t i = 0; i + 1 < n; ++i) {
            to[at] = from[i];
            at += from[i + 1] != from[i];
          }
          to[at] = from[n - 1];
          return;
        }
        for (int64_t i = 0; i < n; ++i) {
          const bool begins = i == 0 || from[i] != from[i - 1];
          if (begins && size && at >= 0) size[at] = i - start, start = i;
          at += begins;
          to[at] = from[i];
          if (number) number[i] = at;
        }
        if (size && at >= 0) size[at] = n - start;
      });
    }
  };
  if (is_complex(view.dtype))
    library::for_complex("unique_consecutive", view.dtype, fill);
  else
    library::for_real("unique_consecutive", view.dtype, fill);
  if (!values) return nb::none();
  // -> tuple: (values, inverse, counts) as unique_consecutive gives them to users
  return nb::make_tuple(values, inverse ? nb::cast(numbers) : nb::none(), counts ? nb::cast(sizes) : nb::none());
}

TensorRef triangle_indices(int64_t rows, int64_t columns, int64_t offset, bool lower) {
  if (rows < 0 || columns < 0) fail(ErrorKind::Shape, "sizes ", rows, " and ", columns, " must not be negative");
  // Row r has the columns up to r + offset, or from there on. The offset is brought close, so that sums stay in range.
  offset = std::clamp(offset, -rows - 1, columns + 1);
  const auto edge = [&](int64_t r) { return std::clamp<int64_t>(r + offset + (lower ? 1 : 0), 0, columns); };
  int64_t shape[2] = {2, 0};
  for (int64_t r = 0; r < rows; ++r) shape[1] += lower ? edge(r) : columns - edge(r);
  TensorRef made = TensorRef::adopt(new_contiguous(DType::Int64, 2, shape));
  int64_t *row = made->view.as<int64_t>(), *column = row + shape[1];
  run(shape[1], [&] {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = lower ? 0 : edge(r), end = lower ? edge(r) : columns; c < end; ++c) *row++ = r, *column++ = c;
  });
  return made;
}

}  // namespace

void register_counted(nb::module_& m) {
  m.def("nonzero", &nonzero, nb::arg("x"), nb::arg("as_tuple"),
        "Positions of elements that are not zero: (count, ndim), or one tensor for each axis. None: take another way.");
  m.def("masked_select", &masked_select, nb::arg("x"), nb::arg("mask"),
        "x[mask], where the mask has the leading axes of x. None: take another way.");
  m.def("bincount", &bincount, nb::arg("x"), nb::arg("minlength"),
        "How often 0, 1, ... occur in int64 numbers that are not negative. None: take another way.");
  m.def("unique_consecutive", &unique_consecutive, nb::arg("x"), nb::arg("inverse"), nb::arg("counts"),
        "(values, numbers or None, counts or None) of the runs of equal elements of a row-major vector. None: take "
        "another way.");
  m.def("triangle_indices", &triangle_indices, nb::arg("rows"), nb::arg("columns"), nb::arg("offset"), nb::arg("lower"),
        "(2, count): positions of the lower or upper triangle of a matrix.");
}

}  // namespace tandem
