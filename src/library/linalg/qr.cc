// geqrf (a (*b, m, n)) -> (factors (*b, m, n), tau (*b, min(m, n))): r above the diagonal, reflections below it.
// householder_product (a (*b, m, n), tau (*b, k)) -> q (*b, m, n): the first n columns of the product of k reflections.
// qr (a) -> (q, r), ints [complete], or -> (r).
#include "library/linalg/matrices.h"

namespace tandem::library::linalg {
namespace {

// Working memory of both functions, for matrices of one size.
template <typename T>
class Reflections {
 public:
  Reflections(int m, int n, int q_columns)
      : m_(m), n_(n), q_columns_(q_columns), k_(std::min(m, n)), ld_(std::max(m, 1)) {
    T answer{};
    int status = 0;
    const int query = -1, columns = std::max(n, q_columns);
    functions_.geqrf(&m_, &n_, nullptr, &ld_, nullptr, &answer, &query, &status);
    lwork_ = std::max(work_size(answer), std::max(columns, 1));
    if (q_columns > 0) {
      functions_.orgqr(&m_, &q_columns_, &k_, nullptr, &ld_, nullptr, &answer, &query, &status);
      lwork_ = std::max(lwork_, work_size(answer));
    }
    matrix.resize(size_t(m) * columns);
    tau.resize(std::max(k_, 1));
    work_.resize(lwork_);
  }

  void factor() {
    int status = 0;
    functions_.geqrf(&m_, &n_, matrix.data(), &ld_, tau.data(), work_.data(), &lwork_, &status);
    TD_CHECK(status == 0, "geqrf: ", status);
  }
  void expand(int k) {  // from k reflections to the columns of q
    int status = 0;
    functions_.orgqr(&m_, &q_columns_, &k, matrix.data(), &ld_, tau.data(), work_.data(), &lwork_, &status);
    TD_CHECK(status == 0, "orgqr: ", status);
  }

  Scratch<T> matrix, tau;

 private:
  const Lapack<T>& functions_ = lapack<T>();
  int m_, n_, q_columns_, k_, ld_, lwork_ = 1;
  Scratch<T> work_;
};

template <typename T>
void store_upper(const T* from, int64_t ld, const View& v, int64_t offset) {
  T* to = v.as<T>() + offset;
  const int64_t down = v.strides[v.ndim - 2], right = v.strides[v.ndim - 1];
  for (int64_t i = 0; i < rows(v); ++i)
    for (int64_t j = 0; j < columns(v); ++j) to[i * down + j * right] = j < i ? T(0) : from[i + j * ld];
}

template <typename T>
void store_identity(const View& v, int64_t offset) {
  T* to = v.as<T>() + offset;
  for (int64_t i = 0; i < rows(v); ++i)
    for (int64_t j = 0; j < columns(v); ++j) to[i * v.strides[v.ndim - 2] + j * v.strides[v.ndim - 1]] = T(i == j);
}

void run_geqrf(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 2);
  const View &a = call.inputs[0], &factors = call.outputs[0], &tau = call.outputs[1];
  const int axes = a.ndim - 2, m = small(rows(a)), n = small(columns(a));
  if (a.numel() == 0) return;
  for_scalar("geqrf", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    lapack<T>();
    for_matrices<3, true>({&a, &factors, &tau}, axes, kFlop<T> * 2 * m * n * std::min(m, n) + 1000, [&] {
      return [&, state = std::make_unique<Reflections<T>>(m, n, 0)](int64_t, const int64_t (&at)[3]) {
        load(a, at[0], state->matrix.data(), m);
        state->factor();
        store(state->matrix.data(), m, factors, at[1]);
        store_vector<T>(state->tau.data(), tau, at[2]);
      };
    });
  });
}

void run_householder_product(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1);
  const View &a = call.inputs[0], &tau = call.inputs[1], &q = call.outputs[0];
  const int axes = a.ndim - 2, m = small(rows(a)), n = small(columns(a)), k = small(tau.shape[tau.ndim - 1]);
  TD_CHECK(k <= n && n <= m, "sizes of householder_product");
  if (q.numel() == 0) return;
  for_scalar("householder_product", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    lapack<T>();
    for_matrices<3, true>({&a, &tau, &q}, axes, kFlop<T> * 4 * m * n * k + 1000, [&] {
      return [&, state = std::make_unique<Reflections<T>>(m, n, n)](int64_t, const int64_t (&at)[3]) {
        load(a, at[0], state->matrix.data(), m);
        load_vector<T>(tau, at[1], state->tau.data());
        state->expand(k);
        store(state->matrix.data(), m, q, at[2]);
      };
    });
  });
}

void run_qr(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && (call.num_outputs == 1 || call.num_outputs == 2));
  const bool wants_q = call.num_outputs == 2;
  const View &a = call.inputs[0], &r = call.outputs[call.num_outputs - 1], &q = call.outputs[0];
  const int axes = a.ndim - 2, m = small(rows(a)), n = small(columns(a));
  for_scalar("qr", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    if (a.numel() == 0) {
      if (q.numel() > 0 && wants_q)
        for_matrices<1>({&q}, axes, 1.0 * m * m,
                        [&] { return [&](int64_t, const int64_t (&at)[1]) { store_identity<T>(q, at[0]); }; });
      return;
    }
    lapack<T>();
    const int q_columns = wants_q ? small(columns(q)) : 0;
    for_matrices<3, true>({&a, &q, &r}, axes, kFlop<T> * 4 * m * n * std::min(m, n) + 1000, [&] {
      return [&, state = std::make_unique<Reflections<T>>(m, n, q_columns)](int64_t, const int64_t (&at)[3]) {
        load(a, at[0], state->matrix.data(), m);
        state->factor();
        store_upper(state->matrix.data(), m, r, at[2]);
        if (!wants_q) return;
        state->expand(std::min(m, n));
        store(state->matrix.data(), m, q, at[1]);
      };
    });
  });
}

const Register geqrf("geqrf", &run_geqrf);
const Register householder_product("householder_product", &run_householder_product);
const Register qr("qr", &run_qr);

}  // namespace
}  // namespace tandem::library::linalg
