"""Angles beyond what sin, cos and tan reduce by multiplication, in Python's integers: what tests hold against the routine that
kernels call where one occurs (src/loader/argument_reduction.cc, Note [Argument reduction])."""

from __future__ import annotations

from functools import cache

ROUTINE = "tandem_reduce_angles"
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


def reduced_angle(x: float) -> float:
    """What the routine makes of one angle."""
    words = turn_words()
    bits = 64 * len(words)
    whole = sum(word << (bits - 64 * (i + 1)) for i, word in enumerate(words))  # of 2^(bits - 64): one turn
    part = int(abs(x)) * whole % (1 << (bits - 64))
    if part >= 1 << (bits - 65):
        part -= 1 << (bits - 64)
    angle = 6.283185307179586 * (part / (1 << (bits - 64)))
    return -angle if x < 0 else angle
