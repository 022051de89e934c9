// eigh (a (*b, n, n)) -> (w (*b, n) ascending, v (*b, n, n)) or -> (w), ints [upper]: reads one triangle.
// eig (a) -> (w, v) or -> (w), complex.
// svd (a (*b, m, n)) -> (u, s, vh) or -> (s), ints [full].
// pinv (a (*b, m, n), optionally atol (*b) and rtol (*b) real) -> (*b, n, m), ints [hermitian]: singular values up to
//   max(atol, rtol times the largest) count as zero; machine epsilon times the larger of m and n without them. Where
//   hermitian, reads the lower triangle.
// lstsq (a (*b, m, n), b (*b, m, k)) -> (x (*b, n, k), int64 rank (*b), s (*b, min(m, n))), floats [rcond]: the
// shortest of the
//   least-squares solutions; singular values under rcond times the largest count as zero. Machine epsilon if rcond is
//   negative.
#include "library/linalg/matrices.h"

namespace tandem::library::linalg {
namespace {

void check_finite(const Failure& failure, const View& a, int axes) {
  if (failure && failure.info() < 0) fail(ErrorKind::LinAlg, failure.matrix(a, axes), " holds NaN or infinity");
}

void check_converged(const char* what, const Failure& failure, const View& a, int axes) {
  check_finite(failure, a, axes);
  if (failure) fail(ErrorKind::LinAlg, what, " of ", failure.matrix(a, axes), " did not converge");
}

void run_eigh(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_ints == 1 && (call.num_outputs == 1 || call.num_outputs == 2));
  const bool vectors = call.num_outputs == 2;
  const View &a = call.inputs[0], &w = call.outputs[0], &v = call.outputs[call.num_outputs - 1];
  const int axes = a.ndim - 2, n = small(rows(a));
  const Char job = vectors ? "V" : "N", uplo = call.ints[0] ? "U" : "L";
  if (w.numel() == 0) return;
  Failure failure;
  for_scalar("eigh", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    using R = Real<T>;
    const auto& functions = lapack<T>();
    for_matrices<3>({&a, &w, &v}, axes, kFlop<T> * 9 * n * n * n + 3000, [&] {
      T answer{};
      R real_answer{};
      int int_answer = 0, status = 0;
      const int query = -1;
      if constexpr (kIsComplex<T>)
        functions.syevd(job, uplo, &n, nullptr, &n, nullptr, &answer, &query, &real_answer, &query, &int_answer, &query,
                        &status, 1, 1);
      else
        functions.syevd(job, uplo, &n, nullptr, &n, nullptr, &answer, &query, &int_answer, &query, &status, 1, 1);
      const int lwork = work_size(answer), lrwork = work_size(real_answer), liwork = std::max(int_answer, 1);
      return [&, lwork, lrwork, liwork, matrix = Scratch<T>(size_t(n) * n), values = Scratch<R>(n),
              work = Scratch<T>(lwork), real_work = Scratch<R>(kIsComplex<T> ? lrwork : 1),
              int_work = Scratch<int>(liwork)](int64_t number, const int64_t (&at)[3]) {
        load(a, at[0], matrix.data(), n);
        for (int64_t j = 0; j < n; ++j)  // what is in the other triangle is none of our business
          for (int64_t i = 0; i < j; ++i) (*uplo == 'L' ? matrix[i + j * n] : matrix[j + i * n]) = T(0);
        if (!is_finite(matrix.data(), int64_t(n) * n)) return failure.report(number, -1);
        int status = 0;
        if constexpr (kIsComplex<T>)
          functions.syevd(job, uplo, &n, matrix.data(), &n, values.data(), work.data(), &lwork, real_work.data(),
                          &lrwork, int_work.data(), &liwork, &status, 1, 1);
        else
          functions.syevd(job, uplo, &n, matrix.data(), &n, values.data(), work.data(), &lwork, int_work.data(),
                          &liwork, &status, 1, 1);
        if (status != 0) failure.report(number, status);
        store_vector<R>(values.data(), w, at[1]);
        if (vectors) store(matrix.data(), n, v, at[2]);
      };
    });
  });
  check_converged("the eigenvalues", failure, a, axes);
}

void run_eig(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && (call.num_outputs == 1 || call.num_outputs == 2));
  const bool vectors = call.num_outputs == 2;
  const View &a = call.inputs[0], &w = call.outputs[0], &v = call.outputs[call.num_outputs - 1];
  const int axes = a.ndim - 2, n = small(rows(a));
  const Char job = vectors ? "V" : "N";
  if (w.numel() == 0) return;
  Failure failure;
  for_scalar("eig", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    using R = Real<T>;
    using C = std::complex<R>;
    const auto& functions = lapack<T>();
    for_matrices<3>({&a, &w, &v}, axes, kFlop<T> * 25 * n * n * n + 5000, [&] {
      T answer{};
      R unused{};
      int status = 0;
      const int query = -1, one = 1;
      if constexpr (kIsComplex<T>)
        functions.geev("N", job, &n, nullptr, &n, nullptr, nullptr, &one, nullptr, &n, &answer, &query, &unused,
                       &status, 1, 1);
      else
        functions.geev("N", job, &n, nullptr, &n, nullptr, nullptr, nullptr, &one, nullptr, &n, &answer, &query,
                       &status, 1, 1);
      const int lwork = work_size(answer);
      const size_t square = size_t(n) * n;
      return [&, lwork, one, matrix = Scratch<T>(square), right = Scratch<T>(vectors ? square : 1),
              unpacked = Scratch<C>(vectors && !kIsComplex<T> ? square : 1), values = Scratch<T>(n),
              imag = Scratch<T>(n), pairs = Scratch<C>(n), work = Scratch<T>(lwork),
              real_work = Scratch<R>(2 * size_t(n))](int64_t number, const int64_t (&at)[3]) {
        load(a, at[0], matrix.data(), n);
        if (!is_finite(matrix.data(), int64_t(n) * n)) return failure.report(number, -1);
        int status = 0;
        if constexpr (kIsComplex<T>) {
          functions.geev("N", job, &n, matrix.data(), &n, values.data(), nullptr, &one, right.data(), &n, work.data(),
                         &lwork, real_work.data(), &status, 1, 1);
          store_vector<C>(values.data(), w, at[1]);
          if (vectors) store(right.data(), n, v, at[2]);
        } else {
          functions.geev("N", job, &n, matrix.data(), &n, values.data(), imag.data(), nullptr, &one, right.data(), &n,
                         work.data(), &lwork, &status, 1, 1);
          for (int j = 0; j < n; ++j) pairs[j] = C(values[j], imag[j]);
          store_vector<C>(pairs.data(), w, at[1]);
          if (vectors) {
            // Of a conjugate pair, columns j and j + 1 hold the real and the imaginary part of the first vector.
            for (int j = 0; j < n; ++j)
              for (int i = 0; i < n; ++i) {
                const T* column = &right[i + size_t(j) * n];
                unpacked[i + size_t(j) * n] = imag[j] == 0  ? C(column[0], 0)
                                              : imag[j] > 0 ? C(column[0], column[n])
                                                            : C(column[-n], -column[0]);
              }
            store(unpacked.data(), n, v, at[2]);
          }
        }
        if (status != 0) failure.report(number, status);
      };
    });
  });
  check_converged("the eigenvalues", failure, a, axes);
}

template <typename T>
class SingularValues {
 public:
  SingularValues(int m, int n, Char job)
      : job_(job), m_(m), n_(n), k_(std::min(m, n)), u_columns_(*job == 'A' ? m : k_), vh_rows_(*job == 'A' ? n : k_) {
    const size_t small = k_, large = std::max(m, n);
    matrix.resize(size_t(m) * n);
    s.resize(k_);
    if (*job != 'N') {
      u.resize(size_t(m) * u_columns_);
      vh.resize(size_t(vh_rows_) * n);
    }
    int_work_.resize(8 * small);
    if (kIsComplex<T>)
      real_work_.resize(*job == 'N'
                            ? 7 * small
                            : std::max(5 * small * small + 5 * small, 2 * large * small + 2 * small * small + small));
    T answer{};
    lwork_ = -1;
    run(&answer);
    lwork_ = work_size(answer);
    work_.resize(lwork_);
  }

  int run() { return run(work_.data()); }
  int64_t vh_rows() const { return vh_rows_; }

  Scratch<T> matrix, u, vh;
  Scratch<Real<T>> s;

 private:
  int run(T* work) {
    int status = 0;
    if constexpr (kIsComplex<T>)
      functions_.gesdd(job_, &m_, &n_, matrix.data(), &m_, s.data(), u.data(), &m_, vh.data(), &vh_rows_, work, &lwork_,
                       real_work_.data(), int_work_.data(), &status, 1);
    else
      functions_.gesdd(job_, &m_, &n_, matrix.data(), &m_, s.data(), u.data(), &m_, vh.data(), &vh_rows_, work, &lwork_,
                       int_work_.data(), &status, 1);
    return status;
  }

  const Lapack<T>& functions_ = lapack<T>();
  Char job_;
  int m_, n_, k_, u_columns_, vh_rows_, lwork_;
  Scratch<Real<T>> real_work_;
  Scratch<int> int_work_;
  Scratch<T> work_;
};

template <typename T>
void fill_identity(const View& v, int axes) {
  if (v.numel() == 0) return;
  for_matrices<1>({&v}, axes, 1.0 * rows(v) * columns(v), [&] {
    return [&](int64_t, const int64_t (&at)[1]) {
      for (int64_t i = 0; i < rows(v); ++i)
        for (int64_t j = 0; j < columns(v); ++j)
          v.as<T>()[at[0] + i * v.strides[v.ndim - 2] + j * v.strides[v.ndim - 1]] = T(i == j);
    };
  });
}

void run_svd(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_ints == 1 && (call.num_outputs == 1 || call.num_outputs == 3));
  const bool vectors = call.num_outputs == 3;
  const View &a = call.inputs[0], &s = call.outputs[vectors ? 1 : 0], &u = call.outputs[0],
             &vh = call.outputs[call.num_outputs - 1];
  const int axes = a.ndim - 2, m = small(rows(a)), n = small(columns(a));
  const Char job = !vectors ? "N" : call.ints[0] ? "A" : "S";
  Failure failure;
  for_scalar("svd", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    if (a.numel() == 0) {
      if (vectors) fill_identity<T>(u, axes);
      if (vectors) fill_identity<T>(vh, axes);
      return;
    }
    lapack<T>();
    const double cost = kFlop<T> * (vectors ? 20.0 : 4.0) * m * n * std::min(m, n) + 5000;
    for_matrices<4>({&a, &u, &s, &vh}, axes, cost, [&] {
      return [&, state = std::make_unique<SingularValues<T>>(m, n, job)](int64_t number, const int64_t (&at)[4]) {
        load(a, at[0], state->matrix.data(), m);
        if (!is_finite(state->matrix.data(), int64_t(m) * n)) return failure.report(number, -1);
        if (const int status = state->run()) failure.report(number, status);
        store_vector<Real<T>>(state->s.data(), s, at[2]);
        if (!vectors) return;
        store(state->u.data(), m, u, at[1]);
        store(state->vh.data(), state->vh_rows(), vh, at[3]);
      };
    });
  });
  check_converged("the singular values", failure, a, axes);
}

void run_pinv(const Call& call) {
  TD_CHECK((call.num_inputs == 1 || call.num_inputs == 3) && call.num_outputs == 1 && call.num_ints == 1);
  const bool given = call.num_inputs == 3, hermitian = call.ints[0] != 0;
  const View &a = call.inputs[0], &out = call.outputs[0], &atol = call.inputs[given ? 1 : 0],
             &rtol = call.inputs[given ? 2 : 0];
  const int axes = a.ndim - 2, m = small(rows(a)), n = small(columns(a)), k = std::min(m, n);
  if (a.numel() == 0) return;
  Failure failure;
  for_scalar("pinv", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    using R = Real<T>;
    const auto& functions = lapack<T>();
    for_matrices<4>({&a, &out, &atol, &rtol}, axes, kFlop<T> * 24.0 * m * n * k + 5000, [&] {
      return [&, state = std::make_unique<SingularValues<T>>(m, n, "S"), result = Scratch<T>(size_t(m) * n)](
                 int64_t number, const int64_t (&at)[4]) {
        T* matrix = state->matrix.data();
        load(a, at[0], matrix, m);
        if (hermitian)
          for (int64_t j = 0; j < n; ++j)
            for (int64_t i = 0; i < j; ++i) matrix[i + j * m] = conjugate(matrix[j + i * m]);
        if (!is_finite(matrix, int64_t(m) * n)) return failure.report(number, -1);
        if (const int status = state->run()) return failure.report(number, status);
        const R largest = state->s[0];
        const R bound = given ? std::max(atol.as<R>()[at[2]], rtol.as<R>()[at[3]] * largest)
                              : std::numeric_limits<R>::epsilon() * std::max(m, n) * largest;
        // v diag(1 / s) u^H
        for (int64_t i = 0; i < k; ++i) {
          const R factor = state->s[i] > bound ? 1 / state->s[i] : R(0);
          for (int64_t j = 0; j < n; ++j) state->vh[i + j * k] *= factor;
        }
        const T one(1), zero(0);
        functions.gemm("C", "C", &n, &m, &k, &one, state->vh.data(), &k, state->u.data(), &m, &zero, result.data(), &n,
                       1, 1);
        store(result.data(), n, out, at[1]);
      };
    });
  });
  check_converged("the singular values", failure, a, axes);
}

void run_lstsq(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 3 && call.num_floats == 1);
  const View &a = call.inputs[0], &b = call.inputs[1], &x = call.outputs[0], &rank = call.outputs[1],
             &s = call.outputs[2];
  const int axes = a.ndim - 2, m = small(rows(a)), n = small(columns(a)), k = std::max(small(columns(b)), 1),
            ld = std::max(m, n);  // LAPACK wants a right-hand side
  if (a.numel() == 0) {
    fill_zero(x);
    return fill_zero(rank);
  }
  Failure failure;
  for_scalar("lstsq", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    using R = Real<T>;
    const auto& functions = lapack<T>();
    const R rcond =
        call.floats[0] < 0 ? std::numeric_limits<R>::epsilon() * static_cast<R>(ld) : static_cast<R>(call.floats[0]);
    for_matrices<5>({&a, &b, &x, &rank, &s}, axes, kFlop<T> * 8 * m * n * std::min(m, n) + 5000, [&] {
      T answer{};
      R real_answer{}, unused{};
      int int_answer = 0, found = 0, status = 0;
      const int query = -1;
      if constexpr (kIsComplex<T>)
        functions.gelsd(&m, &n, &k, nullptr, &m, nullptr, &ld, &unused, &rcond, &found, &answer, &query, &real_answer,
                        &int_answer, &status);
      else
        functions.gelsd(&m, &n, &k, nullptr, &m, nullptr, &ld, &unused, &rcond, &found, &answer, &query, &int_answer,
                        &status);
      const int lwork = work_size(answer), lrwork = kIsComplex<T> ? work_size(real_answer) : 1,
                liwork = std::max(int_answer, 1);
      return [&, lwork, matrix = Scratch<T>(size_t(m) * n), right = Scratch<T>(size_t(ld) * k),
              values = Scratch<R>(std::min(m, n)), work = Scratch<T>(lwork), real_work = Scratch<R>(lrwork),
              int_work = Scratch<int>(liwork)](int64_t number, const int64_t (&at)[5]) {
        load(a, at[0], matrix.data(), m);
        std::fill_n(right.data(), size_t(ld) * k, T(0));
        load(b, at[1], right.data(), ld);
        if (!is_finite(matrix.data(), int64_t(m) * n)) return failure.report(number, -1);
        int found = 0, status = 0;
        if constexpr (kIsComplex<T>)
          functions.gelsd(&m, &n, &k, matrix.data(), &m, right.data(), &ld, values.data(), &rcond, &found, work.data(),
                          &lwork, real_work.data(), int_work.data(), &status);
        else
          functions.gelsd(&m, &n, &k, matrix.data(), &m, right.data(), &ld, values.data(), &rcond, &found, work.data(),
                          &lwork, int_work.data(), &status);
        if (status != 0) failure.report(number, status);
        store(right.data(), ld, x, at[2]);
        rank.as<int64_t>()[at[3]] = found;
        store_vector<R>(values.data(), s, at[4]);
      };
    });
  });
  check_converged("the singular values", failure, a, axes);
}

const Register eigh("eigh", &run_eigh);
const Register eig("eig", &run_eig);
const Register svd("svd", &run_svd);
const Register pinv("pinv", &run_pinv);
const Register lstsq("lstsq", &run_lstsq);

}  // namespace
}  // namespace tandem::library::linalg
