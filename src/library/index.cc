// check_index (index), ints [bound, allow_negative, axis]: throws Error(Index) for the first value that is out of
// range. check_weights (codes): throws Error(Value) for the first int64 that is not 0.
// check_divisor (y): throws Error(Division) for a 0. nonzero_count (x):
// int_results[0] = how many elements are not zero. nonzero (x) -> (count, ndim) int64: their positions, in order.
#include <algorithm>
#include <atomic>
#include <vector>

#include "device/parallel.h"
#include "fault_codes.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

// Calls body(row address, stride, length, number of the first element) along the rows of x in order, from element
// `begin` to `end` of the flattened array.
template <typename T, typename F>
void for_rows(const View& x, const Loop<1>& loop, int64_t begin, int64_t end, F&& body) {
  if (begin >= end) return;
  if (loop.ndim == 0) return body(x.as<T>(), int64_t{1}, int64_t{1}, begin);
  const int inner = loop.ndim - 1;
  const int64_t length = loop.shape[inner], stride = loop.strides[0][inner];
  int64_t index[kMaxDims], offset[1];
  loop.locate(begin / length, inner, index, offset);
  for (int64_t at = begin; at < end;) {
    const int64_t first = at % length, count = std::min(length - first, end - at);
    body(x.as<T>() + offset[0] + first * stride, stride, count, at);
    loop.advance(inner, index, offset);
    at += count;
  }
}

template <typename T>
void row_range(const T* row, int64_t stride, int64_t n, int64_t* smallest, int64_t* largest) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (stride == 1) return kernels().range_i64(row, n, smallest, largest);
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if (stride == 1) return kernels().range_i32(row, n, smallest, largest);
  }
  for (int64_t i = 0; i < n; ++i) {
    const T value = row[i * stride];
    // An unsigned value beyond int64 is beyond every bound as well.
    const int64_t wide =
        std::is_same_v<T, uint64_t> && static_cast<int64_t>(value) < 0 ? INT64_MAX : static_cast<int64_t>(value);
    *smallest = std::min(*smallest, wide);
    *largest = std::max(*largest, wide);
  }
}

void run_check_index(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_ints == 3);
  const View& x = call.inputs[0];
  const int64_t bound = call.ints[0], lowest_allowed = call.ints[1] ? -bound : 0, axis = call.ints[2];
  const int64_t total = x.numel();
  if (total == 0) return;
  const Loop<1> loop = make_loop<1>({&x}, 0, x.ndim, false);
  for_real("check_index", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (kIsFloat<T>) {
      unsupported("check_index", x.dtype);
    } else {
      std::atomic<bool> bad{false};
      parallel_for(total, 0.3, [&](int64_t begin, int64_t end) {
        int64_t smallest = INT64_MAX, largest = INT64_MIN;
        for_rows<T>(x, loop, begin, end, [&](const T* row, int64_t stride, int64_t n, int64_t) {
          row_range(row, stride, n, &smallest, &largest);
        });
        if (smallest < lowest_allowed || largest >= bound) bad = true;
      });
      if (!bad) return;
      for_rows<T>(x, loop, 0, total, [&](const T* row, int64_t stride, int64_t n, int64_t) {
        for (int64_t i = 0; i < n; ++i) {
          int64_t smallest = INT64_MAX, largest = INT64_MIN;
          row_range(row + i * stride, 1, 1, &smallest, &largest);
          if (smallest < lowest_allowed || largest >= bound)
            fail(ErrorKind::Index, "index ", +row[i * stride], " is out of range for axis ", axis, " with size ",
                 bound);
        }
      });
    }
  });
}

void run_check_weights(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.inputs[0].dtype == DType::Int64);
  const View& x = call.inputs[0];
  const Loop<1> loop = make_loop<1>({&x}, 0, x.ndim, false);
  for_rows<int64_t>(x, loop, 0, x.numel(), [&](const int64_t* row, int64_t stride, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i)
      if (row[i * stride]) fail(ErrorKind::Value, weight_fault(row[i * stride]));
  });
}

void run_check_divisor(const Call& call) {
  const View& x = call.inputs[0];
  const Loop<1> loop = make_loop<1>({&x}, 0, x.ndim, false);
  for_real("check_divisor", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    std::atomic<bool> bad{false};
    parallel_for(x.numel(), 0.3, [&](int64_t begin, int64_t end) {
      for_rows<T>(x, loop, begin, end, [&](const T* row, int64_t stride, int64_t n, int64_t) {
        bool zero = false;
        for (int64_t i = 0; i < n; ++i) zero |= row[i * stride] == T{};
        if (zero) bad = true;
      });
    });
    if (bad) fail(ErrorKind::Division, kDividedByZero);
  });
}

// The flattened array in pieces of this many elements: counted first, so that each piece knows where its positions go.
constexpr int64_t kPiece = 1 << 14;

template <typename T>
bool is_set(const T* p) {
  if constexpr (kIsFloat<T>)
    return static_cast<Wide<T>>(*p) != 0;
  else
    return *p != 0;
}

template <typename F>
void for_any(DType dtype, F&& body) {
  struct Complex64 {
    float re, im;
    bool operator!=(int) const { return re != 0 || im != 0; }
  };
  struct Complex128 {
    double re, im;
    bool operator!=(int) const { return re != 0 || im != 0; }
  };
  if (dtype == DType::Complex64) return body(Type<Complex64>{});
  if (dtype == DType::Complex128) return body(Type<Complex128>{});
  for_real("nonzero", dtype, body);
}

template <typename T>
int64_t count_set(const T* row, int64_t stride, int64_t n) {
  int64_t count = 0;
  if (stride == 1)  // in vectors
    for (int64_t i = 0; i < n; ++i) count += is_set(row + i);
  else
    for (int64_t i = 0; i < n; ++i) count += is_set(row + i * stride);
  return count;
}

// Bytes: sums of so few that they fit a byte are added up in bytes.
template <>
int64_t count_set<uint8_t>(const uint8_t* row, int64_t stride, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += 255) {
    const int64_t end = std::min(n, i + 255);
    uint8_t few = 0;
    if (stride == 1)
      for (int64_t k = i; k < end; ++k) few += row[k] != 0;
    else
      for (int64_t k = i; k < end; ++k) few += row[k * stride] != 0;
    count += few;
  }
  return count;
}

std::vector<int64_t> counts_by_piece(const View& x, const Loop<1>& loop) {
  const int64_t total = x.numel();
  std::vector<int64_t> counts((total + kPiece - 1) / kPiece, 0);
  for_any(x.dtype, [&](auto type) {
    using T = typename std::remove_reference_t<decltype(type)>::type;
    parallel_for(counts.size(), kPiece * 0.5, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        int64_t count = 0;
        for_rows<T>(x, loop, piece * kPiece, std::min((piece + 1) * kPiece, total),
                    [&](const T* row, int64_t stride, int64_t n, int64_t) { count += count_set(row, stride, n); });
        counts[piece] = count;
      }
    });
  });
  return counts;
}

void run_nonzero_count(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.int_results);
  const View& x = call.inputs[0];
  int64_t total = 0;
  for (const int64_t count : counts_by_piece(x, make_loop<1>({&x}, 0, x.ndim, false))) total += count;
  call.int_results[0] = total;
}

// Positions of the elements of a row that are set, the first of which has the given number. A run along the last axis
// is searched without branches, which would be mispredicted half the time.
template <typename T>
int64_t* write_positions(const T* row, int64_t stride, int64_t n, int64_t number, const View& x, const View& out,
                         int64_t* to, int32_t* found) {
  const int last = x.ndim - 1;
  const int64_t width = x.ndim ? x.shape[last] : 1;
  for (int64_t at = 0; at < n;) {
    const int64_t start = (number + at) % width, length = std::min(width - start, n - at);
    int64_t count = 0;
    const T* from = row + at * stride;
    for (int64_t i = 0; i < length; ++i) {
      found[count] = static_cast<int32_t>(i);
      count += is_set(from + i * stride);
    }
    int64_t outer[kMaxDims], rest = (number + at) / width;
    for (int d = last - 1; d >= 0; --d) {
      outer[d] = rest % x.shape[d];
      rest /= x.shape[d];
    }
    if (last == 0 && out.strides[0] == 1) {
      for (int64_t k = 0; k < count; ++k) to[k] = start + found[k];
      to += count;
    } else {
      for (int64_t k = 0; k < count; ++k, to += out.strides[0]) {
        for (int d = 0; d < last; ++d) to[d * out.strides[1]] = outer[d];
        if (last >= 0) to[last * out.strides[1]] = start + found[k];
      }
    }
    at += length;
  }
  return to;
}

void run_nonzero(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1);
  const View &x = call.inputs[0], &out = call.outputs[0];
  TD_CHECK(out.dtype == DType::Int64 && out.ndim == 2 && out.shape[1] == x.ndim, "output of nonzero");
  const Loop<1> loop = make_loop<1>({&x}, 0, x.ndim, false);
  std::vector<int64_t> first = counts_by_piece(x, loop);
  int64_t sum = 0;
  for (int64_t& entry : first) {
    const int64_t count = entry;
    entry = sum;
    sum += count;
  }
  TD_CHECK(sum == out.shape[0], "nonzero found ", sum, " elements for ", out.shape[0], " places");
  const int64_t total = x.numel();
  for_any(x.dtype, [&](auto type) {
    using T = typename std::remove_reference_t<decltype(type)>::type;
    parallel_for(first.size(), kPiece * 1.0, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> found(kPiece + 1);
      for (int64_t piece = begin; piece < end; ++piece) {
        int64_t* to = out.as<int64_t>() + first[piece] * out.strides[0];
        for_rows<T>(x, loop, piece * kPiece, std::min((piece + 1) * kPiece, total),
                    [&](const T* row, int64_t stride, int64_t n, int64_t number) {
                      to = write_positions(row, stride, n, number, x, out, to, found.data());
                    });
      }
    });
  });
}

const Register check_index("check_index", &run_check_index);
const Register check_weights("check_weights", &run_check_weights);
const Register check_divisor("check_divisor", &run_check_divisor);
const Register nonzero_count("nonzero_count", &run_nonzero_count);
const Register nonzero("nonzero", &run_nonzero);

}  // namespace
}  // namespace tandem::library
