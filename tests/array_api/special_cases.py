"""The special cases that the standard lists for real floating-point operands, as a table.

One line per case: `function operands -> result`. Operands and results are numbers; `even` and `odd` stand for whole numbers,
`+x` and `-x` for some positive and negative finite numbers that are not whole, `any` for all of these and nan, inf and zeros.
~ marks a result that need only be near. A zero has a sign: 0 is +0.
"""

import math

VALUES = {
    "nan": [math.nan], "inf": [math.inf], "-inf": [-math.inf], "0": [0.0], "-0": [-0.0], "1": [1.0], "-1": [-1.0],
    "+x": [0.5, 1.5, 7.25, 1e10], "-x": [-0.5, -1.5, -7.25, -1e10], ">1": [1.5, 2.0, 1e10], "<-1": [-1.5, -2.0, -1e10],
    "<1": [0.5, 0.0, -3.0], "<0": [-0.5, -1.0, -1e10], "small": [0.5, -0.5], "large": [1.5, -2.0, 3.0],
    "odd": [1.0, 3.0, 7.0], "even": [2.0, 4.0], "-odd": [-1.0, -3.0], "-even": [-2.0, -4.0],
    "whole": [2.0, -3.0, 1e10],
}  # fmt: skip
VALUES["positive"] = VALUES["+x"] + VALUES["odd"]
VALUES["negative"] = VALUES["-x"] + VALUES["-odd"]
VALUES["finite"] = VALUES["positive"] + VALUES["negative"]
VALUES["number"] = [*VALUES["finite"], 0.0, -0.0, math.inf, -math.inf]
VALUES["any"] = [*VALUES["number"], math.nan]

PI = {"pi": math.pi, "pi/2": math.pi / 2, "pi/4": math.pi / 4, "3pi/4": 3 * math.pi / 4}

UNARY = """
abs nan -> nan
abs -0 -> 0
abs -inf -> inf
acos nan -> nan
acos >1 -> nan
acos <-1 -> nan
acos 1 -> 0
acosh nan -> nan
acosh <1 -> nan
acosh 1 -> 0
acosh inf -> inf
asin nan -> nan
asin >1 -> nan
asin <-1 -> nan
asin 0 -> 0
asin -0 -> -0
asinh nan -> nan
asinh 0 -> 0
asinh -0 -> -0
asinh inf -> inf
asinh -inf -> -inf
atan nan -> nan
atan 0 -> 0
atan -0 -> -0
atan inf -> ~pi/2
atan -inf -> ~-pi/2
atanh nan -> nan
atanh >1 -> nan
atanh <-1 -> nan
atanh 1 -> inf
atanh -1 -> -inf
atanh 0 -> 0
atanh -0 -> -0
ceil inf -> inf
ceil -inf -> -inf
ceil 0 -> 0
ceil -0 -> -0
ceil nan -> nan
ceil whole -> same
cos nan -> nan
cos 0 -> 1
cos -0 -> 1
cos inf -> nan
cos -inf -> nan
cosh nan -> nan
cosh 0 -> 1
cosh -0 -> 1
cosh inf -> inf
cosh -inf -> inf
exp nan -> nan
exp 0 -> 1
exp -0 -> 1
exp inf -> inf
exp -inf -> 0
expm1 nan -> nan
expm1 0 -> 0
expm1 -0 -> -0
expm1 inf -> inf
expm1 -inf -> -1
floor inf -> inf
floor -inf -> -inf
floor 0 -> 0
floor -0 -> -0
floor nan -> nan
floor whole -> same
log nan -> nan
log <0 -> nan
log 0 -> -inf
log -0 -> -inf
log 1 -> 0
log inf -> inf
log10 nan -> nan
log10 <0 -> nan
log10 0 -> -inf
log10 -0 -> -inf
log10 1 -> 0
log10 inf -> inf
log1p nan -> nan
log1p <-1 -> nan
log1p -1 -> -inf
log1p -0 -> -0
log1p 0 -> 0
log1p inf -> inf
log2 nan -> nan
log2 <0 -> nan
log2 0 -> -inf
log2 -0 -> -inf
log2 1 -> 0
log2 inf -> inf
negative 0 -> -0
negative -0 -> 0
negative nan -> nan
positive -0 -> -0
reciprocal nan -> nan
reciprocal inf -> 0
reciprocal -inf -> -0
reciprocal 0 -> inf
reciprocal -0 -> -inf
round inf -> inf
round -inf -> -inf
round 0 -> 0
round -0 -> -0
round nan -> nan
round whole -> same
round 0.5 -> 0
round -0.5 -> -0
round 1.5 -> 2
round 2.5 -> 2
sign <0 -> -1
sign 0 -> 0
sign -0 -> 0
sign +x -> 1
sign nan -> nan
sin nan -> nan
sin 0 -> 0
sin -0 -> -0
sin inf -> nan
sin -inf -> nan
sinh nan -> nan
sinh 0 -> 0
sinh -0 -> -0
sinh inf -> inf
sinh -inf -> -inf
sqrt nan -> nan
sqrt <0 -> nan
sqrt 0 -> 0
sqrt -0 -> -0
sqrt inf -> inf
square nan -> nan
square -0 -> 0
square -inf -> inf
tan nan -> nan
tan 0 -> 0
tan -0 -> -0
tan inf -> nan
tan -inf -> nan
tanh nan -> nan
tanh 0 -> 0
tanh -0 -> -0
tanh inf -> 1
tanh -inf -> -1
trunc inf -> inf
trunc -inf -> -inf
trunc 0 -> 0
trunc -0 -> -0
trunc small -> zero
trunc nan -> nan
trunc whole -> same
"""

BINARY = """
add nan any -> nan
add inf -inf -> nan
add -inf inf -> nan
add inf inf -> inf
add -inf -inf -> -inf
add inf finite -> inf
add -inf finite -> -inf
add finite inf -> inf
add -0 -0 -> -0
add -0 0 -> 0
add 0 -0 -> 0
add 0 finite -> second
atan2 nan any -> nan
atan2 any nan -> nan
atan2 positive 0 -> ~pi/2
atan2 positive -0 -> ~pi/2
atan2 0 positive -> 0
atan2 0 0 -> 0
atan2 0 -0 -> ~pi
atan2 0 negative -> ~pi
atan2 -0 positive -> -0
atan2 -0 0 -> -0
atan2 -0 -0 -> ~-pi
atan2 -0 negative -> ~-pi
atan2 negative 0 -> ~-pi/2
atan2 negative -0 -> ~-pi/2
atan2 positive inf -> 0
atan2 positive -inf -> ~pi
atan2 negative inf -> -0
atan2 negative -inf -> ~-pi
atan2 inf finite -> ~pi/2
atan2 -inf finite -> ~-pi/2
atan2 inf inf -> ~pi/4
atan2 inf -inf -> ~3pi/4
atan2 -inf inf -> ~-pi/4
atan2 -inf -inf -> ~-3pi/4
copysign 1 -0 -> -1
copysign -1 0 -> 1
copysign -1 nan -> size
copysign nan 1 -> nan
divide nan any -> nan
divide any nan -> nan
divide inf inf -> nan
divide -inf inf -> nan
divide 0 0 -> nan
divide 0 -0 -> nan
divide 0 positive -> 0
divide 0 negative -> -0
divide -0 positive -> -0
divide -0 negative -> 0
divide positive 0 -> inf
divide positive -0 -> -inf
divide negative 0 -> -inf
divide negative -0 -> inf
divide inf positive -> inf
divide inf negative -> -inf
divide -inf positive -> -inf
divide -inf negative -> inf
divide positive inf -> 0
divide positive -inf -> -0
divide negative inf -> -0
divide negative -inf -> 0
floor_divide nan any -> nan
floor_divide any nan -> nan
floor_divide inf inf -> nan
floor_divide -inf inf -> nan
floor_divide 0 0 -> nan
floor_divide -0 0 -> nan
floor_divide 0 positive -> 0
floor_divide 0 negative -> -0
floor_divide -0 positive -> -0
floor_divide -0 negative -> 0
floor_divide positive 0 -> inf
floor_divide positive -0 -> -inf
floor_divide negative 0 -> -inf
floor_divide negative -0 -> inf
floor_divide inf positive -> inf
floor_divide inf negative -> -inf
floor_divide -inf positive -> -inf
floor_divide -inf negative -> inf
floor_divide positive inf -> 0
floor_divide positive -inf -> -0
floor_divide negative inf -> -0
floor_divide negative -inf -> 0
hypot inf any -> inf
hypot any -inf -> inf
hypot nan number -> nan or inf
hypot 0 -0 -> 0
logaddexp nan number -> nan
logaddexp number nan -> nan
logaddexp inf number -> inf
logaddexp number inf -> inf
maximum nan any -> nan
maximum any nan -> nan
minimum nan any -> nan
minimum any nan -> nan
multiply nan any -> nan
multiply inf 0 -> nan
multiply -inf -0 -> nan
multiply 0 inf -> nan
multiply inf positive -> inf
multiply -inf positive -> -inf
multiply inf negative -> -inf
multiply -inf -inf -> inf
multiply 0 negative -> -0
multiply -0 positive -> -0
nextafter nan any -> nan
nextafter any nan -> nan
nextafter -0 0 -> 0
nextafter 0 -0 -> -0
pow any 0 -> 1
pow any -0 -> 1
pow 1 any -> 1
pow nan finite -> nan
pow 0 nan -> nan
pow >1 inf -> inf
pow >1 -inf -> 0
pow <-1 inf -> inf
pow <-1 -inf -> 0
pow -1 inf -> 1
pow -1 -inf -> 1
pow small inf -> 0
pow small -inf -> inf
pow inf positive -> inf
pow inf negative -> 0
pow -inf odd -> -inf
pow -inf even -> inf
pow -inf -odd -> -0
pow -inf -even -> 0
pow -inf 0.5 -> inf
pow -inf -0.5 -> 0
pow 0 positive -> 0
pow 0 negative -> inf
pow -0 odd -> -0
pow -0 even -> 0
pow -0 0.5 -> 0
pow -0 -odd -> -inf
pow -0 -even -> inf
pow -0 -0.5 -> inf
pow -x 0.5 -> nan
remainder nan any -> nan
remainder any nan -> nan
remainder inf any -> nan
remainder -inf any -> nan
remainder any 0 -> nan
remainder any -0 -> nan
remainder 0 positive -> 0
remainder -0 positive -> 0 or -0
remainder 0 negative -> -0 or 0
remainder -0 negative -> -0
remainder positive inf -> first
remainder positive -inf -> -inf
remainder negative inf -> inf
remainder negative -inf -> first
subtract inf inf -> nan
subtract -inf -inf -> nan
subtract inf -inf -> inf
subtract -0 0 -> -0
subtract 0 0 -> 0
"""


def cases(text: str):
    """(function, operands, results that are allowed, whether near is enough) for each line and each value it stands for."""
    for line in text.strip().split("\n"):
        left, _, right = line.partition(" -> ")
        name, *operands = left.split()
        choices = [VALUES[o] if o in VALUES else [float(o)] for o in operands]
        near = right.startswith("~")
        for first in choices[0]:
            for second in choices[1] if len(choices) == 2 else [None]:
                allowed = [result(word, first, second) for word in right.removeprefix("~").split(" or ")]
                yield name, (first,) if second is None else (first, second), allowed, near


def result(word: str, first, second) -> float:
    if word in ("same", "first"):
        return first
    if word == "second":
        return second
    if word == "zero":
        return math.copysign(0.0, first)
    if word == "size":
        return abs(first)  # of the sign of a NaN nothing is said
    if word.removeprefix("-") in PI:
        return math.copysign(PI[word.removeprefix("-")], -1.0 if word.startswith("-") else 1.0)
    return float(word)


def agrees(got: float, wanted: float, near: bool) -> bool:
    if math.isnan(wanted):
        return math.isnan(got)
    if near:
        return math.isclose(got, wanted, rel_tol=1e-6)
    return got == wanted and math.copysign(1.0, got) == math.copysign(1.0, wanted)
