// Special functions of one or two numbers in float64. Each is right at infinities and NaN, and NaN outside its domain.
#pragma once
#include <cstdint>

namespace tandem::library::special {

// Bessel's functions of whole order n >= 0; `scaled` times exp(-|x|) for I, exp(x) for K.
double bessel_i(int n, double x, bool scaled);
double bessel_k(int n, double x, bool scaled);

double spherical_j(int n, double x);

double airy_ai(double x, bool derivative);

// The incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x), and derivatives of P by a.
double gammainc(double a, double x);
double gammaincc(double a, double x);
double gammainc_by_a(double a, double x, int order);  // order 1 or 2

double zeta(double s, double q);  // Hurwitz's: the sum of 1 / (q + k)^s, k = 0, 1, ...
inline constexpr int kMaxZetaOrder = 8;
double zeta_by_s(double s, double q, int order);  // its derivative of this order by s, for q > 0

}  // namespace tandem::library::special
