// Modified Bessel functions and Airy's function: Chebyshev series near, asymptotic ones far out.
#include <cmath>
#include <cstddef>
#include <limits>

#include "library/special_functions.h"
#include "library/special_tables.h"

namespace tandem::library::special {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Sum of c[k] T_k(t), t in [-1, 1], by Clenshaw's rule.
double series(const double* c, size_t n, double t) {
  double next = 0.0, after = 0.0;
  for (size_t k = n; k-- > 1;) {
    const double now = c[k] + 2.0 * t * next - after;
    after = next;
    next = now;
  }
  return c[0] + t * next - after;
}

template <size_t N>
double series(const double (&c)[N], double t) {
  return series(c, N, t);
}

double i0_scaled(double x) {
  return x <= 6.0 ? series(kI0_NEAR, x / 3.0 - 1.0) : series(kI0_FAR, 12.0 / x - 1.0) / std::sqrt(x);
}

double i1_scaled(double x) {
  return x <= 6.0 ? x * series(kI1_NEAR, x / 3.0 - 1.0) : series(kI1_FAR, 12.0 / x - 1.0) / std::sqrt(x);
}

// exp(-x) I_n(x), n >= 2, x > 0.
double in_scaled(int n, double x) {
  if (x * x < 4.0 * (n + 1.0)) {  // the power series: all its terms have one sign
    double term = 1.0;
    for (int k = 1; k <= n; ++k) term *= 0.5 * x / k;
    double total = term;
    for (int k = 1; k < 60 && term > total * 1e-17; ++k) {
      term *= 0.25 * x * x / (k * static_cast<double>(n + k));
      total += term;
    }
    return total * std::exp(-x);
  }
  if (x > 40.0 + 4.0 * n * n) {  // the asymptotic series
    const double square = 4.0 * n * n;
    double term = 1.0, total = 1.0;
    for (int k = 1; k < 60 && std::abs(term) > 1e-17; ++k) {
      const double odd = 2.0 * k - 1.0;
      term *= -(square - odd * odd) / (k * 8.0 * x);
      total += term;
    }
    return total / std::sqrt(2.0 * M_PI * x);
  }
  // Downward recurrence from where I is negligible, made right by I0 (Miller).
  const int start = n + 24 + static_cast<int>(std::sqrt(80.0 * (x + 1.0)));
  double above = 0.0, here = 1e-300, wanted = 0.0;
  for (int k = start; k > 0; --k) {
    const double below = above + 2.0 * k / x * here;
    above = here;
    here = below;
    if (k - 1 == n) wanted = here;
    if (here > 1e250) above *= 1e-250, here *= 1e-250, wanted *= 1e-250;
  }
  return wanted / here * i0_scaled(x);
}

double k0_scaled(double x) {
  if (x > 2.0) return series(kK0_FAR, 4.0 / x - 1.0) / std::sqrt(x);
  return std::exp(x) * (series(kK0_NEAR, 0.5 * x * x - 1.0) - std::log(0.5 * x) * i0_scaled(x) * std::exp(x));
}

double k1_scaled(double x) {
  if (x > 2.0) return series(kK1_FAR, 4.0 / x - 1.0) / std::sqrt(x);
  return std::exp(x) * (series(kK1_NEAR, 0.5 * x * x - 1.0) / x + std::log(0.5 * x) * i1_scaled(x) * std::exp(x));
}

// Sums of the asymptotic series of Ai (or its derivative) at zeta: even and odd terms apart.
void airy_sums(double zeta, bool derivative, double& even, double& odd) {
  double u = 1.0, scale = 1.0, last = kInf;
  even = 1.0, odd = 0.0;
  for (int k = 1; k < 40; ++k) {
    u *= (6.0 * k - 5.0) * (6.0 * k - 3.0) * (6.0 * k - 1.0) / (216.0 * k * (2.0 * k - 1.0));
    scale /= zeta;
    const double term = u * scale * (derivative ? -(6.0 * k + 1.0) / (6.0 * k - 1.0) : 1.0);
    if (std::abs(term) > last || std::abs(term) < 1e-18) break;
    last = std::abs(term);
    (k % 2 ? odd : even) += (k / 2) % 2 ? -term : term;  // signs + + - - as for a turning phase
  }
}

}  // namespace

double bessel_i(int n, double x, bool scaled) {
  if (std::isnan(x)) return x;
  const double a = std::abs(x);
  if (std::isinf(a)) return scaled ? 0.0 : (x < 0 && n % 2 ? -kInf : kInf);
  double value = n == 0 ? i0_scaled(a) : n == 1 ? i1_scaled(a) : a == 0.0 ? 0.0 : in_scaled(n, a);
  if (!scaled) value = a > 700.0 ? value * std::exp(0.5 * a) * std::exp(0.5 * a) : value * std::exp(a);
  return x < 0 && n % 2 ? -value : value;
}

double bessel_k(int n, double x, bool scaled) {
  if (std::isnan(x) || x < 0.0) return kNaN;
  if (x == 0.0) return kInf;
  if (std::isinf(x)) return 0.0;
  double below = k0_scaled(x), value = n == 0 ? below : k1_scaled(x);
  for (int k = 1; k < n; ++k) {
    const double above = below + 2.0 * k / x * value;
    below = value;
    value = above;
  }
  return scaled ? value : value * std::exp(-x);
}

double spherical_j(int n, double x) {
  if (std::isnan(x)) return x;
  if (std::isinf(x)) return 0.0;
  if (x * x < 4.0 * n + 6.0) {
    double first = 1.0, term = 1.0, total = 1.0;
    for (int k = 1; k <= n; ++k) first *= x / (2.0 * k + 1.0);
    for (int k = 1; k < 40 && std::abs(term) > 1e-18; ++k) {
      term *= -0.5 * x * x / (k * (2.0 * (n + k) + 1.0));
      total += term;
    }
    return first * total;
  }
  double below = std::sin(x) / x;
  if (n == 0) return below;
  double value = (below - std::cos(x)) / x;
  for (int k = 1; k < n; ++k) {
    const double above = (2.0 * k + 1.0) / x * value - below;
    below = value;
    value = above;
  }
  return value;
}

double airy_ai(double x, bool derivative) {
  if (std::isnan(x)) return x;
  if (std::isinf(x)) return x > 0 || !derivative ? 0.0 : kNaN;
  if (x >= -10.0 && x < 10.0) {
    const int piece = static_cast<int>((x + 10.0) * 0.5);
    const double t = x + 9.0 - 2.0 * piece;
    const double value = derivative ? series(kAI_SLOPE[piece], t) : series(kAI[piece], t);
    return x >= 2.0 ? value * std::exp(-2.0 / 3.0 * x * std::sqrt(x)) : value;
  }
  const double a = std::abs(x), zeta = 2.0 / 3.0 * a * std::sqrt(a), root = std::sqrt(std::sqrt(a));
  double even, odd;
  if (x > 0) {
    double total = 1.0, u = 1.0, scale = 1.0;
    for (int k = 1; k < 20; ++k) {
      u *= (6.0 * k - 5.0) * (6.0 * k - 3.0) * (6.0 * k - 1.0) / (216.0 * k * (2.0 * k - 1.0));
      scale *= -1.0 / zeta;
      const double term = u * scale * (derivative ? -(6.0 * k + 1.0) / (6.0 * k - 1.0) : 1.0);
      total += term;
      if (std::abs(term) < 1e-18) break;
    }
    const double common = std::exp(-zeta) / (2.0 * std::sqrt(M_PI)) * total;
    return derivative ? -common * root : common / root;
  }
  airy_sums(zeta, derivative, even, odd);
  const double phase = zeta - M_PI / 4.0, c = std::cos(phase), s = std::sin(phase);
  return derivative ? root / std::sqrt(M_PI) * (s * even - c * odd) : (c * even + s * odd) / (root * std::sqrt(M_PI));
}

}  // namespace tandem::library::special
