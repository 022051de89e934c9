// Products by oneDNN (float32, and 16-bit floats where the CPU has them) or by OpenBLAS.
#include <algorithm>

#include "check.h"
#include "device/parallel.h"
#include "library/blas.h"
#include "library/gemm_impl.h"
#include "library/matmul_impl.h"
#include "library/onednn.h"
#include "library/registry.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

// Row- or column-major with rows that do not overlap, as a BLAS wants it.
bool is_plain(const Operand& x, int64_t rows, int64_t columns) {
  return (x.column == 1 && x.row >= columns) || (x.row == 1 && x.column >= rows);
}

// Calls body with the same problem on plain operands and a row-major result, copying those that are not.
template <typename F>
bool with_plain_operands(const Batched& p, F&& body) {
  Batched q = p;
  Scratch<char> copies[3];
  const size_t size = item_size(p.dtype);
  const auto dense_copy = [&](Operand& x, int k, int64_t rows, int64_t columns, bool load) {
    // Broadcast batch axes stay broadcast; the others become dense.
    View from{};
    from.data = x.data, from.dtype = p.dtype, from.ndim = q.batch.ndim + 2;
    int64_t stride = rows * columns;
    Loop<3>& batch = q.batch;
    View to = from;
    for (int d = batch.ndim - 1; d >= 0; --d) {
      const bool broadcast = batch.strides[k][d] == 0;
      from.shape[d] = to.shape[d] = broadcast ? 1 : batch.shape[d];
      from.strides[d] = batch.strides[k][d];
      to.strides[d] = broadcast ? 0 : stride;
      if (!broadcast) stride *= batch.shape[d];
      batch.strides[k][d] = to.strides[d];
    }
    const int nd = from.ndim;
    from.shape[nd - 2] = to.shape[nd - 2] = rows, from.shape[nd - 1] = to.shape[nd - 1] = columns;
    from.strides[nd - 2] = x.row, from.strides[nd - 1] = x.column;
    to.strides[nd - 2] = columns, to.strides[nd - 1] = 1;
    preparing() ? need_scratch(stride * size) : copies[k].resize(stride * size);
    to.data = copies[k].data();
    if (load && !preparing()) copy_elements(from, to);
    x = {to.data, columns, 1};
    return std::pair(from, to);
  };
  if (!is_plain(p.a, p.m, p.k)) dense_copy(q.a, 1, p.m, p.k, true);
  if (!is_plain(p.b, p.k, p.n)) dense_copy(q.b, 2, p.k, p.n, true);
  if (is_plain(p.c, p.m, p.n) && p.c.column == 1) return body(q);
  const auto [target, result] = dense_copy(q.c, 0, p.m, p.n, false);
  if (!body(q)) return false;
  if (!preparing()) copy_elements(result, target);
  return true;
}

}  // namespace

#ifdef TANDEM_ONEDNN
namespace {

using namespace onednn;

struct MatmulProgram : Program {
  std::unique_ptr<Executable> run;
};

// Up to this many batch axes go to oneDNN as they are; it is far more than programs have after merging.
constexpr int kBatchAxes = 6;

// Elements of k that float32 is summed over at a time. oneDNN adds them one after another; in slices, which are added
// up in c, a sum rounds as little as in the best libraries.
constexpr int64_t kSlice = 256;

Key key_of(const Batched& p, bool adds) {
  Key key;
  key.add(adds ? 2 : 1);  // a matmul
  key.add(static_cast<int64_t>(p.dtype) * 2 + (p.bias != nullptr));
  key.add(team_size());
  for (const int64_t word : {p.m, p.n, p.k, p.a.row, p.a.column, p.b.row, p.b.column, p.c.row, p.c.column})
    key.add(word);
  key.add(p.batch.shape, p.batch.ndim);
  for (int k = 0; k < 3; ++k) key.add(p.batch.strides[k], p.batch.ndim);
  return key;
}

Handle<dnnl_post_ops_t> adding() {
  dnnl_post_ops_t made;
  check(api()->dnnl_post_ops_create(&made), "post-operations");
  Handle<dnnl_post_ops_t> after(made);
  check(api()->dnnl_post_ops_append_sum(made, 1.0f, 0, dnnl_data_type_undef), "sum");
  return after;
}

// adds: to what c holds.
std::unique_ptr<Program> make(const Batched& p, bool adds) {
  const int nd = p.batch.ndim + 2;
  const auto matrix = [&](const Operand& x, int k, int64_t rows, int64_t columns) {
    int64_t shape[kMaxDims], strides[kMaxDims];
    // A broadcast axis has size 1 there; its stride must still look like one of a dense array.
    int64_t whole = rows * columns;
    for (int d = nd - 3; d >= 0; --d) {
      const bool broadcast = p.batch.strides[k][d] == 0;
      shape[d] = broadcast ? 1 : p.batch.shape[d];
      strides[d] = broadcast ? whole : p.batch.strides[k][d];
      if (!broadcast) whole = std::max(whole, strides[d] * shape[d]);
    }
    shape[nd - 2] = rows, shape[nd - 1] = columns;
    strides[nd - 2] = x.row, strides[nd - 1] = x.column;
    return describe(p.dtype, nd, shape, strides);
  };
  const Desc a = matrix(p.a, 1, p.m, p.k), b = matrix(p.b, 2, p.k, p.n), c = matrix(p.c, 0, p.m, p.n);
  Desc bias;
  if (p.bias) {
    int64_t shape[kMaxDims], strides[kMaxDims];
    for (int d = 0; d < nd; ++d) shape[d] = 1, strides[d] = p.n;
    shape[nd - 1] = p.n, strides[nd - 1] = 1;
    bias = describe(p.dtype, nd, shape, strides);
  }
  auto program = std::make_unique<MatmulProgram>();
  program->run = std::make_unique<Executable>(
      [&](dnnl_primitive_desc_t* desc, const_dnnl_primitive_attr_t attr) {
        return api()->dnnl_matmul_primitive_desc_create(desc, engine(), a.get(), b.get(), bias.get(), c.get(), attr);
      },
      "matmul", adds ? adding().get() : nullptr);
  program->run->bind(DNNL_ARG_SRC, a.get());
  program->run->bind(DNNL_ARG_WEIGHTS, b.get());
  program->run->bind(DNNL_ARG_DST, c.get());
  if (p.bias) program->run->bind(DNNL_ARG_BIAS, bias.get());
  return program;
}

void run_product(const Batched& p, bool adds) {
  auto* program = static_cast<MatmulProgram*>(cached(key_of(p, adds), [&] { return make(p, adds); }));
  if (measuring()) need_scratch(program->run->scratch());
  if (!program || measuring()) return;
  if (p.bias)
    program->run->run({p.a.data, p.b.data, p.c.data, const_cast<char*>(p.bias)});
  else
    program->run->run({p.a.data, p.b.data, p.c.data});
}

}  // namespace

bool matmul_onednn(const Batched& p) {
  if (p.dtype == DType::Float64 || p.batch.ndim > kBatchAxes || !api()) return false;
  if (p.dtype == DType::BFloat16  ? !has_bfloat16()
      : p.dtype == DType::Float16 ? !has_float16()
                                  : p.dtype != DType::Float32)
    return false;
  for (int d = 0; d < p.batch.ndim; ++d)  // it wants an axis of the result in at least one operand
    if (p.batch.strides[1][d] == 0 && p.batch.strides[2][d] == 0) return false;
  return with_plain_operands(p, [](const Batched& q) {
    const int64_t slices = q.dtype == DType::Float32 ? divide_up(q.k, kSlice) : 1, depth = divide_up(q.k, slices);
    for (int64_t first = 0; first < q.k; first += depth) {
      Batched slice = q;
      slice.k = std::min(depth, q.k - first);
      slice.a.data += first * q.a.column * static_cast<int64_t>(item_size(q.dtype));
      slice.b.data += first * q.b.row * static_cast<int64_t>(item_size(q.dtype));
      if (first > 0) slice.bias = nullptr;
      run_product(slice, first > 0);
    }
    return true;
  });
}
#else
bool matmul_onednn(const Batched&) {
  return false;
}
#endif

bool matmul_openblas(const Batched& p) {
  const OpenBlas* blas = openblas();
  if (!blas || std::max({p.m, p.n, p.k, p.a.row, p.a.column, p.b.row, p.b.column, p.c.row}) > INT32_MAX) return false;
  if (p.dtype != DType::Float32 && p.dtype != DType::Float64) return false;
  return with_plain_operands(p, [blas](const Batched& q) {
    blas->set_num_threads(in_parallel() ? 1 : num_threads());
    const auto each = [&](auto gemm, auto zero) {
      using T = decltype(zero);
      int64_t index[kMaxDims], offset[3];
      q.batch.locate(0, q.batch.ndim, index, offset);
      for (int64_t i = 0, count = q.batch.count(0, q.batch.ndim); i < count; ++i) {
        T* c = reinterpret_cast<T*>(q.c.data) + offset[0];
        if (q.bias)
          for (int64_t r = 0; r < q.m; ++r) std::copy_n(reinterpret_cast<const T*>(q.bias), q.n, c + r * q.c.row);
        constexpr int kRowMajor = 101, kAsIs = 111, kTransposed = 112;
        const bool ta = q.a.column != 1, tb = q.b.column != 1;
        gemm(kRowMajor, ta ? kTransposed : kAsIs, tb ? kTransposed : kAsIs, q.m, q.n, q.k, T(1),
             reinterpret_cast<const T*>(q.a.data) + offset[1], ta ? q.a.column : q.a.row,
             reinterpret_cast<const T*>(q.b.data) + offset[2], tb ? q.b.column : q.b.row, q.bias ? T(1) : T(0), c,
             q.c.row);
        q.batch.advance(q.batch.ndim, index, offset);
      }
    };
    if (q.dtype == DType::Float32)
      each(blas->sgemm, 0.0f);
    else
      each(blas->dgemm, 0.0);
    return true;
  });
}

}  // namespace tandem::library
