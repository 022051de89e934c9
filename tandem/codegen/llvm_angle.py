"""Angles beyond what sin, cos and tan reduce by multiplication: a function of one number that kernels call where one occurs.

Note [Far angles]
x = m 2^e with an integer m of 53 bits. Of x / (2 pi) only the part after the point matters, and of 1 / (2 pi) only the bits
from the e-th one on: those before it give whole turns (Payne and Hanek). 192 bits from there leave an error below 2^-139
turns. The result is the angle within half a turn as a float64; its error is at most about 4e-16.
"""

from __future__ import annotations

from functools import cache

FAR = 2.0**48  # see Note [Range reduction] in mathlib/trigonometric.py
_WORDS = 20  # of 64 bits: the exponents of float64, and what is looked at from there


@cache
def turn_words() -> tuple[int, ...]:
    """The bits of 1 / (2 pi) after the point in words of 64, after a word of zeros for small exponents."""
    bits = 64 * _WORDS
    scale = 1 << (bits + 64)

    def inverse_tangent(n: int) -> int:  # of 1 / n, times scale
        term = total = scale // n
        k = 1
        while term:
            term //= n * n
            k += 2
            total += -(term // k) if k & 2 else term // k
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    turns = (scale << bits) // (2 * pi)
    return (0, *((turns >> (64 * (_WORDS - 1 - i))) & (2**64 - 1) for i in range(_WORDS)))


def far_angle(x: float) -> float:
    """What the function below computes, in Python's integers."""
    words = turn_words()
    bits = 64 * len(words)
    whole = sum(word << (bits - 64 * (i + 1)) for i, word in enumerate(words))  # of 2^(bits - 64): one turn
    part = int(abs(x)) * whole % (1 << (bits - 64))
    if part >= 1 << (bits - 65):
        part -= 1 << (bits - 64)
    angle = 6.283185307179586 * (part / (1 << (bits - 64)))
    return -angle if x < 0 else angle


def definition() -> list[str]:
    words = turn_words()
    table = ", ".join(f"i64 {w}" for w in words)
    return f"""\
@turns = private unnamed_addr constant [{len(words)} x i64] [{table}], align 8
declare i128 @llvm.ctlz.i128(i128, i1)
declare i64 @llvm.fshl.i64(i64, i64, i64)
define internal double @far_angle(double %x) noinline cold nounwind {{
  %bits = bitcast double %x to i64
  %raised = lshr i64 %bits, 52
  %biased = and i64 %raised, 2047
  %special = icmp eq i64 %biased, 2047
  %near = icmp ult i64 %biased, {1023 + 48}
  %easy = or i1 %special, %near
  br i1 %easy, label %return, label %reduce
return:
  ret double %x
reduce:
  %fraction = and i64 %bits, {2**52 - 1}
  %m = or i64 %fraction, {2**52}
  %position = sub i64 %biased, {1075 - 64}
  %word = lshr i64 %position, 6
  %shift = and i64 %position, 63
  %p0 = getelementptr i64, ptr @turns, i64 %word
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %w0 = load i64, ptr %p0
  %w1 = load i64, ptr %p1
  %w2 = load i64, ptr %p2
  %w3 = load i64, ptr %p3
  %high = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %shift)
  %middle = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %shift)
  %low = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %shift)
  %wide_m = zext i64 %m to i128
  %wide_low = zext i64 %low to i128
  %wide_middle = zext i64 %middle to i128
  %low_product = mul i128 %wide_m, %wide_low
  %low_carry = lshr i128 %low_product, 64
  %middle_product = mul i128 %wide_m, %wide_middle
  %sum = add i128 %middle_product, %low_carry
  %top = mul i64 %m, %high
  %wide_top = zext i64 %top to i128
  %top_placed = shl i128 %wide_top, 64
  %turn = add i128 %top_placed, %sum
  %negative = icmp slt i128 %turn, 0
  %minus = sub i128 0, %turn
  %size = select i1 %negative, i128 %minus, i128 %turn
  %zeros = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %none = icmp eq i128 %size, 0
  %by = select i1 %none, i128 0, i128 %zeros
  %normal = shl i128 %size, %by
  %leading = lshr i128 %normal, 65
  %leading64 = trunc i128 %leading to i64
  %number = sitofp i64 %leading64 to double
  %by64 = trunc i128 %by to i64
  %scale_exponent = sub i64 {1023 - 63}, %by64
  %scale_bits = shl i64 %scale_exponent, 52
  %scale = bitcast i64 %scale_bits to double
  %share = fmul double %number, %scale
  %angle = fmul double %share, 0x401921FB54442D18
  %x_negative = icmp slt i64 %bits, 0
  %flip = xor i1 %negative, %x_negative
  %opposite = fneg double %angle
  %result = select i1 %flip, double %opposite, double %angle
  ret double %result
}}""".splitlines()
