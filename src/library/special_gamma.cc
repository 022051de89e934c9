// Incomplete gamma functions and Hurwitz's zeta function.
#include <algorithm>
#include <cmath>
#include <limits>

#include "library/special_functions.h"

namespace tandem::library::special {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kEps = 1e-17;
constexpr int kMaxTerms = 200000;

// Numerators and denominators of the Bernoulli numbers B_2, B_4, ...
constexpr double kBernoulli[] = {
    1.0 / 6, -1.0 / 30,     1.0 / 42,      -1.0 / 30,       5.0 / 66,       -691.0 / 2730,
    7.0 / 6, -3617.0 / 510, 43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730,
};

double log1p_minus(double m) {  // log(1 + m) - m, without loss for small m
  if (std::abs(m) > 0.3) return std::log1p(m) - m;
  double power = m, total = 0.0;
  for (int k = 2; k < 60; ++k) {
    power *= -m;
    const double term = power / k;
    total += term;
    if (std::abs(term) < kEps * std::abs(total)) break;
  }
  return total;
}

double stirling(double a) {  // log gamma(a + 1) less (a + 1/2) log a - a + log(2 pi) / 2, a >= 10
  const double r = 1.0 / a, square = r * r;
  double total = 0.0;
  for (int k = 7; k >= 1; --k) total = total * square + kBernoulli[k - 1] / (2.0 * k * (2.0 * k - 1.0));
  return total * r;
}

double prefix(double a, double x) {  // x^a exp(-x) / gamma(a + 1)
  if (a < 10.0) return std::exp(a * std::log(x) - x - std::lgamma(a + 1.0));
  return std::exp(a * log1p_minus((x - a) / a) - stirling(a)) / std::sqrt(2.0 * M_PI * a);
}

double lower_series(double a, double x) {
  double term = 1.0, total = 1.0;
  for (int n = 1; n < kMaxTerms && term > total * kEps; ++n) {
    term *= x / (a + n);
    total += term;
  }
  return prefix(a, x) * total;
}

double upper_fraction(double a, double x) {  // Lentz's method for the continued fraction of Legendre
  constexpr double tiny = 1e-300;
  double b = x + 1.0 - a, c = 1.0 / tiny, d = 1.0 / b, h = d;
  for (int i = 1; i < kMaxTerms; ++i) {
    const double an = -i * (i - a);
    b += 2.0;
    d = an * d + b;
    if (std::abs(d) < tiny) d = tiny;
    c = b + an / c;
    if (std::abs(c) < tiny) c = tiny;
    d = 1.0 / d;
    const double step = d * c;
    h *= step;
    if (std::abs(step - 1.0) < 1e-16) break;
  }
  return prefix(a, x) * a * h;
}

// P and Q for proper arguments, computed as whichever is the smaller.
double regular(double a, double x, bool upper) {
  if (x < a + 1.0) {
    const double p = lower_series(a, x);
    return upper ? 1.0 - p : p;
  }
  const double q = upper_fraction(a, x);
  return upper ? q : 1.0 - q;
}

double incomplete(double a, double x, bool upper) {
  if (std::isnan(a) || std::isnan(x) || a < 0.0 || x < 0.0) return kNaN;
  const double none = upper ? 1.0 : 0.0, all = upper ? 0.0 : 1.0;
  if (a == 0.0) return x > 0.0 ? all : kNaN;
  if (x == 0.0) return none;
  if (std::isinf(a)) return std::isinf(x) ? kNaN : none;
  if (std::isinf(x)) return all;
  return regular(a, x, upper);
}

double digamma(double x) {  // x > 0
  double total = 0.0;
  while (x < 10.0) total -= 1.0 / x, x += 1.0;
  const double r = 1.0 / x, square = r * r;
  double tail = 0.0;
  for (int k = 7; k >= 1; --k) tail = tail * square + kBernoulli[k - 1] / (2.0 * k);
  return total + std::log(x) - 0.5 * r - square * tail;
}

double trigamma(double x) {  // x > 0
  double total = 0.0;
  while (x < 10.0) total += 1.0 / (x * x), x += 1.0;
  const double r = 1.0 / x, square = r * r;
  double tail = 0.0;
  for (int k = 8; k >= 1; --k) tail = tail * square + kBernoulli[k - 1];
  return total + r + 0.5 * square + r * square * tail;
}

}  // namespace

double gammainc(double a, double x) {
  return incomplete(a, x, false);
}

double gammaincc(double a, double x) {
  return incomplete(a, x, true);
}

double gammainc_by_a(double a, double x, int order) {
  if (std::isnan(a) || std::isnan(x) || a <= 0.0 || x < 0.0) return kNaN;
  if (x == 0.0 || std::isinf(x) || std::isinf(a)) return 0.0;
  if (x > a + 60.0 * (1.0 + std::sqrt(a)) + 700.0) return 0.0;  // P is 1 to all places
  // Term by term: x^(a+n) exp(-x) / gamma(a+n+1) changes with a by its product with log x - psi(a+n+1).
  const double log_x = std::log(x);
  double term = prefix(a, x), psi = digamma(a + 1.0), slope = trigamma(a + 1.0), total = 0.0, size = 0.0;
  for (int n = 0; n < kMaxTerms; ++n) {
    const double w = log_x - psi;
    const double part = term * (order == 1 ? w : w * w - slope);
    total += part;
    size += std::abs(part);
    if (a + n > x && std::abs(part) < kEps * size) break;
    const double next = a + n + 1.0;
    term *= x / next;
    psi += 1.0 / next;
    slope -= 1.0 / (next * next);
  }
  return total;
}

double zeta(double s, double q) {
  if (std::isnan(s) || std::isnan(q)) return kNaN;
  if (s == 1.0) return kInf;
  if (s < 1.0) return kNaN;
  if (q <= 0.0) {
    if (q == std::floor(q)) return kInf;
    if (s != std::floor(s)) return kNaN;  // powers of negative numbers
  }
  if (std::isinf(q)) return 0.0;
  double total = 0.0, at = q;
  for (int k = 0; at < std::max(10.0, s) && k < kMaxTerms; ++k, at += 1.0) {
    const double term = std::pow(at, -s);
    total += term;
    if (at > 0.0 && term < kEps * total) return total;
  }
  // The rest by Euler and Maclaurin's formula.
  const double power = std::pow(at, -s);
  total += power * at / (s - 1.0) + 0.5 * power;
  double rising = s, scale = power / at, factorial = 2.0;
  for (int k = 1; k <= 12; ++k) {
    const double term = kBernoulli[k - 1] / factorial * rising * scale;
    total += term;
    if (std::abs(term) < kEps * std::abs(total)) break;
    rising *= (s + 2.0 * k - 1.0) * (s + 2.0 * k);
    scale /= at * at;
    factorial *= (2.0 * k + 1.0) * (2.0 * k + 2.0);
  }
  return total;
}

// (-1)^m times the sum of f(q + k) for f(x) = log(x)^m x^-s, again by Euler and Maclaurin's formula. Derivatives of f
// are x^-p times a polynomial of log(x): one more derivative takes P to P' - p P and p to p + 1.
double zeta_by_s(double s, double q, int order) {
  if (order == 0) return zeta(s, q);
  if (std::isnan(s) || std::isnan(q) || s < 1.0 || q <= 0.0) return kNaN;
  const double sign = order % 2 ? -1.0 : 1.0;
  if (s == 1.0) return sign * kInf;
  if (std::isinf(q)) return 0.0;
  const auto term = [&](double x) { return std::pow(std::log(x), order) * std::pow(x, -s); };
  double total = 0.0, at = q;
  // Logarithms make the derivatives fall off later than those of the powers alone.
  for (int k = 0; at < std::max(14.0, s + order) && k < kMaxTerms; ++k, at += 1.0) {
    const double more = term(at);
    total += more;
    if (at > 3.0 && std::abs(more) < kEps * std::abs(total)) return sign * total;
  }
  const double log_at = std::log(at), power = std::pow(at, -s);
  double integral = 0.0, part = power * at;
  for (int i = 0; i <= order; ++i) {  // by parts: each takes one logarithm away
    part /= s - 1.0;
    integral += part * std::pow(log_at, order - i);
    part *= order - i;
  }
  total += integral + 0.5 * term(at);
  double polynomial[kMaxZetaOrder + 1] = {}, p = s, scale = power, factorial = 2.0;
  polynomial[order] = 1.0;
  for (int k = 1; k <= 12; ++k) {
    for (int turn = 0; turn < (k == 1 ? 1 : 2); ++turn) {  // the derivatives of order 1, 3, 5, ...
      for (int i = 0; i <= order; ++i)
        polynomial[i] = (i < order ? (i + 1) * polynomial[i + 1] : 0.0) - p * polynomial[i];
      p += 1.0;
      scale /= at;
    }
    double value = 0.0;
    for (int i = order; i >= 0; --i) value = value * log_at + polynomial[i];
    const double more = kBernoulli[k - 1] / factorial * value * scale;
    total -= more;
    if (std::abs(more) < kEps * std::abs(total)) break;
    factorial *= (2.0 * k + 1.0) * (2.0 * k + 2.0);
  }
  return sign * total;
}

}  // namespace tandem::library::special
