"""Math functions as straight-line arithmetic on scalar expressions: no branches, no tables, no calls, so that they vectorise;
only angles far from zero take a way of their own (trigonometric.py).

Each takes a builder `b` (tandem/codegen/expr.py) and float32 or float64 expressions, and gives an expression of the same
type. All are right at infinities, NaN, signed zeros and denormal numbers; the tests of this folder state how many
units in the last place each may be off. Sums and products must not be reassociated when the result is compiled.
"""

from tandem.codegen.mathlib.bessel import bessel_i0, bessel_i0e, bessel_i1, bessel_i1e, bessel_y0, bessel_y1
from tandem.codegen.mathlib.exponential import exp, exp2, expm1, sigmoid
from tandem.codegen.mathlib.gamma import digamma, lgamma
from tandem.codegen.mathlib.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from tandem.codegen.mathlib.inverse_trigonometric import acos, asin, atan, atan2
from tandem.codegen.mathlib.logarithm import log, log1p, log2, log10, logaddexp, softplus
from tandem.codegen.mathlib.normal import erf, erfc, erfcx, erfinv, ndtri
from tandem.codegen.mathlib.numbers import frexp, ldexp, nextafter, sign
from tandem.codegen.mathlib.powers import cbrt, hypot, pow, rsqrt
from tandem.codegen.mathlib.remainder import floordiv_float, fmod, mod_float
from tandem.codegen.mathlib.trigonometric import cos, sin, tan

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "bessel_y0",
    "bessel_y1",
    "cbrt",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floordiv_float",
    "fmod",
    "frexp",
    "hypot",
    "ldexp",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "mod_float",
    "ndtri",
    "nextafter",
    "pow",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softplus",
    "tan",
    "tanh",
]  # fmt: skip
