// lu_factor (a (*b, m, n)) -> (lu (*b, m, n), int32 pivots (*b, min(m, n)) from 1, int32 info (*b)).
// inverse (a) -> (inverse, int32 info), ints [check].
// lu_solve (a, lu, pivots, b (*b, n, k)) -> x (*b, n, k), ints [mode, check]: op(a) x = b by the factors of a; a itself
// is not
//   read. mode 0: a, 1: transposed, 2: conjugate transposed.
// solve_triangular (a (*b, n, n), b) -> x, ints [upper, left, unit, mode]: op(a) x = b, or x op(a) = b where not left.
// cholesky (a) -> (l, int32 info), ints [upper, check]: reads one triangle.
// permutation (int32 pivots (*b, k) from 1) -> int64 rows (*b, m), ints [inverse]: row i of the permuted matrix is row
// rows[i]
//   of the original; or the other way.
//
// info is LAPACK's: 0 for success. With `check`, a failure is an error that names the matrix.
#include "library/linalg/matrices.h"

namespace tandem::library::linalg {
namespace {

constexpr Char kModes[] = {"N", "T", "C"};

void set_info(const View& info, int64_t offset, int value) {
  info.as<int32_t>()[offset] = value;
}

void run_lu_factor(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 3);
  const View &a = call.inputs[0], &lu = call.outputs[0], &pivots = call.outputs[1], &info = call.outputs[2];
  const int axes = a.ndim - 2, m = small(rows(a)), n = small(columns(a)), ld = std::max(m, 1);
  if (pivots.numel() == 0) return fill_zero(info);
  for_scalar("lu_factor", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    const auto& functions = lapack<T>();
    const double cost = kFlop<T> * m * n * std::min(m, n) + 500;
    for_matrices<4, true>({&a, &lu, &pivots, &info}, axes, cost, [&] {
      return [&, matrix = Scratch<T>(size_t(m) * n), order = Scratch<int>(std::min(m, n))](int64_t,
                                                                                           const int64_t (&at)[4]) {
        load(a, at[0], matrix.data(), ld);
        int status = 0;
        functions.getrf(&m, &n, matrix.data(), &ld, order.data(), &status);
        store(matrix.data(), ld, lu, at[1]);
        store_vector<int32_t>(order.data(), pivots, at[2]);
        set_info(info, at[3], status);
      };
    });
  });
}

[[noreturn]] void fail_singular(const Failure& failure, const View& a, int axes) {
  fail(ErrorKind::LinAlg, failure.matrix(a, axes), " (", rows(a), ", ", columns(a), ") is singular: pivot ",
       failure.info(),
       " of its LU factorisation is zero\n  fix: use td.linalg.lstsq or td.linalg.pinv, or add a small multiple of the "
       "identity");
}

void run_inverse(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 2 && call.num_ints == 1);
  const View &a = call.inputs[0], &inverse = call.outputs[0], &info = call.outputs[1];
  const int axes = a.ndim - 2, n = small(rows(a)), ld = std::max(n, 1);
  if (inverse.numel() == 0) return fill_zero(info);
  Failure failure;
  for_scalar("inv", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    const auto& functions = lapack<T>();
    for_matrices<3, true>({&a, &inverse, &info}, axes, kFlop<T> * 2 * n * n * n + 1000, [&] {
      T answer{};
      int status = 0;
      const int query = -1;
      functions.getri(&n, nullptr, &ld, nullptr, &answer, &query, &status);
      const int lwork = std::max(work_size(answer), n);
      return [&, lwork, matrix = Scratch<T>(size_t(n) * n), order = Scratch<int>(n), work = Scratch<T>(lwork)](
                 int64_t number, const int64_t (&at)[3]) {
        load(a, at[0], matrix.data(), ld);
        int status = 0;
        functions.getrf(&n, &n, matrix.data(), &ld, order.data(), &status);
        if (status == 0) functions.getri(&n, matrix.data(), &ld, order.data(), work.data(), &lwork, &status);
        if (status != 0) failure.report(number, status);
        store(matrix.data(), ld, inverse, at[1]);
        set_info(info, at[2], status);
      };
    });
  });
  if (call.ints[0] && failure) fail_singular(failure, a, axes);
}

void run_lu_solve(const Call& call) {
  TD_CHECK(call.num_inputs == 4 && call.num_outputs == 1 && call.num_ints == 2);
  const View &lu = call.inputs[1], &pivots = call.inputs[2], &b = call.inputs[3], &x = call.outputs[0];
  const int axes = lu.ndim - 2, n = small(rows(lu)), k = small(columns(b)), ld = std::max(n, 1);
  const Char mode = kModes[call.ints[0]];
  const bool check = call.ints[1] != 0;
  if (lu.numel() == 0) return;
  Failure failure;
  for_scalar("lu_solve", lu.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    const auto& functions = lapack<T>();
    for_matrices<4, true>({&lu, &pivots, &b, &x}, axes, kFlop<T> * 2 * n * n * k + 500, [&] {
      return [&, matrix = Scratch<T>(size_t(n) * n), order = Scratch<int>(n), right = Scratch<T>(size_t(n) * k)](
                 int64_t number, const int64_t (&at)[4]) {
        load(lu, at[0], matrix.data(), ld);
        load_vector<int32_t>(pivots, at[1], order.data());
        // They may come from anywhere; LAPACK swaps rows by them without looking.
        for (int i = 0; i < n; ++i)
          if (order[i] < 1 || order[i] > n)
            fail(ErrorKind::Index, "pivot ", order[i], " is outside of 1 to ", n, ", the rows of the matrix");
        load(b, at[2], right.data(), ld);
        if (check)
          for (int i = 0; i < n; ++i)
            if (matrix[i + size_t(i) * n] == T(0)) {
              failure.report(number, i + 1);
              break;
            }
        int status = 0;
        functions.getrs(mode, &n, &k, matrix.data(), &ld, order.data(), right.data(), &ld, &status, 1);
        store(right.data(), ld, x, at[3]);
      };
    });
  });
  if (failure) fail_singular(failure, lu, axes);
}

void run_solve_triangular(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1 && call.num_ints == 4);
  const View &a = call.inputs[0], &b = call.inputs[1], &x = call.outputs[0];
  const int axes = a.ndim - 2, n = small(rows(a)), m = small(rows(b)), k = small(columns(b));
  const Char uplo = call.ints[0] ? "U" : "L", side = call.ints[1] ? "L" : "R", diagonal = call.ints[2] ? "U" : "N",
             mode = kModes[call.ints[3]];
  const int lda = std::max(n, 1), ldb = std::max(m, 1);
  if (x.numel() == 0) return;
  for_scalar("solve_triangular", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    const auto& functions = lapack<T>();
    for_matrices<3, true>({&a, &b, &x}, axes, kFlop<T> * n * m * k + 500, [&] {
      return [&, matrix = Scratch<T>(size_t(n) * n), right = Scratch<T>(size_t(m) * k)](int64_t,
                                                                                        const int64_t (&at)[3]) {
        load(a, at[0], matrix.data(), lda);
        load(b, at[1], right.data(), ldb);
        const T one(1);
        functions.trsm(side, uplo, mode, diagonal, &m, &k, &one, matrix.data(), &lda, right.data(), &ldb, 1, 1, 1, 1);
        store(right.data(), ldb, x, at[2]);
      };
    });
  });
}

void run_cholesky(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 2 && call.num_ints == 2);
  const View &a = call.inputs[0], &factor = call.outputs[0], &info = call.outputs[1];
  const int axes = a.ndim - 2, n = small(rows(a)), ld = std::max(n, 1);
  const bool upper = call.ints[0] != 0;
  if (factor.numel() == 0) return fill_zero(info);
  Failure failure;
  for_scalar("cholesky", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    const auto& functions = lapack<T>();
    for_matrices<3, true>({&a, &factor, &info}, axes, kFlop<T> * n * n * n / 3 + 500, [&] {
      return [&, matrix = Scratch<T>(size_t(n) * n)](int64_t number, const int64_t (&at)[3]) {
        load(a, at[0], matrix.data(), ld);
        int status = 0;
        functions.potrf(upper ? "U" : "L", &n, matrix.data(), &ld, &status, 1);
        for (int64_t j = 0; j < n; ++j) {  // the other triangle still holds elements of a
          const int64_t begin = upper ? j + 1 : 0, end = upper ? n : j;
          std::fill(&matrix[j * n] + begin, &matrix[j * n] + end, T(0));
        }
        if (status != 0) failure.report(number, status);
        store(matrix.data(), ld, factor, at[1]);
        set_info(info, at[2], status);
      };
    });
  });
  if (call.ints[1] && failure)
    fail(ErrorKind::LinAlg, failure.matrix(a, axes), " (", n, ", ", n,
         ") is not positive definite: its leading minor of order ", failure.info(),
         " is not\n  fix: add a small multiple of the identity, or see with td.linalg.cholesky_ex which matrices fail");
}

void run_permutation(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 1);
  const View &pivots = call.inputs[0], &out = call.outputs[0];
  const int64_t k = pivots.shape[pivots.ndim - 1], m = out.shape[out.ndim - 1];
  if (out.numel() == 0) return;
  for_matrices<2>({&pivots, &out}, out.ndim - 1, 2.0 * m, [&] {
    return [&, order = Scratch<int64_t>(m), back = Scratch<int64_t>(m)](int64_t, const int64_t (&at)[2]) {
      for (int64_t i = 0; i < m; ++i) order[i] = i;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t other = pivots.as<int32_t>()[at[0] + i * pivots.strides[pivots.ndim - 1]] - 1;
        if (other < 0 || other >= m)
          fail(ErrorKind::Index, "pivot ", other + 1, " is outside of 1 to ", m, ", the rows of the matrix");
        std::swap(order[i], order[other]);
      }
      for (int64_t i = 0; i < m; ++i) back[order[i]] = i;
      store_vector<int64_t>(call.ints[0] ? back.data() : order.data(), out, at[1]);
    };
  });
}

const Register lu_factor("lu_factor", &run_lu_factor);
const Register inverse("inverse", &run_inverse);
const Register lu_solve("lu_solve", &run_lu_solve);
const Register solve_triangular("solve_triangular", &run_solve_triangular);
const Register cholesky("cholesky", &run_cholesky);
const Register permutation("permutation", &run_permutation);

}  // namespace
}  // namespace tandem::library::linalg
