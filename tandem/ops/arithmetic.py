"""Elementwise arithmetic."""

from __future__ import annotations

from tandem.ops.define import Elementwise, register


@register
class Add(Elementwise):
    name = "add"

    def body(self, b, x, y):
        return x + y  # on bool: logical or

    def grad(self, g, x, y):
        return g, g


@register
class Mul(Elementwise):
    name = "mul"

    def body(self, b, x, y):
        return x * y

    def grad(self, g, x, y):
        return g * y, g * x


@register
class Exp(Elementwise):
    name = "exp"

    def body(self, b, x):
        return b.exp(x)

    def grad(self, g, x, *, out):
        return g * out
