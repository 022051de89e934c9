// matmul (a, b[, bias]) -> c.  16-bit floats are summed in float32, integers wrap around.
#include "library/matmul.h"

#include <algorithm>
#include <cstring>

#include "check.h"
#include "device/parallel.h"
#include "library/convert.h"
#include "library/deterministic.h"
#include "library/factors.h"
#include "library/gemm_blocked.h"
#include "library/gemm_listed.h"
#include "library/matmul_impl.h"
#include "library/product_choice.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

template <typename T>
void matmul_own(const Batched& p) {
  const int64_t count = p.batch.count(0, p.batch.ndim);
  const auto one = [&](const int64_t (&offset)[3]) {
    gemm<T>({p.m,
             p.n,
             p.k,
             {reinterpret_cast<const T*>(p.a.data) + offset[1], p.a.row, p.a.column},
             {reinterpret_cast<const T*>(p.b.data) + offset[2], p.b.row, p.b.column},
             {reinterpret_cast<T*>(p.c.data) + offset[0], p.c.row, p.c.column},
             reinterpret_cast<const T*>(p.bias)});
  };
  const auto some = [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims], offset[3];
    p.batch.locate(begin, p.batch.ndim, index, offset);
    for (int64_t i = begin; i < end; ++i) {
      one(offset);
      p.batch.advance(p.batch.ndim, index, offset);
    }
  };
  // Many matrices: a thread takes whole ones. Few: the threads share each.
  if (count == 1 || (count < 2 * num_threads() && !is_small(p.m, p.n, p.k))) return some(0, count);
  parallel_for(count, p.m * p.n * p.k * 0.05 * sizeof(T) / 4 + 30, some);
}

bool suits_own_code(const Batched& p) {
  if (p.dtype != DType::Float32) return false;
  const ProductKind kind = kind_of(p);
  return deterministic() ? kind != ProductKind::kNever && suggested(kind) : prefers_own(kind);
}

// oneDNN reads a transposed a by columns, which are copied to where they do not collide in the cache. (1024x700 @
// 700x256, a weight's gradient, took 9.0 ms against 4.9.)
bool columns_collide(const Batched& p) {
  return p.dtype == DType::Float32 && p.a.row == 1 && p.a.column > 1 && p.a.column % 1024 == 0 && p.k >= 128 &&
         p.n >= 64 && p.batch.count(0, p.batch.ndim) == 1;
}

// A few rows with a matrix whose columns are contiguous, as linear layers have it: dot products, as quick as memory is.
// (One row of 768 x 50257 comes from memory at 1.5 to 2 times oneDNN's rate.)
// Likewise a matrix with one vector.
bool are_dots(const Batched& p) {
  return p.dtype == DType::Float32 && (p.m <= 4 || (p.n == 1 && !p.bias)) && p.b.row == 1 && p.a.column == 1 &&
         p.batch.count(0, p.batch.ndim) == 1;
}

Product<float> product_of(const Batched& p) {
  return {p.m,
          p.n,
          p.k,
          {reinterpret_cast<const float*>(p.a.data), p.a.row, p.a.column},
          {reinterpret_cast<const float*>(p.b.data), p.b.row, p.b.column},
          {reinterpret_cast<float*>(p.c.data), p.c.row, p.c.column},
          reinterpret_cast<const float*>(p.bias)};
}

// Our own code does so where it computes a product; this is for the others.
bool leaves_out_zeros(const Batched& p) {
  if (p.dtype != DType::Float32 || p.batch.count(0, p.batch.ndim) != 1) return false;
  if (measuring()) need_scratch(listed_scratch(p.m, p.n, p.k));
  return !preparing() && listed_product(product_of(p));
}

void compute(const Batched& p);

void compute_spread(const Batched& p) {
  const int64_t step = (p.m + 16) % 1024 ? p.m + 16 : p.m + 32;
  Scratch<float> copy;
  if (!preparing()) {
    copy.resize(static_cast<size_t>(step * p.k));
    const float* from = reinterpret_cast<const float*>(p.a.data);
    parallel_for(p.k, 0.1 * static_cast<double>(p.m), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(copy.data() + i * step, from + i * p.a.column, static_cast<size_t>(p.m) * sizeof(float));
    });
  }
  Batched spread = p;
  spread.a.data = reinterpret_cast<char*>(copy.data());
  spread.a.column = step;
  compute(spread);
}

void compute(const Batched& p) {
  const bool own = is_small(p.m, p.n, p.k) || p.k == 0 || deterministic() || suits_own_code(p) || are_dots(p);
  if (!own && (p.dtype == DType::Float32 || p.dtype == DType::Float64)) {
    if (leaves_out_zeros(p)) return;
    if (columns_collide(p)) return compute_spread(p);
    if (matmul_onednn(p) || (!preparing() && matmul_openblas(p))) return;
  }
  if (measuring() && p.dtype == DType::Float32 && p.batch.count(0, p.batch.ndim) == 1 && !is_small(p.m, p.n, p.k))
    need_scratch(blocked_scratch<float>(p.m, p.n, std::min(p.k, kLongestProduct)));
  if (preparing()) return;
  switch (p.dtype) {
    case DType::Float32:
      return matmul_own<float>(p);
    case DType::Float64:
      return matmul_own<double>(p);
    case DType::Int32:
    case DType::UInt32:
      return matmul_own<uint32_t>(p);
    case DType::Int64:
    case DType::UInt64:
      return matmul_own<uint64_t>(p);
    default:
      unsupported("matmul", p.dtype);
  }
}

Batched normal_form(const View& a, const View& b, const View& c, const char* bias) {
  const int nd = c.ndim;
  TD_CHECK(nd >= 2 && a.ndim == nd && b.ndim == nd, "matmul of ", a.ndim, ", ", b.ndim, " -> ", nd, " dimensions");
  TD_CHECK(a.dtype == c.dtype && b.dtype == c.dtype, "matmul of different dtypes");
  Batched p;
  p.dtype = c.dtype;
  p.m = c.shape[nd - 2], p.n = c.shape[nd - 1], p.k = a.shape[nd - 1];
  TD_CHECK(a.shape[nd - 2] == p.m && b.shape[nd - 2] == p.k && b.shape[nd - 1] == p.n,
           "matmul of sizes that do not fit");
  for (int d = 0; d < nd - 2; ++d) TD_CHECK(a.shape[d] == c.shape[d] && b.shape[d] == c.shape[d], "batch of matmul");
  const auto operand = [nd](const View& v) {
    // The stride of an axis of one element says nothing; make it fit what the kernels look for.
    const int64_t rows = v.shape[nd - 2], columns = v.shape[nd - 1];
    int64_t row = v.strides[nd - 2], column = v.strides[nd - 1];
    if (columns == 1) column = rows > 1 && row == 1 ? rows : 1;
    if (rows == 1) row = column == 1 || columns == 1 ? columns : 1;
    return Operand{v.data, row, column};
  };
  p.a = operand(a), p.b = operand(b), p.c = operand(c);
  p.bias = bias;
  p.batch = make_loop<3>({&c, &a, &b}, 0, nd - 2, false);
  // A batch of a against one b is one taller product, where rows of a follow one another across the batch.
  while (p.batch.ndim > 0) {
    const int last = p.batch.ndim - 1;
    const bool tall =
        p.batch.strides[2][last] == 0 &&
        (p.m == 1 || (p.batch.strides[1][last] == p.m * p.a.row && p.batch.strides[0][last] == p.m * p.c.row));
    if (!tall) break;
    if (p.m == 1) p.a.row = p.batch.strides[1][last], p.c.row = p.batch.strides[0][last];
    p.m *= p.batch.shape[last];
    --p.batch.ndim;
  }
  return p;
}

// A contiguous copy in the wider type that products of x are computed in; broadcast axes stay broadcast.
struct Widened {
  View view;
  Scratch<char> memory;
};
void widen(const View& x, DType wide, Widened& result) {
  View one = x;
  for (int d = 0; d < x.ndim; ++d)
    if (x.strides[d] == 0) one.shape[d] = 1;
  result.view = one;
  result.view.dtype = wide;
  set_contiguous(result.view);
  result.memory.resize(std::max<int64_t>(one.numel(), 1) * item_size(wide));
  result.view.data = result.memory.data();
  convert_elements(one, result.view);
  for (int d = 0; d < x.ndim; ++d) {
    if (x.strides[d] == 0) result.view.strides[d] = 0;
    result.view.shape[d] = x.shape[d];
  }
}

DType computed_in(DType dtype) {
  switch (dtype) {
    case DType::Float16:
    case DType::BFloat16:
      return DType::Float32;
    case DType::Int8:
    case DType::Int16:
    case DType::UInt8:
    case DType::UInt16:
      return DType::Int32;
    default:
      return dtype;
  }
}

// Whether blocks of the result are computed here, one after another.
bool computes_blocks(const Batched& p) {
  return p.dtype == DType::Float32 && p.batch.count(0, p.batch.ndim) == 1 && p.m > 4 && p.k > 0 &&
         p.k <= kLongestProduct && p.c.column == 1 && !is_small(p.m, p.n, p.k) && suits_own_code(p);
}

// In a loop, where b stays the same: packed once.
struct KeptRight : Kept {
  explicit KeptRight(const Product<float>& p) : packed(p.b, p.n, p.k) {}
  PackedRight<float> packed;
};

// Returns false if other code computes this product.
bool matmul_by_blocks(const View& a, const View& b, const View& c, const View* bias, const Epilogue* epilogue,
                      std::unique_ptr<Kept>* kept) {
  if (bias && !bias->is_contiguous()) return false;
  const Batched form = normal_form(a, b, c, bias ? bias->data : nullptr);
  if (!computes_blocks(form)) return false;
  if (measuring()) need_scratch(blocked_scratch<float>(form.m, form.n, form.k));
  if (preparing()) return true;
  Product<float> p = product_of(form);
  p.epilogue = epilogue;
  if (kept && p.m <= kFewRows / 2) {
    p.packed = &kept_by<KeptRight>(*kept, [&] { return std::make_unique<KeptRight>(p); }).packed;
  }
  blocked_product(p);
  return true;
}

void matmul_then(const View& a, const View& b, const View& c, const View* bias, const Epilogue& epilogue,
                 std::unique_ptr<Kept>* kept) {
  if (matmul_by_blocks(a, b, c, bias, &epilogue, kept)) return;
  View result = c;
  Scratch<char> memory;
  if (!epilogue.keeps) {
    const size_t bytes = static_cast<size_t>(c.numel()) * item_size(c.dtype);
    if (preparing()) {
      need_scratch(bytes);
    } else {
      memory.resize(bytes);
      result.data = memory.data();
    }
  }
  matmul(a, b, result, bias);
  if (!preparing()) epilogue.run_whole(result);
}

void run_matmul(const Call& call) {
  TD_CHECK((call.num_inputs == 2 || call.num_inputs == 3) && call.num_outputs == 1);
  const View &a = call.inputs[0], &b = call.inputs[1], &c = call.outputs[0];
  const View* bias = call.num_inputs == 3 ? &call.inputs[2] : nullptr;
  std::unique_ptr<Kept>* kept = call.same & 2 ? call.kept : nullptr;
  if (call.epilogue && c.numel() > 0) return matmul_then(a, b, c, bias, *call.epilogue, kept);
  if (c.dtype == DType::BFloat16 && c.numel() > 0 && (!bias || bias->is_contiguous()) &&
      matmul_bf16(normal_form(a, b, c, bias ? bias->data : nullptr), kept))
    return;
  if (kept && c.numel() > 0 && matmul_by_blocks(a, b, c, bias, nullptr, kept)) return;
  matmul(a, b, c, bias);
}

const Register registered("matmul", &run_matmul, true);

}  // namespace

void Factors::multiply() const {
  matmul(a, b, c, nullptr);
}

void matmul(const View& a, const View& b, const View& c, const View* bias) {
  if (c.numel() == 0) return;
  const DType wide = computed_in(c.dtype);
  if (wide != c.dtype) {
    if (!bias) {
      const Batched p = normal_form(a, b, c, nullptr);
      if (matmul_bf16(p, nullptr)) return;
      if (p.k > 0 && !is_small(p.m, p.n, p.k) && !deterministic() && matmul_onednn(p)) return;
    }
    if (preparing()) return;
    Widened wide_a, wide_b, wide_bias;
    widen(a, wide, wide_a);
    widen(b, wide, wide_b);
    if (bias) widen(*bias, wide, wide_bias);
    const Scratch<char> memory(c.numel() * item_size(wide));
    View result = c;
    result.dtype = wide, result.data = memory.data();
    set_contiguous(result);
    matmul(wide_a.view, wide_b.view, result, bias ? &wide_bias.view : nullptr);
    convert_elements(result, c);
    return;
  }
  if (!bias) return compute(normal_form(a, b, c, nullptr));
  TD_CHECK(bias->ndim == 1 && bias->shape[0] == c.shape[c.ndim - 1] && bias->dtype == c.dtype, "bias of matmul");
  if (bias->is_contiguous()) return compute(normal_form(a, b, c, bias->data));
  if (preparing()) return;
  Widened dense;
  View line = *bias;
  dense.memory.resize(line.numel() * item_size(line.dtype));
  View target = line;
  target.data = dense.memory.data();
  set_contiguous(target);
  copy_elements(line, target);
  compute(normal_form(a, b, c, target.data));
}

}  // namespace tandem::library
