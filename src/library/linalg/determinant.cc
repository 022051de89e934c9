// det (a (*b, n, n)) -> (*b).
// slogdet (a) -> (sign (*b) of a's type, log of the absolute value (*b) real).
// cofactor (a) -> c (*b, n, n): det(a) inv(a) transposed, of singular matrices too.
#include "library/linalg/matrices.h"

namespace tandem::library::linalg {
namespace {

// Product of the diagonal of LU factors, with the sign of the permutation.
template <typename T>
T determinant(const T* lu, const int* order, int64_t n) {
  T product(1);
  for (int64_t i = 0; i < n; ++i) product *= order[i] == i + 1 ? lu[i + i * n] : -lu[i + i * n];
  return product;
}

template <typename T>
class Cofactor {
 public:
  explicit Cofactor(int n) : n_(n), lu_(size_t(n) * n), order_(n) {}

  void run(const T* a, T* out) {  // both column-major
    const size_t count = size_t(n_) * n_;
    std::copy_n(a, count, lu_.data());
    int status = 0;
    functions_.getrf(&n_, &n_, lu_.data(), &n_, order_.data(), &status);
    Real<T> least = std::abs(lu_[0]), most = least;
    for (int i = 1; i < n_; ++i) {
      const Real<T> size = std::abs(lu_[i + size_t(i) * n_]);
      least = std::min(least, size);
      most = std::max(most, size);
    }
    // Near a singular matrix the inverse grows as the determinant vanishes; singular values keep them apart.
    if (status == 0 && least > most * n_ * 16 * std::numeric_limits<Real<T>>::epsilon()) {
      const T det = determinant(lu_.data(), order_.data(), n_);
      inverse_transposed(out);
      for (size_t i = 0; i < count; ++i) out[i] *= det;
    } else {
      by_singular_values(a, out);
    }
  }

 private:
  void inverse_transposed(T* out) {  // solves transposed(a) x = identity
    std::fill_n(out, size_t(n_) * n_, T(0));
    for (int i = 0; i < n_; ++i) out[i + size_t(i) * n_] = T(1);
    int status = 0;
    functions_.getrs("T", &n_, &n_, lu_.data(), &n_, order_.data(), out, &n_, &status, 1);
  }

  T determinant_of(const T* a) {
    std::copy_n(a, size_t(n_) * n_, lu_.data());
    int status = 0;
    functions_.getrf(&n_, &n_, lu_.data(), &n_, order_.data(), &status);
    return determinant(lu_.data(), order_.data(), n_);
  }

  // a = u s vh, so the transposed adjugate is det(u vh) conj(u) (products of all other s) conj(vh).
  void by_singular_values(const T* a, T* out) {
    const size_t count = size_t(n_) * n_;
    Scratch<T> copy(count), u(count), vh(count);
    Scratch<Real<T>> s(n_), real_work(kIsComplex<T> ? 5 * count + 7 * size_t(n_) : 0);
    Scratch<int> int_work(8 * size_t(n_));
    std::copy_n(a, count, copy.data());
    if (!is_finite(a, count)) {
      std::fill_n(out, count, T(std::numeric_limits<Real<T>>::quiet_NaN()));
      return;
    }
    int lwork = -1, status = 0;
    T answer{};
    const auto call = [&](T* work) {
      if constexpr (kIsComplex<T>)
        functions_.gesdd("A", &n_, &n_, copy.data(), &n_, s.data(), u.data(), &n_, vh.data(), &n_, work, &lwork,
                         real_work.data(), int_work.data(), &status, 1);
      else
        functions_.gesdd("A", &n_, &n_, copy.data(), &n_, s.data(), u.data(), &n_, vh.data(), &n_, work, &lwork,
                         int_work.data(), &status, 1);
    };
    call(&answer);
    lwork = work_size(answer);
    Scratch<T> work(lwork);
    call(work.data());
    if (status != 0)
      fail(ErrorKind::LinAlg, "singular values, for the cofactors of a singular matrix, did not converge");
    const T det = determinant_of(u.data()) * determinant_of(vh.data());
    for (int j = 0; j < n_; ++j) {
      T others = det;
      for (int i = 0; i < n_; ++i)
        if (i != j) others *= s[i];
      for (int i = 0; i < n_; ++i) copy[i + size_t(j) * n_] = conjugate(u[i + size_t(j) * n_]) * others;
    }
    for (size_t i = 0; i < count; ++i) vh[i] = conjugate(vh[i]);
    const T one(1), zero(0);
    functions_.gemm("N", "N", &n_, &n_, &n_, &one, copy.data(), &n_, vh.data(), &n_, &zero, out, &n_, 1, 1);
  }

  const Lapack<T>& functions_ = lapack<T>();
  int n_;
  Scratch<T> lu_;
  Scratch<int> order_;
};

void run_cofactor(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1);
  const View &a = call.inputs[0], &c = call.outputs[0];
  const int axes = a.ndim - 2, n = small(rows(a));
  if (c.numel() == 0) return;
  for_scalar("det", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    lapack<T>();
    for_matrices<2>({&a, &c}, axes, kFlop<T> * 3 * n * n * n + 1000, [&] {
      return [&, work = std::make_unique<Cofactor<T>>(n), in = Scratch<T>(size_t(n) * n),
              out = Scratch<T>(size_t(n) * n)](int64_t, const int64_t (&at)[2]) {
        load(a, at[0], in.data(), n);
        work->run(in.data(), out.data());
        store(out.data(), n, c, at[1]);
      };
    });
  });
}

template <typename T>
void factor_each(const View& a, const View& first, const View& second, const auto& finish) {
  const auto& functions = lapack<T>();
  const int n = small(rows(a));
  for_matrices<3, true>({&a, &first, &second}, a.ndim - 2, kFlop<T> * n * n * n * 0.7 + 500, [&] {
    return [&, matrix = Scratch<T>(size_t(n) * n), order = Scratch<int>(n)](int64_t, const int64_t (&at)[3]) {
      load(a, at[0], matrix.data(), n);
      int status = 0;
      functions.getrf(&n, &n, matrix.data(), &n, order.data(), &status);
      finish(matrix.data(), order.data(), at[1], at[2]);
    };
  });
}

void run_det(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1);
  const View &a = call.inputs[0], &det = call.outputs[0];
  const int64_t n = rows(a);
  if (det.numel() == 0) return;
  for_scalar("det", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    if (n == 0) {
      for_matrices<1>({&det}, det.ndim, 1.0,
                      [&] { return [&](int64_t, const int64_t (&at)[1]) { det.as<T>()[at[0]] = T(1); }; });
      return;
    }
    factor_each<T>(a, det, det, [&](const T* lu, const int* order, int64_t at, int64_t) {
      det.as<T>()[at] = determinant(lu, order, n);
    });
  });
}

void run_slogdet(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 2);
  const View &a = call.inputs[0], &sign = call.outputs[0], &log = call.outputs[1];
  const int64_t n = rows(a);
  if (sign.numel() == 0) return;
  for_scalar("slogdet", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    using R = Real<T>;
    if (n == 0) {
      for_matrices<2>({&sign, &log}, sign.ndim, 1.0, [&] {
        return [&](int64_t, const int64_t (&at)[2]) {
          sign.as<T>()[at[0]] = T(1);
          log.as<R>()[at[1]] = R(0);
        };
      });
      return;
    }
    factor_each<T>(a, sign, log, [&](const T* lu, const int* order, int64_t sign_at, int64_t log_at) {
      T direction(1);
      R total(0);
      for (int64_t i = 0; i < n; ++i) {
        const T pivot = lu[i + i * n];
        const R size = std::abs(pivot);
        total += std::log(size);
        const T unit = size == 0 ? T(0) : pivot / size;
        direction *= order[i] == i + 1 ? unit : -unit;
      }
      sign.as<T>()[sign_at] = direction;
      log.as<R>()[log_at] = total;
    });
  });
}

const Register det("det", &run_det);
const Register slogdet("slogdet", &run_slogdet);
const Register cofactor("cofactor", &run_cofactor);

}  // namespace
}  // namespace tandem::library::linalg
