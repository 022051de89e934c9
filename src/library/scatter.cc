// scatter (base, updates, index...) -> out, ints [k, mode]: out = base, then out[index...] op= updates.
//
// The k index tensors (int32 or int64, one shape, not negative) address the leading k axes of out; updates has the
// shape index_shape + out.shape[k:]. Modes: 0 set, 1 add, 2 max, 3 min, 4 multiply. Updates of one place are applied in
// the order of the index, whatever the number of threads. If out is base's memory nothing is copied.
#include <algorithm>

#include "device/parallel.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

enum Mode : int64_t { kSet, kAdd, kMax, kMin, kMultiply };

template <typename T, Mode mode>
void apply(T* to, const T* from, int64_t n) {
  if constexpr (mode == kSet) {
    std::copy(from, from + n, to);
  } else if constexpr (kIsComplex<T>) {
    for (int64_t i = 0; i < n; ++i) to[i] = mode == kAdd ? to[i] + from[i] : multiply(to[i], from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      using W = Wide<T>;
      const W a = to[i], b = from[i];
      if constexpr (mode == kMax)
        to[i] = T(a > b || is_nan(a) ? a : b);
      else if constexpr (mode == kMin)
        to[i] = T(a < b || is_nan(a) ? a : b);
      else if constexpr (kIsFloat<T>)
        to[i] = T(mode == kAdd ? a + b : a * b);
      else
        to[i] = static_cast<T>(mode == kAdd ? uint64_t(a) + uint64_t(b) : uint64_t(a) * uint64_t(b));
    }
  }
}

// Number of the addressed row for every update, or with `offsets` where it starts in memory.
void rows_of(const Call& call, int64_t k, const View& out, bool offsets, int64_t* rows, int64_t count) {
  std::fill(rows, rows + count, 0);
  for (int64_t axis = 0; axis < k; ++axis) {
    const View& index = call.inputs[2 + axis];
    TD_CHECK(index.dtype == DType::Int64 || index.dtype == DType::Int32, "scatter by an index of ", name(index.dtype));
    const Loop<1> loop = make_loop<1>({&index}, 0, index.ndim, false);
    const int64_t size = out.shape[axis];
    if (index.dtype == DType::Int64 && index.is_contiguous()) {
      const int64_t step = out.strides[axis], *values = index.as<int64_t>();
      parallel_for(count, 1.0, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t value = values[i];
          if (value < 0 || value >= size)
            fail(ErrorKind::Index, "index ", value, " is out of range for axis ", axis, " with size ", size);
          rows[i] = offsets ? rows[i] + value * step : rows[i] * size + value;
        }
      });
      continue;
    }
    parallel_for(count, 2.0, [&](int64_t begin, int64_t end) {
      int64_t position[kMaxDims], offset[1];
      loop.locate(begin, loop.ndim, position, offset);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t value =
            index.dtype == DType::Int64 ? index.as<int64_t>()[offset[0]] : index.as<int32_t>()[offset[0]];
        if (value < 0 || value >= size)
          fail(ErrorKind::Index, "index ", value, " is out of range for axis ", axis, " with size ", size);
        rows[i] = offsets ? rows[i] + value * out.strides[axis] : rows[i] * size + value;
        loop.advance(loop.ndim, position, offset);
      }
    });
  }
}

// Single elements into one axis, all of it dense: one pass that checks and writes.
template <typename T, Mode mode>
void scatter_elements(T* out, int64_t size, const T* updates, const int64_t* index, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = index[i];
    if (value < 0 || value >= size)
      fail(ErrorKind::Index, "index ", value, " is out of range for axis 0 with size ", size);
    apply<T, mode>(out + value, updates + i, 1);
  }
}

template <typename T, Mode mode>
void scatter_rows(T* out, const T* updates, const int64_t* rows, int64_t count, int64_t num_rows, int64_t tail) {
  const double cost = (tail * 0.4 + 3) * count;  // of everything
  const int64_t threads = num_threads();
  if (tail >= 512 * threads) {  // wide rows: each piece does all updates of some columns
    const int64_t width = 256, pieces = (tail + width - 1) / width;
    return parallel_for(pieces, cost / pieces, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * width, n = std::min(end * width, tail) - first;
      for (int64_t i = 0; i < count; ++i) apply<T, mode>(out + rows[i] * tail + first, updates + i * tail + first, n);
    });
  }
  if (tail <= 4 && threads <= 4) {  // looking at an update takes as long as doing it
    for (int64_t i = 0; i < count; ++i) apply<T, mode>(out + rows[i] * tail, updates + i * tail, tail);
    return;
  }
  // Otherwise each piece looks at all updates and does those that fall into its share of the rows.
  const int64_t pieces = std::min(num_rows, threads);
  parallel_for(pieces, cost / pieces, [&](int64_t begin, int64_t end) {
    const int64_t first = num_rows * begin / pieces, last = num_rows * end / pieces;
    for (int64_t i = 0; i < count; ++i)
      if (rows[i] >= first && rows[i] < last) apply<T, mode>(out + rows[i] * tail, updates + i * tail, tail);
  });
}

// Into memory that is not dense: each piece does all updates of some positions along the axes that are not indexed.
template <typename T, Mode mode>
void scatter_strided(const View& out, int64_t k, const T* updates, const int64_t* starts, int64_t count, int64_t tail) {
  const Loop<1> loop = make_loop<1>({&out}, static_cast<int>(k), out.ndim, false);
  const int inner = loop.ndim - 1;
  const int64_t length = loop.ndim ? loop.shape[inner] : 1, stride = loop.ndim ? loop.strides[0][inner] : 0;
  parallel_for(tail, 1.5 * count, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t index[kMaxDims], offset[1] = {0};
      if (loop.ndim) loop.locate(begin / length, inner, index, offset);
      for (int64_t at = begin; at < end;) {
        const int64_t first = at % length, n = std::min(length - first, end - at);
        T* to = out.as<T>() + starts[i] + offset[0] + first * stride;
        const T* from = updates + i * tail + at;
        for (int64_t j = 0; j < n; ++j) apply<T, mode>(to + j * stride, from + j, 1);
        if (loop.ndim) loop.advance(inner, index, offset);
        at += n;
      }
    }
  });
}

void run_scatter(const Call& call) {
  TD_CHECK(call.num_inputs >= 3 && call.num_outputs == 1 && call.num_ints == 2);
  const View &base = call.inputs[0], &updates = call.inputs[1], &out = call.outputs[0];
  const int64_t k = call.ints[0];
  int64_t mode = call.ints[1];
  TD_CHECK(k == call.num_inputs - 2 && k <= out.ndim && updates.dtype == out.dtype && base.dtype == out.dtype,
           "scatter");
  if (out.data != base.data) copy_elements(base, out);
  const int64_t count = call.inputs[2].numel();
  if (updates.numel() == 0 || out.numel() == 0) return;
  if (out.dtype == DType::Bool) mode = mode == kAdd ? kMax : mode == kMultiply ? kMin : mode;  // or, and

  const bool dense = out.is_contiguous();
  // On several threads each would look at all updates; so much work as that one thread does alone.
  const View& only = call.inputs[2];
  const bool single = dense && k == 1 && out.ndim == 1 && only.dtype == DType::Int64 && only.is_contiguous();
  const Scratch<int64_t> rows(single ? 0 : count);
  if (!single) rows_of(call, k, out, !dense, rows.data(), count);
  int64_t num_rows = 1, tail = 1;
  for (int d = 0; d < out.ndim; ++d) (d < k ? num_rows : tail) *= out.shape[d];
  TD_CHECK(updates.numel() == count * tail, "updates of scatter");

  // The loops below are over dense updates; other layouts pass through a copy.
  const size_t size = item_size(out.dtype);
  Scratch<char> dense_updates;
  View from = updates;
  if (!updates.is_contiguous()) {
    dense_updates.resize(updates.numel() * size);
    from.data = dense_updates.data();
    set_contiguous(from);
    copy_elements(updates, from);
  }
  const auto run = [&](auto type, auto m) {
    using T = typename decltype(type)::type;
    constexpr Mode kMode = decltype(m)::value;
    if (single)
      scatter_elements<T, kMode>(out.as<T>(), out.shape[0], from.as<T>(), only.as<int64_t>(), count);
    else if (dense)
      scatter_rows<T, kMode>(out.as<T>(), from.as<T>(), rows.data(), count, num_rows, tail);
    else
      scatter_strided<T, kMode>(out, k, from.as<T>(), rows.data(), count, tail);
  };
  if (mode == kSet) {
    for_size(size, [&](auto type) { run(type, std::integral_constant<Mode, kSet>{}); });
  } else if (is_complex(out.dtype)) {
    TD_CHECK(mode == kAdd || mode == kMultiply, "mode ", mode, " of scatter");
    for_complex("scatter", out.dtype, [&](auto type) {
      if (mode == kAdd)
        run(type, std::integral_constant<Mode, kAdd>{});
      else
        run(type, std::integral_constant<Mode, kMultiply>{});
    });
  } else {
    for_real("scatter", out.dtype, [&](auto type) {
      switch (mode) {
        case kAdd:
          return run(type, std::integral_constant<Mode, kAdd>{});
        case kMax:
          return run(type, std::integral_constant<Mode, kMax>{});
        case kMin:
          return run(type, std::integral_constant<Mode, kMin>{});
        case kMultiply:
          return run(type, std::integral_constant<Mode, kMultiply>{});
        default:
          TD_CHECK(false, "mode ", mode, " of scatter");
      }
    });
  }
}

const Register scatter("scatter", &run_scatter);

}  // namespace
}  // namespace tandem::library
