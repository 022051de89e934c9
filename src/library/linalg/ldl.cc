// ldl_factor (a (*b, n, n)) -> (ld (*b, n, n), int32 pivots (*b, n), int32 info (*b)), ints [hermitian]: a = l d l^T
// (l^H where
//   hermitian) by Bunch and Kaufman's method, as LAPACK packs it. Reads the lower triangle.
// ldl_solve (ld, pivots, b (*b, n, k)) -> x (*b, n, k), ints [hermitian].
#include "library/linalg/matrices.h"

namespace tandem::library::linalg {
namespace {

template <typename T>
auto factor_function(bool hermitian) {
  return hermitian ? lapack<T>().hetrf : lapack<T>().sytrf;
}

void run_ldl_factor(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 3 && call.num_ints == 1);
  const View &a = call.inputs[0], &ld = call.outputs[0], &pivots = call.outputs[1], &info = call.outputs[2];
  const int axes = a.ndim - 2, n = small(rows(a));
  if (a.numel() == 0) return fill_zero(info);
  for_scalar("ldl_factor", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    const auto factor = factor_function<T>(call.ints[0] != 0);
    for_matrices<4>({&a, &ld, &pivots, &info}, axes, kFlop<T> * n * n * n / 3 + 500, [&] {
      T answer{};
      int status = 0;
      const int query = -1;
      factor("L", &n, nullptr, &n, nullptr, &answer, &query, &status, 1);
      const int lwork = std::max(work_size(answer), 1);
      return [&, lwork, matrix = Scratch<T>(size_t(n) * n), order = Scratch<int>(n), work = Scratch<T>(lwork)](
                 int64_t, const int64_t (&at)[4]) {
        load(a, at[0], matrix.data(), n);
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = 0; i < j; ++i) matrix[i + j * n] = T(0);
        int status = 0;
        factor("L", &n, matrix.data(), &n, order.data(), work.data(), &lwork, &status, 1);
        store(matrix.data(), n, ld, at[1]);
        store_vector<int32_t>(order.data(), pivots, at[2]);
        info.as<int32_t>()[at[3]] = status;
      };
    });
  });
}

void run_ldl_solve(const Call& call) {
  TD_CHECK(call.num_inputs == 3 && call.num_outputs == 1 && call.num_ints == 1);
  const View &ld = call.inputs[0], &pivots = call.inputs[1], &b = call.inputs[2], &x = call.outputs[0];
  const int axes = ld.ndim - 2, n = small(rows(ld)), k = small(columns(b));
  if (x.numel() == 0) return;
  for_scalar("ldl_solve", ld.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    const auto solve = call.ints[0] ? lapack<T>().hetrs : lapack<T>().sytrs;
    for_matrices<4>({&ld, &pivots, &b, &x}, axes, kFlop<T> * 2 * n * n * k + 500, [&] {
      return [&, matrix = Scratch<T>(size_t(n) * n), order = Scratch<int>(n), right = Scratch<T>(size_t(n) * k)](
                 int64_t, const int64_t (&at)[4]) {
        load(ld, at[0], matrix.data(), n);
        load_vector<int32_t>(pivots, at[1], order.data());
        // A negative pivot stands for a block of two rows, and both of them have it.
        for (int i = 0; i < n; ++i) {
          const int row = std::abs(order[i]);
          if (row < 1 || row > n || (order[i] < 0 && (i + 1 == n || order[i + 1] != order[i])))
            fail(ErrorKind::Index, "pivots are not those of a factorisation: pivot ", i, " is ", order[i]);
          if (order[i] < 0) ++i;
        }
        load(b, at[2], right.data(), n);
        int status = 0;
        solve("L", &n, &k, matrix.data(), &n, order.data(), right.data(), &n, &status, 1);
        store(right.data(), n, x, at[3]);
      };
    });
  });
}

const Register ldl_factor("ldl_factor", &run_ldl_factor);
const Register ldl_solve("ldl_solve", &run_ldl_solve);

}  // namespace
}  // namespace tandem::library::linalg
