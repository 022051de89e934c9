// special (x) -> y or (x, z) -> y, ints [function, order]: special functions, element by element; floats only.
//
// Functions of one operand: 0 J_n, 1 Y_n, 2 I_n, 3 exp(-|x|) I_n, 4 K_n, 5 exp(x) K_n (n is the order), 6 Ai (order 1:
// its derivative), 7 spherical j_n. Of two: 20 P(x, z) and 21 Q(x,
// z), the incomplete gamma functions, 22 the derivative of P by x (how often: the order), 23 Hurwitz's zeta(x, z),
// differentiated `order` times by x. Orthogonal polynomials of x of degree z, from 40 on, differentiated `order` times:
// Chebyshev's T, U, V, W, the same shifted, Hermite's H, He, Laguerre's, Legendre's. Everything is computed in float64.
#include <cmath>

#include "check.h"
#include "device/parallel.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/special_functions.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

enum Function : int64_t {
  kJ,
  kY,
  kI,
  kIScaled,
  kK,
  kKScaled,
  kAiry,
  kSphericalJ,
  kGammainc = 20,
  kGammaincc,
  kGammaincByA,
  kZeta,
  kPolynomials = 40,
};  // clang-format off

enum Family { kT, kU, kV, kW, kShiftedT, kShiftedU, kShiftedV, kShiftedW, kH, kHe, kLaguerre, kLegendre, kFamilies };
// clang-format on

constexpr int kMaxOrder = 16;
constexpr int64_t kMostDegree = 1 << 20;

// The polynomial of degree n, differentiated `order` times: p[m+1] = ((a x + b) p[m] - c p[m-1]) / d, each
// differentiated.
double polynomial(int family, double x, double degree, int order) {
  if (std::isnan(x) || std::isnan(degree)) return x + degree;
  if (degree <= -1.0) return 0.0;  // fractions are cut off
  if (degree > kMostDegree)        // a step each: further ones would not end
    fail(ErrorKind::Value, "n is ", degree, "; degrees up to ", kMostDegree, " are computed");
  const auto n = static_cast<int64_t>(degree);
  constexpr double slopes[] = {1, 2, 2, 2, 2, 4, 4, 4, 2, 1, -1, 1},
                   starts[] = {0, 0, -1, 1, -1, -2, -3, -1, 0, 0, 1, 0};
  double before[kMaxOrder + 1] = {1.0}, here[kMaxOrder + 1] = {slopes[family] * x + starts[family], slopes[family]};
  if (n == 0) return before[order];
  for (int64_t m = 1; m < n; ++m) {
    double a = 2.0, b = 0.0, c = 1.0, d = 1.0;
    const double k = static_cast<double>(m);
    if (family >= kShiftedT && family <= kShiftedW) a = 4.0, b = -2.0;
    if (family == kH) c = 2.0 * k;
    if (family == kHe) a = 1.0, c = k;
    if (family == kLaguerre) a = -1.0, b = 2.0 * k + 1.0, c = k, d = k + 1.0;
    if (family == kLegendre) a = 2.0 * k + 1.0, c = k, d = k + 1.0;
    for (int i = order; i >= 0; --i) {
      const double next = ((a * x + b) * here[i] + (i ? a * i * here[i - 1] : 0.0) - c * before[i]) / d;
      before[i] = here[i];
      here[i] = next;
    }
  }
  return here[order];
}

// body(x[, z]) for all elements.
template <typename T, typename Body>
void one(const View& x, const View& y, double cost, Body body) {
  const auto loop = make_loop<2>({&y, &x}, 0, y.ndim, true);
  parallel_for(y.numel(), cost, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims], offset[2];
    loop.locate(begin, loop.ndim, index, offset);
    for (int64_t i = begin; i < end; ++i) {
      y.as<T>()[offset[0]] =
          T(static_cast<Wide<T>>(body(static_cast<double>(static_cast<Wide<T>>(x.as<T>()[offset[1]])))));
      loop.advance(loop.ndim, index, offset);
    }
  });
}

template <typename T, typename Body>
void two(const View& x, const View& z, const View& y, double cost, Body body) {
  const auto loop = make_loop<3>({&y, &x, &z}, 0, y.ndim, true);
  parallel_for(y.numel(), cost, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims], offset[3];
    loop.locate(begin, loop.ndim, index, offset);
    for (int64_t i = begin; i < end; ++i) {
      const double left = static_cast<double>(static_cast<Wide<T>>(x.as<T>()[offset[1]]));
      const double right = static_cast<double>(static_cast<Wide<T>>(z.as<T>()[offset[2]]));
      y.as<T>()[offset[0]] = T(static_cast<Wide<T>>(body(left, right)));
      loop.advance(loop.ndim, index, offset);
    }
  });
}

template <typename T>
void run_one(const View& x, const View& y, int64_t function, int n) {
  using namespace special;
  switch (function) {
    case kJ:
      return one<T>(x, y, 50, [n](double v) { return n == 0 ? ::j0(v) : n == 1 ? ::j1(v) : ::jn(n, v); });
    case kY:
      return one<T>(x, y, 60, [n](double v) {
        if (v < 0.0) return std::numeric_limits<double>::quiet_NaN();
        return n == 0 ? ::y0(v) : n == 1 ? ::y1(v) : ::yn(n, v);
      });
    case kI:
      return one<T>(x, y, 60, [n](double v) { return bessel_i(n, v, false); });
    case kIScaled:
      return one<T>(x, y, 50, [n](double v) { return bessel_i(n, v, true); });
    case kK:
      return one<T>(x, y, 60, [n](double v) { return bessel_k(n, v, false); });
    case kKScaled:
      return one<T>(x, y, 60, [n](double v) { return bessel_k(n, v, true); });
    case kAiry:
      return one<T>(x, y, 60, [n](double v) { return airy_ai(v, n != 0); });
    case kSphericalJ:
      return one<T>(x, y, 50, [n](double v) { return spherical_j(n, v); });
  }
  TD_CHECK(false, "function ", function, " of one operand of special");
}

template <typename T>
void run_two(const View& x, const View& z, const View& y, int64_t function, int n) {
  using namespace special;
  if (function >= kPolynomials && function < kPolynomials + static_cast<int64_t>(kFamilies)) {
    TD_CHECK(n >= 0 && n <= kMaxOrder, "derivative of order ", n, " of a polynomial");
    const int family = static_cast<int>(function - kPolynomials);
    return two<T>(x, z, y, 40, [=](double v, double degree) { return polynomial(family, v, degree, n); });
  }
  switch (function) {
    case kGammainc:
      return two<T>(x, z, y, 200, [](double a, double v) { return gammainc(a, v); });
    case kGammaincc:
      return two<T>(x, z, y, 200, [](double a, double v) { return gammaincc(a, v); });
    case kGammaincByA:
      return two<T>(x, z, y, 400, [n](double a, double v) { return gammainc_by_a(a, v, n); });
    case kZeta:
      TD_CHECK(n >= 0 && n <= kMaxZetaOrder, "derivative of order ", n, " of zeta");
      return two<T>(x, z, y, 250, [n](double s, double q) { return zeta_by_s(s, q, n); });
  }
  TD_CHECK(false, "function ", function, " of two operands of special");
}

void run_special(const Call& call) {
  TD_CHECK((call.num_inputs == 1 || call.num_inputs == 2) && call.num_outputs == 1 && call.num_ints == 2);
  const View& y = call.outputs[0];
  for (int i = 0; i < call.num_inputs; ++i)
    TD_CHECK(call.inputs[i].dtype == y.dtype && call.inputs[i].ndim == y.ndim, "operands of special");
  if (y.numel() == 0) return;
  const int n = static_cast<int>(call.ints[1]);
  for_float("special", y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (call.num_inputs == 1)
      run_one<T>(call.inputs[0], y, call.ints[0], n);
    else
      run_two<T>(call.inputs[0], call.inputs[1], y, call.ints[0], n);
  });
}

const Register special_register("special", &run_special);
const Register polynomial_register("polynomial", &run_special);  // may fail, as others do not

}  // namespace
}  // namespace tandem::library
