// Batches of matrices as LAPACK wants them: one at a time, column-major, dense.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "check.h"
#include "device/parallel.h"
#include "library/deterministic.h"
#include "library/linalg/lapack.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library::linalg {

template <typename T>
struct Scalar {
  using type = T;
};

// body(Scalar<T>{}) for the types that LAPACK knows.
template <typename F>
void for_scalar(const char* routine, DType dtype, F&& body) {
  switch (dtype) {
    case DType::Float32:
      return body(Scalar<float>{});
    case DType::Float64:
      return body(Scalar<double>{});
    case DType::Complex64:
      return body(Scalar<std::complex<float>>{});
    case DType::Complex128:
      return body(Scalar<std::complex<double>>{});
    default:
      fail(ErrorKind::Type, routine, " does not work on ", name(dtype));
  }
}

inline int64_t rows(const View& v) {
  return v.shape[v.ndim - 2];
}
inline int64_t columns(const View& v) {
  return v.shape[v.ndim - 1];
}

inline int small(int64_t size) {
  if (size > std::numeric_limits<int>::max())
    fail(ErrorKind::Shape, "a matrix of ", size, " rows or columns is too large for LAPACK");
  return static_cast<int>(size);
}

template <typename T>
T conjugate(T x) {
  if constexpr (kIsComplex<T>)
    return std::conj(x);
  else
    return x;
}

// Element (i, j) of the matrix at `offset` of v goes to to[i + j * ld].
template <typename T>
void load(const View& v, int64_t offset, T* to, int64_t ld) {
  const T* from = v.as<T>() + offset;
  const int64_t m = rows(v), n = columns(v), down = v.strides[v.ndim - 2], right = v.strides[v.ndim - 1];
  constexpr int64_t kTile = 16;  // rows and columns at a time, so that neither side leaves the cache
  for (int64_t i0 = 0; i0 < m; i0 += kTile)
    for (int64_t j0 = 0; j0 < n; j0 += kTile) {
      const int64_t i1 = std::min(m, i0 + kTile), j1 = std::min(n, j0 + kTile);
      for (int64_t j = j0; j < j1; ++j)
        for (int64_t i = i0; i < i1; ++i) to[i + j * ld] = from[i * down + j * right];
    }
}

// The other way; `v` may hold fewer rows and columns than there are.
template <typename T>
void store(const T* from, int64_t ld, const View& v, int64_t offset) {
  T* to = v.as<T>() + offset;
  const int64_t m = rows(v), n = columns(v), down = v.strides[v.ndim - 2], right = v.strides[v.ndim - 1];
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < m; i0 += kTile)
    for (int64_t j0 = 0; j0 < n; j0 += kTile) {
      const int64_t i1 = std::min(m, i0 + kTile), j1 = std::min(n, j0 + kTile);
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j) to[i * down + j * right] = from[i + j * ld];
    }
}

template <typename T, typename S>
void store_vector(const S* from, const View& v, int64_t offset) {
  T* to = v.as<T>() + offset;
  for (int64_t i = 0; i < v.shape[v.ndim - 1]; ++i) to[i * v.strides[v.ndim - 1]] = static_cast<T>(from[i]);
}

template <typename T, typename S>
void load_vector(const View& v, int64_t offset, S* to) {
  const T* from = v.as<T>() + offset;
  for (int64_t i = 0; i < v.shape[v.ndim - 1]; ++i) to[i] = static_cast<S>(from[i * v.strides[v.ndim - 1]]);
}

template <typename T>
bool is_finite(const T* x, int64_t count) {
  Real<T> sum = 0;  // zero times anything finite adds nothing; infinity and NaN make it NaN
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kIsComplex<T>)
      sum += x[i].real() * Real<T>(0) + x[i].imag() * Real<T>(0);
    else
      sum += x[i] * T(0);
  }
  return sum == 0;
}

// body(number, offsets of the matrix in each view) for every matrix of a batch, whose views agree in the first `axes`
// axes. `cost` is that of one matrix in nanoseconds. body is made by `prepare()` once for each piece, so that it can
// own working memory.
// `Level3` marks work that is mostly products of blocks, which OpenBLAS divides well where there is one large matrix.
template <int K, bool Level3 = false, typename Prepare>
void for_matrices(const View* const (&views)[K], int axes, double cost, Prepare&& prepare) {
  Loop<K> loop;
  for (int d = 0; d < axes; ++d) {
    if (views[0]->shape[d] == 1) continue;
    loop.shape[loop.ndim] = views[0]->shape[d];
    for (int k = 0; k < K; ++k) {
      TD_CHECK(views[k]->ndim >= axes && views[k]->shape[d] == views[0]->shape[d], "batches of matrices");
      loop.strides[k][loop.ndim] = views[k]->strides[d];
    }
    ++loop.ndim;
  }
  const auto run = [&](int64_t begin, int64_t end) {
    auto body = prepare();
    int64_t index[kMaxDims], offset[K];
    loop.locate(begin, loop.ndim, index, offset);
    for (int64_t number = begin; number < end; ++number) {
      body(number, offset);
      loop.advance(loop.ndim, index, offset);
    }
  };
  const int64_t count = loop.count(0, loop.ndim);
  // OpenBLAS's threads spin while they wait for one another: where cores are shared with other work, that costs many
  // times what they bring. So they are for large matrices only, and for more than a few threads.
  constexpr double kLarge = 2e8;  // nanoseconds
  constexpr int kManyThreads = 4;
  const bool many_threads = num_threads() >= kManyThreads && !in_parallel() && !deterministic();
  if (Level3 && count == 1 && cost > kLarge && many_threads) {
    const ManyThreads threads;
    run(0, 1);
  } else if (count == 1) {
    run(0, 1);
  } else if (count > 0) {
    parallel_for(count, cost, run);
  }
}

// The first matrix of a batch that failed, whichever thread met it.
class Failure {
 public:
  void report(int64_t number, int info) {
    const std::lock_guard guard(mutex_);
    if (number_ < 0 || number < number_) {
      number_ = number;
      info_ = info;
    }
  }
  explicit operator bool() const { return number_ >= 0; }
  int info() const { return info_; }

  // "the matrix", or which one of the batch that the first `axes` axes of v hold.
  std::string matrix(const View& v, int axes) const {
    if (axes == 0) return "the matrix";
    int64_t number = number_;
    std::string text;
    for (int d = axes - 1; d >= 0; --d) {
      text = std::to_string(number % v.shape[d]) + (text.empty() ? "" : ", ") + text;
      number /= v.shape[d];
    }
    return "matrix [" + text + "] of the batch";
  }

 private:
  std::mutex mutex_;  // guards the following
  int64_t number_ = -1;
  int info_ = 0;
};

// LAPACK's answer to how much memory it wants comes as a floating number, which may be rounded down.
template <typename T>
int work_size(T answer) {
  const double size = static_cast<double>(std::real(answer));
  return static_cast<int>(std::min(size * (1 + 1e-6) + 1, 2147483647.0));
}

template <typename T>
constexpr double kFlop = kIsComplex<T> ? 0.8 : 0.2;  // nanoseconds

}  // namespace tandem::library::linalg
