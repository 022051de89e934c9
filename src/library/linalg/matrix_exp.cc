// matrix_exp (a (*b, n, n)) -> exp(a): scaling and squaring with Padé approximants (Higham 2005, "The Scaling and
// Squaring Method for the Matrix Exponential Revisited"), whose degree and scaling each matrix gets for its own norm.
#include "library/linalg/matrices.h"

namespace tandem::library::linalg {
namespace {

struct Approximant {
  int degree;
  double norm;  // largest 1-norm for which the error is that of rounding
};
constexpr Approximant kSingle[] = {{3, 4.258730016922831e-1}, {5, 1.880152677804762}, {7, 3.925724783138660}};
constexpr Approximant kDouble[] = {{3, 1.495585217958292e-2},
                                   {5, 2.539398330063230e-1},
                                   {7, 9.504178996162932e-1},
                                   {9, 2.097847961257068},
                                   {13, 5.371920351148152}};

template <typename T>
class Exponential {
 public:
  explicit Exponential(int n) : n_(n), count_(size_t(n) * n), pivots_(n) {
    for (Scratch<T>* matrix : {&a, &square_, &power_, &odd_, &even_, &product_}) matrix->resize(count_);
  }

  void run() {  // a becomes exp(a)
    double norm = 0;
    for (int j = 0; j < n_; ++j) {
      double sum = 0;
      for (int i = 0; i < n_; ++i) sum += std::abs(a[i + size_t(j) * n_]);
      norm = sum > norm || std::isnan(sum) ? sum : norm;
    }
    if (!std::isfinite(norm)) {
      std::fill_n(a.data(), count_, T(std::numeric_limits<Real<T>>::quiet_NaN()));
      return;
    }
    int squarings = 0;
    const Approximant chosen = choose(norm, &squarings);
    if (squarings) {
      const Real<T> factor = static_cast<Real<T>>(std::ldexp(1.0, -squarings));
      for (size_t i = 0; i < count_; ++i) a[i] *= factor;
    }
    approximate(chosen.degree);
    for (int i = 0; i < squarings; ++i) {
      multiply(a.data(), a.data(), product_.data());
      std::copy_n(product_.data(), count_, a.data());
    }
  }

  Scratch<T> a;

 private:
  static Approximant choose(double norm, int* squarings) {
    const auto among = [&](const auto& list) {
      for (const Approximant& item : list)
        if (norm <= item.norm) return item;
      const Approximant last = std::end(list)[-1];
      *squarings = std::max(0, static_cast<int>(std::ceil(std::log2(norm / last.norm))));
      return last;
    };
    if constexpr (std::is_same_v<Real<T>, float>) return among(kSingle);
    return among(kDouble);
  }

  // a = (even - odd)^-1 (even + odd), where even and odd are the parts of a polynomial in a.
  void approximate(int degree) {
    double coefficient[14] = {1};  // of the diagonal Padé approximant, from the constant term up
    for (int i = 1; i <= degree; ++i)
      coefficient[i] = coefficient[i - 1] * (degree - i + 1) / (double(i) * (2 * degree - i + 1));
    multiply(a.data(), a.data(), square_.data());
    set_identity(even_.data(), coefficient[0]);
    set_identity(odd_.data(), coefficient[1]);
    std::copy_n(square_.data(), count_, power_.data());
    for (int i = 2; i <= degree; i += 2) {
      add(power_.data(), coefficient[i], even_.data());
      if (i + 1 <= degree) add(power_.data(), coefficient[i + 1], odd_.data());
      if (i + 2 <= degree) {
        multiply(power_.data(), square_.data(), product_.data());
        std::copy_n(product_.data(), count_, power_.data());
      }
    }
    multiply(a.data(), odd_.data(), product_.data());
    for (size_t i = 0; i < count_; ++i) {
      a[i] = even_[i] + product_[i];
      even_[i] -= product_[i];
    }
    int status = 0;
    functions_.getrf(&n_, &n_, even_.data(), &n_, pivots_.data(), &status);
    functions_.getrs("N", &n_, &n_, even_.data(), &n_, pivots_.data(), a.data(), &n_, &status, 1);
  }

  void multiply(const T* x, const T* y, T* to) {
    const T one(1), zero(0);
    functions_.gemm("N", "N", &n_, &n_, &n_, &one, x, &n_, y, &n_, &zero, to, &n_, 1, 1);
  }
  void add(const T* x, double factor, T* to) {
    const Real<T> scale = static_cast<Real<T>>(factor);
    for (size_t i = 0; i < count_; ++i) to[i] += x[i] * scale;
  }
  void set_identity(T* to, double value) {
    std::fill_n(to, count_, T(0));
    for (int i = 0; i < n_; ++i) to[i + size_t(i) * n_] = static_cast<Real<T>>(value);
  }

  const Lapack<T>& functions_ = lapack<T>();
  int n_;
  size_t count_;
  Scratch<int> pivots_;
  Scratch<T> square_, power_, odd_, even_, product_;
};

void run_matrix_exp(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1);
  const View &a = call.inputs[0], &out = call.outputs[0];
  const int axes = a.ndim - 2, n = small(rows(a));
  if (a.numel() == 0) return;
  for_scalar("matrix_exp", a.dtype, [&](auto scalar) {
    using T = typename decltype(scalar)::type;
    lapack<T>();
    for_matrices<2, true>({&a, &out}, axes, kFlop<T> * 20 * n * n * n + 2000, [&] {
      return [&, state = std::make_unique<Exponential<T>>(n)](int64_t, const int64_t (&at)[2]) {
        load(a, at[0], state->a.data(), n);
        state->run();
        store(state->a.data(), n, out, at[1]);
      };
    });
  });
}

const Register matrix_exp("matrix_exp", &run_matrix_exp);

}  // namespace
}  // namespace tandem::library::linalg
