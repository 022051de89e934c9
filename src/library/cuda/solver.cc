// cuda.cholesky, cuda.lu_factor, cuda.lu_solve, cuda.eigh by cuSOLVER, one matrix after the other on the stream;
// operands as in library/linalg/solve.cc and spectral.cc. cuda.cholesky leaves what it read in the other triangle.
//
// Where cuSOLVER is not installed, the routines of the CPU run on copies.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "device/cuda/device.h"
#include "library/cuda/host.h"
#include "library/cuda/open.h"
#include "library/registry.h"
#include "tensor/device_copy.h"

namespace tandem::library {
namespace {

using Handle = struct SolverTag*;
using Params = struct SolverParamsTag*;

struct Api {
  int (*create)(Handle*);
  int (*set_stream)(Handle, cuda::Stream);
  int (*create_params)(Params*);
  int (*potrf_bytes)(Handle, Params, int uplo, int64_t n, int type, const void* a, int64_t lda, int compute, size_t*,
                     size_t*);
  int (*potrf)(Handle, Params, int uplo, int64_t n, int type, void* a, int64_t lda, int compute, void*, size_t, void*,
               size_t, int* info);
  int (*getrf_bytes)(Handle, Params, int64_t m, int64_t n, int type, const void* a, int64_t lda, int compute, size_t*,
                     size_t*);
  int (*getrf)(Handle, Params, int64_t m, int64_t n, int type, void* a, int64_t lda, int64_t* pivots, int compute,
               void*, size_t, void*, size_t, int* info);
  int (*getrs)(Handle, Params, int mode, int64_t n, int64_t k, int type, const void* a, int64_t lda,
               const int64_t* pivots, int b_type, void* b, int64_t ldb, int* info);
  int (*syevd_bytes)(Handle, Params, int job, int uplo, int64_t n, int type, const void* a, int64_t lda, int w_type,
                     const void* w, int compute, size_t*, size_t*);
  int (*syevd)(Handle, Params, int job, int uplo, int64_t n, int type, void* a, int64_t lda, int w_type, void* w,
               int compute, void*, size_t, void*, size_t, int* info);
};

const Api* api() {  // null: not installed
  static const Api* made = []() -> const Api* {
    try {
      const cuda::LoadFrom load("cusolver");
      auto a = std::make_unique<Api>();
      load(a->create, "cusolverDnCreate");
      load(a->set_stream, "cusolverDnSetStream");
      load(a->create_params, "cusolverDnCreateParams");
      load(a->potrf_bytes, "cusolverDnXpotrf_bufferSize");
      load(a->potrf, "cusolverDnXpotrf");
      load(a->getrf_bytes, "cusolverDnXgetrf_bufferSize");
      load(a->getrf, "cusolverDnXgetrf");
      load(a->getrs, "cusolverDnXgetrs");
      load(a->syevd_bytes, "cusolverDnXsyevd_bufferSize");
      load(a->syevd, "cusolverDnXsyevd");
      return a.release();
    } catch (const Error&) {
      return nullptr;
    }
  }();
  return made;
}

void check(int status, const char* what) {
  if (status) fail(ErrorKind::Device, "cuSOLVER: ", what, " failed with status ", status);
}

struct Context {
  Handle handle;
  Params params;
};
Context context(const Call& call) {
  static Context made[cuda::kMaxDevices];
  Context& c = made[call.device];
  if (!c.handle) {
    check(api()->create(&c.handle), "cusolverDnCreate");
    check(api()->create_params(&c.params), "cusolverDnCreateParams");
  }
  check(api()->set_stream(c.handle, static_cast<cuda::Stream>(call.stream)), "cusolverDnSetStream");
  return c;
}

int type_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return 0;
    case DType::Float64:
      return 1;
    case DType::Complex64:
      return 4;
    default:
      TD_CHECK(dtype == DType::Complex128, "a matrix of ", name(dtype));
      return 5;
  }
}

int real_type(int type) {
  return type & 1;
}

int64_t rows(const View& v) {
  return v.shape[v.ndim - 2];
}
int64_t columns(const View& v) {
  return v.shape[v.ndim - 1];
}

// Matrices one after the other, each column by column.
class Columns {
 public:
  Columns(int device, const View& like) : view(like), memory(device, like.numel() * item_size(like.dtype)) {
    const int nd = like.ndim;
    view.data = memory.data();
    view.strides[nd - 2] = 1;
    view.strides[nd - 1] = rows(like);
    int64_t step = rows(like) * columns(like);
    for (int i = nd - 3; i >= 0; --i) {
      view.strides[i] = step;
      step *= like.shape[i];
    }
    bytes = static_cast<size_t>(rows(like) * columns(like)) * item_size(like.dtype);
    count = bytes ? like.numel() / (rows(like) * columns(like)) : 0;
  }
  char* matrix(int64_t i) const { return view.data + i * static_cast<int64_t>(bytes); }

  View view;
  size_t bytes;  // of one
  int64_t count;

 private:
  cuda::Workspace memory;
};

// Dense memory as a view of another shape's leading axes and one more of size n, with steps of `step` elements.
View lines(char* data, DType dtype, const View& like, int leading, int64_t n, int64_t step, int64_t between) {
  View v;
  v.data = data;
  v.dtype = dtype;
  v.ndim = leading + 1;
  v.shape[leading] = n;
  v.strides[leading] = step;
  for (int i = leading - 1; i >= 0; --i) {
    v.shape[i] = like.shape[i];
    v.strides[i] = between;
    between *= like.shape[i];
  }
  return v;
}

// int32 per matrix that cuSOLVER writes, as the result `info` and, where asked for, on the host.
class Infos {
 public:
  Infos(const Call& call, int64_t count) : call_(call), count_(count), memory_(call.device, count * sizeof(int32_t)) {}
  int* at(int64_t i) { return reinterpret_cast<int*>(memory_.data()) + i; }
  void store(const View& info) {
    View from = info;
    from.data = memory_.data();
    int64_t step = 1;
    for (int i = info.ndim - 1; i >= 0; --i) {
      from.strides[i] = step;
      step *= info.shape[i];
    }
    cuda::copy_elements(call_.device, from, info);
  }
  // (matrix, info) of the first that failed, or (-1, 0). Waits.
  std::pair<int64_t, int> failed() {
    std::vector<int32_t> here(count_);
    cuda::copy_to_host(call_.device, reinterpret_cast<char*>(here.data()), memory_.data(), count_ * sizeof(int32_t),
                       true);
    for (int64_t i = 0; i < count_; ++i)
      if (here[i]) return {i, here[i]};
    return {-1, 0};
  }

 private:
  const Call& call_;
  int64_t count_;
  cuda::Workspace memory_;
};

std::string which(int64_t matrix, int64_t count) {
  return count > 1 ? "matrix " + std::to_string(matrix) : std::string("the matrix");
}

struct Buffers {  // what cuSOLVER works in
  Buffers(int device, size_t there, size_t here) : device(device, there), bytes(there), host(here) {}
  cuda::Workspace device;
  size_t bytes;
  std::vector<char> host;
};

void zeros(const Call& call, const View& v) {
  if (v.numel())
    cuda::check(cuda::driver().set_bytes(reinterpret_cast<cuda::Address>(v.data), 0, v.numel() * item_size(v.dtype),
                                         static_cast<cuda::Stream>(call.stream)),
                "zeros");
}

void run_cholesky(const Call& call) {
  if (!api()) return cuda::call_on_host(find("cholesky"), call);
  const View &a = call.inputs[0], &factor = call.outputs[0], &info = call.outputs[1];
  if (factor.numel() == 0) return zeros(call, info);
  const Context c = context(call);
  const int64_t n = rows(a);
  const int type = type_of(a.dtype), uplo = call.ints[0] ? 1 : 0;
  Columns m(call.device, a);
  cuda::copy_elements(call.device, a, m.view);
  size_t there = 0, here = 0;
  check(api()->potrf_bytes(c.handle, c.params, uplo, n, type, m.view.data, n, type, &there, &here), "potrf");
  Buffers b(call.device, there, here);
  Infos infos(call, m.count);
  for (int64_t i = 0; i < m.count; ++i)
    check(api()->potrf(c.handle, c.params, uplo, n, type, m.matrix(i), n, type, b.device.data(), there, b.host.data(),
                       here, infos.at(i)),
          "potrf");
  cuda::copy_elements(call.device, m.view, factor);
  infos.store(info);
  if (!call.ints[1]) return;
  const auto [matrix, status] = infos.failed();
  if (matrix >= 0)
    fail(ErrorKind::LinAlg, which(matrix, m.count), " (", n, ", ", n,
         ") is not positive definite: its leading minor of order ", status,
         " is not\n  fix: add a small multiple of the identity, or see with td.linalg.cholesky_ex which matrices fail");
}

void run_lu_factor(const Call& call) {
  if (!api()) return cuda::call_on_host(find("lu_factor"), call);
  const View &a = call.inputs[0], &lu = call.outputs[0], &pivots = call.outputs[1], &info = call.outputs[2];
  if (pivots.numel() == 0) return zeros(call, info);
  const Context c = context(call);
  const int64_t m = rows(a), n = columns(a), k = std::min(m, n);
  const int type = type_of(a.dtype);
  Columns matrices(call.device, a);
  cuda::copy_elements(call.device, a, matrices.view);
  size_t there = 0, here = 0;
  check(api()->getrf_bytes(c.handle, c.params, m, n, type, matrices.view.data, m, type, &there, &here), "getrf");
  Buffers b(call.device, there, here);
  Infos infos(call, matrices.count);
  const cuda::Workspace order(call.device, matrices.count * k * sizeof(int64_t));
  for (int64_t i = 0; i < matrices.count; ++i)
    check(api()->getrf(c.handle, c.params, m, n, type, matrices.matrix(i), m,
                       reinterpret_cast<int64_t*>(order.data()) + i * k, type, b.device.data(), there, b.host.data(),
                       here, infos.at(i)),
          "getrf");
  cuda::copy_elements(call.device, matrices.view, lu);
  // Pivots of 64 bits to 32: their lower halves.
  cuda::copy_elements(call.device, lines(order.data(), DType::Int32, a, a.ndim - 2, k, 2, 2 * k), pivots);
  infos.store(info);
}

void run_lu_solve(const Call& call) {
  if (!api()) return cuda::call_on_host(find("lu_solve"), call);
  const View &lu = call.inputs[1], &pivots = call.inputs[2], &b = call.inputs[3], &x = call.outputs[0];
  if (lu.numel() == 0 || x.numel() == 0) return;
  const Context c = context(call);
  const int64_t n = rows(lu), k = columns(b);
  const int type = type_of(lu.dtype), axes = lu.ndim - 2;
  Columns matrices(call.device, lu), right(call.device, b);
  cuda::copy_elements(call.device, lu, matrices.view);
  cuda::copy_elements(call.device, b, right.view);
  const size_t order_bytes = matrices.count * n * sizeof(int64_t);
  const cuda::Workspace order(call.device, order_bytes);
  cuda::check(cuda::driver().set_bytes(reinterpret_cast<cuda::Address>(order.data()), 0, order_bytes,
                                       static_cast<cuda::Stream>(call.stream)),
              "zeros");
  cuda::copy_elements(call.device, pivots, lines(order.data(), DType::Int32, lu, axes, n, 2, 2 * n));
  if (call.ints[1]) {  // a zero on the diagonal
    const size_t item = item_size(lu.dtype), bytes = matrices.count * n * item;
    const cuda::Workspace diagonal(call.device, bytes);
    cuda::copy_elements(call.device, lines(matrices.view.data, lu.dtype, lu, axes, n, n + 1, n * n),
                        lines(diagonal.data(), lu.dtype, lu, axes, n, 1, n));
    std::vector<char> here(bytes);
    const std::vector<char> nothing(item, 0);
    cuda::copy_to_host(call.device, here.data(), diagonal.data(), bytes, true);
    for (int64_t i = 0; i < matrices.count * n; ++i)
      if (std::memcmp(&here[i * item], nothing.data(), item) == 0)
        fail(ErrorKind::LinAlg, which(i / n, matrices.count), " (", n, ", ", n, ") is singular: pivot ", i % n + 1,
             " of its LU factorisation is zero\n  fix: use td.linalg.lstsq or td.linalg.pinv, or add a small multiple "
             "of "
             "the identity");
  }
  Infos infos(call, matrices.count);
  for (int64_t i = 0; i < matrices.count; ++i)
    check(api()->getrs(c.handle, c.params, static_cast<int>(call.ints[0]), n, k, type, matrices.matrix(i), n,
                       reinterpret_cast<int64_t*>(order.data()) + i * n, type, right.matrix(i), n, infos.at(i)),
          "getrs");
  cuda::copy_elements(call.device, right.view, x);
}

void run_eigh(const Call& call) {
  if (!api()) return cuda::call_on_host(find("eigh"), call);
  const bool vectors = call.num_outputs == 2;
  const View &a = call.inputs[0], &w = call.outputs[0], &v = call.outputs[call.num_outputs - 1];
  if (w.numel() == 0) return;
  const Context c = context(call);
  const int64_t n = rows(a);
  const int type = type_of(a.dtype), uplo = call.ints[0] ? 1 : 0;
  Columns m(call.device, a);
  cuda::copy_elements(call.device, a, m.view);
  const size_t item = item_size(w.dtype);
  const cuda::Workspace values(call.device, m.count * n * item);
  size_t there = 0, here = 0;
  check(api()->syevd_bytes(c.handle, c.params, vectors, uplo, n, type, m.view.data, n, real_type(type), values.data(),
                           type, &there, &here),
        "syevd");
  Buffers b(call.device, there, here);
  Infos infos(call, m.count);
  for (int64_t i = 0; i < m.count; ++i)
    check(api()->syevd(c.handle, c.params, vectors, uplo, n, type, m.matrix(i), n, real_type(type),
                       values.data() + i * n * static_cast<int64_t>(item), type, b.device.data(), there, b.host.data(),
                       here, infos.at(i)),
          "syevd");
  cuda::copy_elements(call.device, lines(values.data(), w.dtype, a, a.ndim - 2, n, 1, n), w);
  if (vectors) cuda::copy_elements(call.device, m.view, v);
  const auto [matrix, status] = infos.failed();
  if (matrix >= 0) fail(ErrorKind::LinAlg, "the eigenvalues of ", which(matrix, m.count), " did not converge");
}

const Register cholesky("cuda.cholesky", &run_cholesky);
const Register lu_factor("cuda.lu_factor", &run_lu_factor);
const Register lu_solve("cuda.lu_solve", &run_lu_solve);
const Register eigh("cuda.eigh", &run_eigh);

}  // namespace
}  // namespace tandem::library
