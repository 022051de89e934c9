// arg_extremum (x) -> int64 positions, ints [axes, smallest]: where the largest (smallest) element of every row is; a
// row is all of the last `axes` axes, flattened. x is row-major. The first of ties; NaN counts as the extremum. any_set
// (x) -> bool, ints [all]: whether any element (all elements) is not zero. x is row-major.
#include <algorithm>
#include <atomic>
#include <vector>

#include "device/parallel.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

template <typename T>
const SearchKernels<T>& search_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().search_f32;
  else if constexpr (std::is_same_v<T, double>)
    return kernels().search_f64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return kernels().search_i32;
  else
    return kernels().search_i64;
}

// One long row: pieces find theirs, the first of the best counts.
template <typename T>
int64_t search_long(const T* x, int64_t n, bool smallest, int64_t (*find)(const T*, int64_t)) {
  constexpr int64_t kPiece = 1 << 16;
  const int64_t pieces = (n + kPiece - 1) / kPiece;
  if (pieces == 1) return find(x, n);
  std::vector<int64_t> found(pieces);
  parallel_for(pieces, kPiece * 0.1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      found[p] = p * kPiece + find(x + p * kPiece, std::min(kPiece, n - p * kPiece));
  });
  int64_t best = found[0];
  for (const int64_t i : found) {
    if (x[best] != x[best]) break;
    if (x[i] != x[i] || (smallest ? x[i] < x[best] : x[i] > x[best])) best = i;
  }
  return best;
}

template <typename T>
void search_rows(const View& x, int64_t rows, int64_t n, bool smallest, int64_t* to) {
  const auto find = smallest ? search_kernels<T>().argmin : search_kernels<T>().argmax;
  if (rows == 1) {
    *to = search_long(x.as<T>(), n, smallest, find);
    return;
  }
  parallel_for(rows, n * 0.1 + 10, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) to[row] = find(x.as<T>() + row * n, n);
  });
}

void run_arg_extremum(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 2);
  const View &x = call.inputs[0], &to = call.outputs[0];
  TD_CHECK(to.dtype == DType::Int64 && x.is_contiguous() && to.is_contiguous(), "layout of arg_extremum");
  int64_t n = 1;
  for (int64_t d = x.ndim - call.ints[0]; d < x.ndim; ++d) n *= x.shape[d];
  const int64_t rows = to.numel();
  if (rows == 0) return;
  TD_CHECK(n > 0 && rows * n == x.numel(), "rows of arg_extremum");
  const bool smallest = call.ints[1] != 0;
  switch (x.dtype) {
    case DType::Float32:
      return search_rows<float>(x, rows, n, smallest, to.as<int64_t>());
    case DType::Float64:
      return search_rows<double>(x, rows, n, smallest, to.as<int64_t>());
    case DType::Int32:
      return search_rows<int32_t>(x, rows, n, smallest, to.as<int64_t>());
    case DType::Int64:
      return search_rows<int64_t>(x, rows, n, smallest, to.as<int64_t>());
    default:
      unsupported("arg_extremum", x.dtype);
  }
}

template <typename T>
bool stands(const T* x, int64_t n, bool all) {  // whether this stretch leaves the answer open
  constexpr int64_t kLook = 256;  // elements between two decisions: few enough to stop early, many enough for vectors
  for (int64_t i = 0; i < n; i += kLook) {
    const int64_t end = std::min(n, i + kLook);
    int64_t set = 0;
    for (int64_t k = i; k < end; ++k) {
      if constexpr (kIsFloat<T>)
        set += static_cast<Wide<T>>(x[k]) != 0;
      else
        set += x[k] != 0;
    }
    if (all ? set != end - i : set != 0) return false;
  }
  return true;
}

// Bytes, eight at a time.
template <>
bool stands<uint8_t>(const uint8_t* x, int64_t n, bool all) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t words[8];
    std::copy_n(x + i, 64, reinterpret_cast<uint8_t*>(words));
    uint64_t zero = 0, any = 0;
    for (const uint64_t w : words) {
      // The top bit of each byte that is zero (Mycroft), which tells rightly whether there is one.
      zero |= (w - 0x0101010101010101u) & ~w & 0x8080808080808080u;
      any |= w;
    }
    if (all ? zero != 0 : any != 0) return false;
  }
  for (; i < n; ++i)
    if ((x[i] != 0) != all) return false;
  return true;
}

void run_any_set(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 1);
  const View& x = call.inputs[0];
  TD_CHECK(x.is_contiguous() && call.outputs[0].dtype == DType::Bool && call.outputs[0].numel() == 1, "any_set");
  const bool all = call.ints[0] != 0;
  std::atomic<bool> open{true};
  for_real("any_set", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int64_t kPiece = 1 << 14;
    const int64_t n = x.numel(), pieces = (n + kPiece - 1) / kPiece;
    const auto look = [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end && open.load(std::memory_order_relaxed); ++p)
        if (!stands(x.as<T>() + p * kPiece, std::min(kPiece, n - p * kPiece), all)) open = false;
    };
    if (pieces) look(0, 1);  // often enough to tell
    if (pieces > 1 && open)
      parallel_for(pieces - 1, kPiece * sizeof(T) * 0.03,
                   [&](int64_t begin, int64_t end) { look(begin + 1, end + 1); });
  });
  *call.outputs[0].as<bool>() = open == all;
}

const Register arg_extremum("arg_extremum", &run_arg_extremum);
const Register any_set("any_set", &run_any_set);

}  // namespace
}  // namespace tandem::library
